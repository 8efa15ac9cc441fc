"""Hold whoever answers in a model's place against upstream's golden answers: its checkpoint in PyTorch, or a bundle.

One model is opened at a time. Numbers are compared within one tolerance, spans as sets exactly, and what is not finite
is never near. A file of another revision is about another model, and refused.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec
import numpy as np

from vela.graphs import errors, model_table
from vela.serve import answers
from vela.serve.reading import Item
from vela.verify import upstream_golden

Answer = answers.Answer | answers.FailedAnswer
Verdict = Literal["passed", "failed", "refused", "not_compared"]

# Source: upstream's CPU and ROCm answers agree to about 1e-6, and those of siblings differ by 0.03 and more
# (reference/vela-family.md §1.4).
TOLERANCE = 1e-4
# A sigmoid moves by a quarter of its logit at most, so this holds relevance to the tolerance, and is no less strict
# where it saturates.
LOOSER = {"logit": 4.0}
SHOWN = 4  # differences that are told of a model, and spans of one


class Answerer(Protocol):
    """Whoever answers in a model's place."""

    @property
    def revision(self) -> str:
        """The commit that it was proven to be; empty where its files are not those that the table pins."""
        ...

    def answer(self, items: Sequence[Item]) -> Sequence[Answer]:
        """Answer each input with the model's own defaults, in order."""
        ...


Open = Callable[[str], Answerer | str]  # by the name in the file; a text says why there is nobody to ask


class ModelCheck(msgspec.Struct, frozen=True):
    """What came of one model.

    Attributes:
        model: Its name in the file.
        revision: The commit that the file is about.
        verdict: `refused` where the answers are of another revision than the model's.
        inputs: How many answers were compared.
        furthest: Largest |Δ| of any number; None where one is not finite, or none was compared.
        bound: Largest |Δ| that is allowed there.
        worst: The input that is furthest away.
        reasons: Why it did not pass, or was not compared.
        notes: What the reader must know besides.
    """

    model: str
    revision: str
    verdict: Verdict
    inputs: int = 0
    furthest: float | None = None
    bound: float | None = None
    worst: str = ""
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """How far one answer is from upstream's.

    Attributes:
        name: The input.
        distance: Largest |Δ|; nan where a number is not finite or nothing could be compared.
        bound: Largest |Δ| that is allowed.
        problem: What is wrong with it apart from distance; else empty.
    """

    name: str
    distance: float
    bound: float
    problem: str = ""

    @property
    def share(self) -> float:
        """How much of the bound it takes; infinite where it is not finite."""
        return self.distance / self.bound if math.isfinite(self.distance) else math.inf

    @property
    def said(self) -> str:
        """What is wrong with it; empty where it is near enough."""
        if self.problem:
            return f"{self.name}: {self.problem}"
        if self.distance <= self.bound:  # nan is not
            return ""
        far = f"{self.distance:.3g} away" if math.isfinite(self.distance) else "not finite"
        return f"{self.name}: {far}, at most {self.bound:.3g} allowed"


def check_models(
    golden: upstream_golden.UpstreamGolden,
    names: Iterable[str],
    opening: Open,
    table: model_table.ModelTable,
    tolerance: float = TOLERANCE,
) -> list[ModelCheck]:
    """Check models of a file, one after the other.

    Args:
        golden: The file.
        names: Of models in it.
        opening: Opens what answers in a model's place.
        table: The pinned models, whose revisions the file's must be.
        tolerance: Largest |Δ| of a probability.
    """
    return [_check(golden, name, opening, find_entry(table, name), tolerance) for name in names]


def find_entry(table: model_table.ModelTable, name: str) -> model_table.ModelEntry | None:
    """Find a model of a table by any of its names, whether it can be exported or not."""
    return next((entry for entry in table.models if name.casefold() in entry.aliases), None)


def find_name(golden: upstream_golden.UpstreamGolden, wanted: str, table: model_table.ModelTable) -> str | None:
    """Find under which name a file has a model that somebody calls `wanted`."""
    entry = find_entry(table, wanted)
    aliases = entry.aliases if entry else frozenset({wanted.casefold()})
    return next((name for name in golden.cpu if name.casefold() in aliases), None)


def require_passed(found: Sequence[ModelCheck]) -> None:
    """Refuse unless a model was compared and none differs.

    Raises:
        VerificationFailed: one differs, or the file is about another revision of it.
        NothingCompared: none was compared.
    """
    failed = [one for one in found if one.verdict in ("failed", "refused")]
    if failed:
        raise errors.VerificationFailed(
            failed[0].reasons[0],
            expected="upstream's own answers",
            where=f"{failed[0].model} ({len(failed)} of {len(found)} models {failed[0].verdict})",
            fix="What answers is another model than the file's, or computes otherwise: `vela verify-graph` says which.",
        )
    if not any(one.verdict == "passed" for one in found):
        raise errors.NothingCompared(
            found[0].reasons[0] if found else "no model",
            expected="at least one model of the file answered",
            where=found[0].model if found else "--upstream",
            fix="Name a checkpoint or a bundle of a model in the file.",
        )


def compare(
    question: upstream_golden.Question, found: Sequence[Answer], tolerance: float = TOLERANCE
) -> list[Difference]:
    """Compare answers with upstream's, one input after the other."""
    bound = tolerance * LOOSER.get(question.field, 1.0)
    return [
        _compare(question.field, name, answer, expected, bound)
        for name, answer, expected in zip(question.names, found, question.expected, strict=True)
    ]


def _check(
    golden: upstream_golden.UpstreamGolden,
    name: str,
    opening: Open,
    entry: model_table.ModelEntry | None,
    tolerance: float,
) -> ModelCheck:
    stated, questions = golden.cpu[name].revision, golden.questions(name)
    if entry is not None and entry.revision != stated:
        return ModelCheck(
            name, stated, "refused", reasons=(_other_revision(stated, entry.revision, "the model table"),)
        )
    if not questions:
        return ModelCheck(name, stated, "not_compared", reasons=("the file has no answers of a known kind",))
    try:
        answerer = opening(name)
        if isinstance(answerer, str):
            return ModelCheck(name, stated, "not_compared", reasons=(answerer,))
        if answerer.revision not in ("", stated):
            reason = _other_revision(stated, answerer.revision, "what answers")
            return ModelCheck(name, stated, "refused", reasons=(reason,))
        found = [one for each in questions for one in compare(each, answerer.answer(each.items), tolerance)]
    except errors.VelaError as problem:
        return ModelCheck(name, stated, "failed", reasons=(str(problem),))
    notes = () if answerer.revision else ("its files are not pinned, so nothing says that they are this revision",)
    return _judged(name, stated, found, notes)


def _judged(name: str, stated: str, found: Sequence[Difference], notes: tuple[str, ...]) -> ModelCheck:
    if not found:
        return ModelCheck(name, stated, "not_compared", reasons=("the file asks it nothing",))
    said = [one.said for one in found if one.said]
    more = [f"and {len(said) - SHOWN} more"] if len(said) > SHOWN else []
    worst = max(found, key=lambda one: one.share)
    furthest = worst.distance if math.isfinite(worst.distance) else None
    verdict: Verdict = "failed" if said else "passed"
    return ModelCheck(
        name, stated, verdict, len(found), furthest, worst.bound, worst.name, (*said[:SHOWN], *more), notes
    )


def _other_revision(stated: str, known: str, whose: str) -> str:
    return f"the file's answers are of revision {stated[:12]}, and {whose} has {known[:12]}"


def _compare(field: str, name: str, answer: Answer, expected: Any, bound: float) -> Difference:
    match field, answer:
        case _, answers.FailedAnswer(error=error):
            return _nothing(name, bound, f"rejected, {error.code}: {error.message}")
        case "probabilities", answers.SequenceAnswer(probabilities=values):
            return _compare_numbers(name, values, expected, bound)
        case "scores", answers.ScoresAnswer(scores=values):
            return _compare_numbers(name, values, expected, bound)
        case "embeddings", answers.EmbeddingAnswer():
            return _compare_numbers(name, answer.embedding.tolist(), expected, bound)
        case "logit", answers.RerankAnswer(logit=value):
            return _compare_numbers(name, [value], [expected], bound)
        case "spans", answers.TokenAnswer(spans=spans):
            return _compare_spans(name, spans, expected, bound)
    return _nothing(name, bound, f"{type(answer).__name__}, where the file has {field}")


def _nothing(name: str, bound: float, problem: str) -> Difference:
    return Difference(name, math.nan, bound, problem)


def _compare_numbers(name: str, actual: Sequence[float], expected: Sequence[float], bound: float) -> Difference:
    if len(actual) != len(expected):
        return _nothing(name, bound, f"{len(actual)} numbers, where the file has {len(expected)}")
    distance = np.max(np.abs(np.array(actual, np.float64) - np.array(expected, np.float64)), initial=0.0)
    return Difference(name, float(distance), bound)


def _compare_spans(
    name: str, actual: Sequence[answers.Span], expected: Sequence[upstream_golden.Span], bound: float
) -> Difference:
    ours = {(span.label, span.start, span.end): span.probability for span in actual}
    theirs = {(span.label, span.start, span.end): span.probability for span in expected}
    if ours.keys() != theirs.keys() or len(theirs) != len(expected):
        missing, added = _listed(theirs.keys() - ours.keys()), _listed(ours.keys() - theirs.keys())
        return _nothing(name, bound, f"other spans: {missing} missing, {added} too many")
    return _compare_numbers(name, list(ours.values()), [theirs[key] for key in ours], bound)


def _listed(spans: Iterable[tuple[str, int, int]]) -> str:
    shown = [f"{label} {start}..{end}" for label, start, end in sorted(spans)]
    more = [f"and {len(shown) - SHOWN} more"] if len(shown) > SHOWN else []
    return ", ".join([*shown[:SHOWN], *more]) or "none"
