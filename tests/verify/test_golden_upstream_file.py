"""Upstream's file of golden answers: read in every shape that it has, refused whole where anything is wrong.

And what is said of it without any model: who is not finite, absent or of another revision never passes.
"""

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from vela.graphs import errors, model_table
from vela.serve import answers
from vela.serve.reading import Grounded, Pair
from vela.verify import golden_table, upstream_check, upstream_golden

REVISION = "0123456789abcdef" * 2 + "01234567"
OTHER = "f" * 40
CONTENT: dict[str, Any] = {
    "source": "made by these tests",
    "inputs": {
        "text": ["One text.", "Marta is another."],
        "grounded": {"context": "It is red.", "question": "What is it?", "answer": "It is blue."},
        "rerank": {"query": "red things", "documents": ["A rose.", "The sky."]},
    },
    "cpu": {
        "Domain": {"revision": REVISION, "probabilities": [[0.123456, 0.876544], [0.5, 0.5]]},
        "Hazard": {"revision": REVISION, "scores": [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]},
        "PII": {"revision": REVISION, "spans": [[], [["PERSON", 0, 5, 0.99]]]},
        "Halu": {"revision": REVISION, "spans": [["hallucinated", 6, 10, 0.9]]},
        "Embedding": {"revision": REVISION, "embeddings": [[0.6, 0.8], [1.0, 0.0]]},
        "Reranker": {"revision": REVISION, "logit": [5.8, -4.7]},
    },
    "rocm": {"Domain": "is passed over"},
}

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., upstream_golden.UpstreamGolden]:
    """Read the file after a change to what it says."""

    def run(change: Change = lambda _: None) -> upstream_golden.UpstreamGolden:
        changed = copy.deepcopy(CONTENT)
        change(changed)
        path = tmp_path / "golden_answers.json"
        path.write_text(json.dumps(changed))
        return upstream_golden.UpstreamGolden.from_file(path)

    return run


@pytest.fixture
def table() -> model_table.ModelTable:
    """A table that pins one model of the file."""
    shipped = model_table.load_table()
    (domain,) = [msgspec.structs.replace(one, revision=REVISION) for one in shipped.models if one.name == "Domain"]
    return msgspec.structs.replace(shipped, models=(domain,))


def test_every_shape_is_read_with_the_inputs_that_it_is_about(read) -> None:
    golden = read()

    asked = {name: golden.questions(name) for name in golden.cpu}

    assert {name: [(one.field, one.names) for one in found] for name, found in asked.items()} == {
        "Domain": [("probabilities", ("text 1", "text 2"))],
        "Hazard": [("scores", ("text 1", "text 2"))],
        "PII": [("spans", ("text 1", "text 2"))],
        "Halu": [("spans", ("the grounded answer",))],
        "Embedding": [("embeddings", ("text 1", "text 2"))],
        "Reranker": [("logit", ("document 1", "document 2"))],
    }
    assert asked["PII"][0].expected == ((), (upstream_golden.Span("PERSON", 0, 5, 0.99),))
    assert asked["Halu"][0].items == (Grounded("It is red.", "What is it?", "It is blue."),)
    assert asked["Halu"][0].expected == ((upstream_golden.Span("hallucinated", 6, 10, 0.9),),)
    assert asked["Reranker"][0].items == (Pair("red things", "A rose."), Pair("red things", "The sky."))
    assert asked["Domain"][0].items == ("One text.", "Marta is another.")


def test_no_spans_at_all_are_a_grounded_answer_s_and_empty_lists_are_the_texts(read) -> None:
    def empty(whole: dict[str, Any]) -> None:
        whole["cpu"]["Halu"]["spans"] = []
        whole["cpu"]["PII"]["spans"] = [[], []]

    golden = read(empty)

    assert golden.questions("Halu")[0].expected == ((),)
    assert golden.questions("PII")[0].expected == ((), ())


@pytest.mark.parametrize(
    "change",
    [
        lambda whole: whole["cpu"]["Domain"]["probabilities"].pop(),
        lambda whole: whole["cpu"]["Domain"].update(revision="main"),
        lambda whole: whole["cpu"]["Domain"].update(probabilities=[[], []]),
        lambda whole: whole["cpu"]["Domain"]["probabilities"][0].append("0.5"),
        lambda whole: whole["cpu"]["PII"]["spans"][1][0].append(1),
        lambda whole: whole["cpu"]["PII"]["spans"][1][0].__setitem__(1, -1),
        lambda whole: whole["cpu"]["PII"]["spans"][1][0].__setitem__(3, 1.5),
        lambda whole: whole["cpu"]["PII"]["spans"][1][0].__setitem__(0, "a\x1b[31m"),
        lambda whole: whole["cpu"]["PII"]["spans"].append([]),
        lambda whole: whole["cpu"]["PII"].update(spans=[7, 7]),
        lambda whole: whole["cpu"]["Reranker"]["logit"].pop(),
        lambda whole: whole["inputs"].pop("grounded"),
        lambda whole: whole["inputs"].update(text=["a"] * 65),
        lambda whole: whole["cpu"].update({"a\x1b[31m": {"revision": REVISION}}),
        lambda whole: whole.pop("cpu"),
    ],
)
def test_a_file_that_contradicts_itself_or_the_format_is_refused_whole(read, change) -> None:
    with pytest.raises(
        errors.VerificationError, match=r"golden_answers\.json: found content that is not of the format"
    ):
        read(change)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "null"])
def test_numbers_that_are_not_finite_are_refused(tmp_path, number) -> None:
    path = tmp_path / "golden_answers.json"
    path.write_text(json.dumps(CONTENT).replace("0.123456", number, 1))
    assert number in path.read_text()

    with pytest.raises(errors.VerificationError, match="not of the format"):
        upstream_golden.UpstreamGolden.from_file(path)


def test_a_file_that_is_cut_off_or_too_large_or_no_text_is_refused(tmp_path) -> None:
    whole = json.dumps(CONTENT).encode()
    for name, damaged, said in (
        ("cut", whole[: len(whole) // 2], "not of the format"),
        ("large", whole + b" " * upstream_golden.LIMIT_BYTES, "more than 4,194,304 bytes"),
        ("latin", b'{"source": "\xe9"}', "not of the format"),
        ("deep", b"[" * 100_000, "not of the format"),
    ):
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(errors.VerificationError, match=said):
            upstream_golden.UpstreamGolden.from_file(tmp_path / name)


class Told:
    """Somebody who answers every input alike."""

    revision = REVISION

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def answer(self, items):
        return [self._answer for _ in items]


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_answers_that_are_not_finite_fail(read, table, wrong) -> None:
    golden = read(lambda whole: whole["cpu"]["Domain"].update(probabilities=[[0.5] * 2] * 2))
    report = answers.InputReport(3, 3, truncated=False)
    told = Told(answers.SequenceAnswer(0, "a", [wrong] * 2, report))

    (found,) = upstream_check.check_models(golden, ["Domain"], lambda _: told, table)

    assert (found.verdict, found.furthest) == ("failed", None)
    assert found.reasons == tuple(f"text {n}: not finite, at most 0.0001 allowed" for n in (1, 2))


def test_a_rejected_input_fails(read, table) -> None:
    told = Told(answers.FailedAnswer(0, answers.Problem("max_length_exceeded", "long")))

    (found,) = upstream_check.check_models(read(), ["Domain"], lambda _: told, table)

    assert found.verdict == "failed"
    assert found.reasons[0] == "text 1: rejected, max_length_exceeded: long"


def test_answers_of_a_revision_that_the_table_does_not_pin_are_refused_before_anything_is_opened(read, table) -> None:
    golden = read(lambda whole: whole["cpu"]["Domain"].update(revision=OTHER))

    def never(name: str) -> None:
        raise AssertionError(f"{name} was opened")

    (found,) = upstream_check.check_models(golden, ["Domain"], never, table)

    assert found.verdict == "refused"
    with pytest.raises(
        errors.VerificationFailed, match="of revision ffffffffffff, and the model table has 0123456789ab"
    ):
        upstream_check.require_passed([found])


def test_when_none_was_compared_that_is_no_pass(read, table) -> None:
    found = upstream_check.check_models(read(), ["Domain", "PII"], lambda _: "nobody there", table)

    assert {one.verdict for one in found} == {"not_compared"}
    assert ("  Domain, PII: nobody there", "not_compared") in list(golden_table.model_lines(found))
    with pytest.raises(errors.NothingCompared, match="nobody there"):
        upstream_check.require_passed(found)
    with pytest.raises(errors.NothingCompared):
        upstream_check.require_passed([])
