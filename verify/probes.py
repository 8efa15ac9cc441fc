"""Choose the inputs that best separate mutants of a checkpoint, and make its golden answers from them.

Greedy: each probe is the one that adds most to what the ones before it show, each mutant counted by the share of its
largest effect on the pool.
Source: reference measurements: 8 greedy inputs reached the largest effect of a pool of 600 for 8 of 12 mutants.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from vela.graphs import golden
from vela.verify import bars, cases, mutants, reference

FEWEST = 8
LEAST_GAIN = 0.05  # of one mutant's largest effect; a probe that adds less only costs time at every load
MOST_NUMBERS = 8192  # of one answer: token logits of long texts are many
# |Δp| is at most half of |Δlogit|, so this is strict's bound on a GPU.
GPU_BOUND = 2 * bars.STRICT_GPU.max_probability


def choose_probes(
    found: mutants.Mutants,
    expected: Mapping[str, reference.Answer],
    *,
    most: int = golden.MOST_PROBES,
    shortest: int | None = None,
) -> list[cases.Case]:
    """Choose 8 to 32 cases of the pool, those that separate best first.

    Args:
        found: The mutants with their answers.
        expected: The checkpoint's answers, by case id.
        most: How many at most.
        shortest: Tokens of the shortest fixed graph; if no case chosen fits it, one that does is added, in the last
            one's place where there is no room.
    """
    candidates = [case for case in found.pool.cases if _numbers(expected[case.id]) <= MOST_NUMBERS]
    effects = np.array(
        [
            [effect(one.answers[case.id], expected[case.id]) for case in candidates]
            for one in found.measured
            if one.answers
        ]
    ).reshape(-1, len(candidates))
    largest = effects.max(axis=1, keepdims=True, initial=0.0)
    shares = np.divide(effects, largest, out=np.zeros_like(effects), where=largest > 0)
    shown = np.zeros(len(shares))
    chosen: list[int] = []
    while len(chosen) < min(most, len(candidates)):
        gains = np.maximum(shares - shown[:, None], 0.0).sum(axis=0)
        gains[chosen] = -1.0
        best = int(np.argmax(gains))
        if gains[best] < LEAST_GAIN and len(chosen) >= FEWEST:
            break
        chosen.append(best)
        shown = np.maximum(shown, shares[:, best] if len(shares) else shown)
    fitting = [index for index, case in enumerate(candidates) if shortest is not None and case.tokens <= shortest]
    if fitting and not set(chosen) & set(fitting):
        totals = shares.sum(axis=0)
        chosen[most - 1 :] = [max(fitting, key=lambda index: float(totals[index]))]
    return [candidates[index] for index in chosen]


def effect(answer: reference.Answer, expected: reference.Answer) -> float:
    """Give the largest difference between two answers, over all outputs."""
    return max(float(np.max(np.abs(answer[name] - expected[name]))) for name in expected)


def make_golden(
    chosen: Sequence[cases.Case],
    expected: Mapping[str, reference.Answer],
    noise: float,
    facts: Mapping[str, str],
    tools: Mapping[str, str],
) -> golden.Golden:
    """Make golden answers.

    Args:
        chosen: The probes.
        expected: The checkpoint's answers, by case id.
        noise: The reference's own FP32 noise.
        facts: `manifest_sha256`, `checkpoint_sha256`, `reference` and `command`.
        tools: Versions of what judged.
    """
    bound = bars.STRICT.logit_bound(noise)
    probes = [
        golden.Probe(case.id, case.ids, {name: _values(values) for name, values in expected[case.id].items()})
        for case in chosen
    ]
    return golden.Golden(
        schema_version=golden.SCHEMA_VERSION,
        bounds={"cpu": min(bound or GPU_BOUND, golden.WIDEST_BOUND), "gpu": GPU_BOUND},
        probes=tuple(probes),
        tools=dict(tools),
        **facts,
    )


def _numbers(answer: reference.Answer) -> int:
    return sum(values.size for values in answer.values())


def _values(values: np.ndarray) -> golden.Values:
    # nine digits say a float32 exactly
    numbers = tuple(float(f"{number:.9g}") for number in np.asarray(values, np.float32).ravel())
    return golden.Values(tuple(values.shape), numbers)
