"""What each model of the family is asked to say: its labels, and the files that decide how they are read.

Thresholds of Hazard are not published; the stand-in has its own.
Source: upstream's recipes and its registry (reference/vela-family.md §1, §1.2).
"""

from collections.abc import Mapping

PII_TYPES = (
    *("AGE", "CREDIT_CARD", "DATE_TIME", "DOMAIN_NAME", "EMAIL_ADDRESS", "GPE", "IBAN_CODE", "IP_ADDRESS", "NRP"),
    *("ORGANIZATION", "PERSON", "PHONE_NUMBER", "STREET_ADDRESS", "TITLE", "US_DRIVER_LICENSE", "US_SSN", "ZIP_CODE"),
)
HAZARDS = (
    *("violence", "criminal_activity", "sexual_content", "child_exploitation", "hate", "harassment_abuse"),
    *("regulated_substances", "weapons", "self_harm", "privacy", "specialized_advice", "misinformation"),
)
LABELS: Mapping[str, tuple[str, ...]] = {
    "Domain": (
        *("biology", "business", "chemistry", "computer science", "economics", "engineering", "health", "history"),
        *("law", "math", "other", "philosophy", "physics", "psychology"),
    ),
    "Guard": ("benign", "jailbreak"),
    "Safety": ("safe", "unsafe"),
    "Shield": ("safe", "unsafe"),
    "FactCheck": ("no_fact_check_needed", "needs_fact_check"),
    "Feedback": ("SAT", "NEED_CLARIFICATION", "WRONG_ANSWER", "WANT_DIFFERENT", "NO_FEEDBACK"),
    "Modality": ("AR", "DIFFUSION", "BOTH"),
    "Hazard": HAZARDS,
    "PII": ("O", *(f"{place}-{kind}" for kind in PII_TYPES for place in "BI")),
    "Halu": ("supported", "hallucinated"),
}
HAZARD_THRESHOLDS = (0.5, 0.45, 0.6, 0.4, 0.55, 0.5, 0.5, 0.5, 0.45, 0.6, 0.65, 0.55)

# Of tokenizer.json upstream has four variants; what a file says of truncation and padding is never followed, and the
# stand-ins would show it if it were.
TRUNCATED_TO: Mapping[str, int] = {"Safety": 512, "FactCheck": 512, "Feedback": 512, "Hazard": 512, "Halu": 64}
PADDED_TO: Mapping[str, int] = {"Shield": 128}

# An encoder of six layers has the family's four exits at 1, 2, 4 and 6, and its five widths.
LAYERS = 6
EXITS = (1, 2, 4, 6)
DIMENSIONS = (96, 64, 48, 32, 16)


def operating_point(name: str) -> dict[str, object] | None:
    """Give the content of a model's operating point; None where it has none."""
    if name == "Hazard":
        return {
            "schema_version": 2,
            "score_type": "independent_sigmoid",
            "comparison": "score >= threshold",
            "labels": list(HAZARDS),
            "thresholds": list(HAZARD_THRESHOLDS),
            "input_policy": {
                "strategy": "overlapping_content_windows",
                "window_tokens_including_special_tokens": 2048,
                "overlap_content_tokens": 1023,
                "max_document_tokens_including_special_tokens": 32768,
            },
        }
    if name == "Halu":
        return {
            "max_input_tokens": 8192,
            "token_threshold": 0.5,
            "threshold_comparison": "strictly_greater",
            "label2id": {"supported": 0, "hallucinated": 1},
            "input_pair": ["User request: {question}\n\n{context}", "answer"],
            "answer_offsets": "Unicode code points",
        }
    return None
