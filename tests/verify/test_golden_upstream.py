"""Answers held against upstream's golden ones: a file of their shape is made here, of what the samples answer."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from vela.export import parity_side
from vela.graphs import digests, errors, model_table
from vela.serve import answers, prediction
from vela.serve.device import CPU
from vela.serve.reading import Grounded, Pair
from vela.verify import golden_table, upstream_check, upstream_golden, upstream_sides

REVISION = "0123456789abcdef" * 2 + "01234567"
OTHER = "f" * 40
TEXTS = ["Where is the card that I ordered?", "Please call Marta Nowak on 555 0134 about it."]
GROUNDED = {
    "context": "The bridge was opened in 1932.",
    "question": "When was the bridge opened?",
    "answer": "The bridge was opened in 1951, by the king.",
}
RERANK = {"query": "how long does a refund take", "documents": ["Refunds arrive within a week.", "We sell lamps."]}
MODELS = {
    "Intent": "tiny-intent",
    "Hazard": "tiny-multilabel",
    "PII": "tiny-pii",
    "Halu": "tiny-grounded",
    "Embedding": "tiny-embedding",
    "Reranker": "tiny-reranker",
}


def entry_of(name: str, sample: Path) -> model_table.ModelEntry:
    """Pin a sample under a name of the file."""
    pinned = ("config.json", "model.safetensors", "tokenizer.json")
    files = {file: digests.sha256_of_file(sample / file) for file in pinned}
    shipped = model_table.load_table().models[0]
    return msgspec.structs.replace(
        shipped, name=name, repository=f"somebody/{sample.name}", revision=REVISION, files=files
    )


@pytest.fixture(scope="module")
def table(checkpoints) -> model_table.ModelTable:
    """A table that pins the samples under the names of the file."""
    entries = [entry_of(name, checkpoints[sample]) for name, sample in MODELS.items()]
    return model_table.ModelTable(model_table.SCHEMA_VERSION, "these tests", tuple(entries))


@pytest.fixture(scope="module")
def content(bundles) -> dict[str, Any]:
    """What the samples answer, in the shape of upstream's file."""
    grounded, query = Grounded(**GROUNDED), RERANK["query"]
    asked = {"Halu": [grounded], "Reranker": [Pair(query, document) for document in RERANK["documents"]]}
    found = {}
    for name, sample in MODELS.items():
        model = prediction.load_from_bundle(bundles[sample], CPU, "nothing")
        found[name] = {"revision": REVISION} | as_upstream(prediction.predict(model, asked.get(name, TEXTS)))
    assert found["PII"]["spans"][1]
    assert found["Halu"]["spans"]
    inputs = {"text": TEXTS, "grounded": GROUNDED, "rerank": RERANK}
    return {"source": "made by these tests", "inputs": inputs, "cpu": found, "rocm": {"Intent": {}}}


def as_upstream(found: list[Any]) -> dict[str, Any]:
    """Give answers in upstream's shape."""
    match found[0]:
        case answers.SequenceAnswer():
            return {"probabilities": [one.probabilities for one in found]}
        case answers.ScoresAnswer():
            return {"scores": [one.scores for one in found]}
        case answers.EmbeddingAnswer():
            return {"embeddings": [one.embedding.tolist() for one in found]}
        case answers.RerankAnswer():
            return {"logit": [one.logit for one in found]}
        case _:
            spans = [[[span.label, span.start, span.end, span.probability] for span in one.spans] for one in found]
            return {"spans": spans if len(found) > 1 else spans[0]}


@pytest.fixture
def read(tmp_path, content) -> Callable[..., upstream_golden.UpstreamGolden]:
    """Read the file after a change to what it says."""

    def run(change: Callable[[dict[str, Any]], object] = lambda _: None) -> upstream_golden.UpstreamGolden:
        changed = copy.deepcopy(content)
        change(changed)
        path = tmp_path / "golden_answers.json"
        path.write_text(json.dumps(changed))
        return upstream_golden.UpstreamGolden.from_file(path)

    return run


@pytest.fixture
def check(read, bundles, table) -> Callable[..., upstream_check.ModelCheck]:
    """Check one sample's bundle after a change to what the file says of it."""

    def run(name: str, change: Callable[[dict[str, Any]], object] = lambda _: None) -> upstream_check.ModelCheck:
        golden = read(lambda whole: change(whole["cpu"][name]))
        side = upstream_sides.Asking(golden, table, name).of_bundle(bundles[MODELS[name]], CPU)
        (found,) = upstream_check.check_models(golden, side.names, side.opening, table)
        return found

    return run


@pytest.mark.parametrize("name", MODELS)
def test_a_model_s_own_answers_pass(check, name) -> None:
    found = check(name)

    assert (found.verdict, found.reasons, found.notes) == ("passed", (), ())
    assert found.inputs == (1 if name == "Halu" else 2)
    assert found.furthest < 1e-6


def add(place: str, index: int, by: float) -> Callable[[dict[str, Any]], None]:
    """Move the first number of an entry."""

    def change(found: dict[str, Any]) -> None:
        entry = found[place][index]
        if isinstance(entry, list):
            entry[0] += by
        else:
            found[place][index] += by

    return change


def swap(found: dict[str, Any]) -> None:
    """Exchange two texts' answers."""
    found["probabilities"].reverse()


def alter_span(place: int, value: object) -> Callable[[dict[str, Any]], None]:
    """Put something else in a place of the second text's first span."""
    return lambda found: found["spans"][1][0].__setitem__(place, value)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("Intent", add("probabilities", 1, 2e-4), r"text 2: 0\.0002 away, at most 0\.0001 allowed"),
        ("Intent", swap, r"text 1: 0\.\d+ away"),
        ("Intent", lambda found: found["probabilities"][0].pop(), r"text 1: \d+ numbers, where the file has \d+"),
        ("Hazard", add("scores", 0, -2e-4), r"text 1: 0\.0002 away"),
        ("Hazard", lambda found: found.update(probabilities=found.pop("scores")), "ScoresAnswer, where the file has p"),
        ("PII", alter_span(2, 7), r"text 2: other spans: \w+ \d+\.\.\d+ missing, \w+ \d+\.\.\d+ too many"),
        ("PII", alter_span(0, "AGE"), r"text 2: other spans: AGE \d+\.\.\d+ missing"),
        (
            "PII",
            lambda found: found["spans"][0].append(["AGE", 0, 5, 0.5]),
            r"text 1: other spans: AGE 0\.\.5 missing, none too many",
        ),
        ("PII", lambda found: found["spans"][1].append(found["spans"][1][0]), "text 2: other spans"),
        ("PII", alter_span(3, 0.5), r"text 2: 0\.\d+ away"),
        ("Halu", lambda found: found.update(spans=[]), "the grounded answer: other spans: none missing, hallucinated "),
        ("Embedding", add("embeddings", 0, 2e-4), r"text 1: 0\.0002 away"),
        ("Reranker", add("logit", 1, 5e-4), r"document 2: 0\.0005 away, at most 0\.0004 allowed"),
    ],
)
def test_an_answer_that_differs_fails_and_is_named_with_its_distance(check, name, change, said) -> None:
    found = check(name, change)

    assert found.verdict == "failed"
    assert len(found.reasons) == (2 if change is swap or "where the file has p" in said else 1)
    with pytest.raises(errors.VerificationFailed, match=said):
        upstream_check.require_passed([found])


def test_a_distance_within_the_tolerance_passes_and_is_told(check) -> None:
    found = check("Intent", add("probabilities", 1, 5e-5))

    assert (found.verdict, found.worst) == ("passed", "text 2")
    assert found.furthest == pytest.approx(5e-5, rel=1e-3)


def test_a_bundle_that_is_pinned_as_another_revision_is_refused(read, bundles, table) -> None:
    later = [msgspec.structs.replace(one, name=f"New{one.name}", repository="a/n-" + one.name) for one in table.models]
    moved = msgspec.structs.replace(table, models=tuple(msgspec.structs.replace(one, revision=OTHER) for one in later))
    golden = read()
    side = upstream_sides.Asking(golden, moved, "Intent").of_bundle(bundles["tiny-intent"], CPU)

    (found,) = upstream_check.check_models(golden, side.names, side.opening, moved)

    assert found.verdict == "refused"
    assert "what answers has ffffffffffff" in found.reasons[0]


def test_checkpoints_answer_in_pytorch_behind_the_same_rules(read, checkpoints, table, tmp_path) -> None:
    for name, sample in MODELS.items():
        (tmp_path / name.lower()).symlink_to(checkpoints[sample])
    (tmp_path / "hazard").unlink()
    golden = read()
    side = upstream_sides.Asking(golden, table).of_checkpoints(tmp_path, parity_side.answering)

    found = {one.model: one for one in upstream_check.check_models(golden, side.names, side.opening, table)}

    assert {name: one.verdict for name, one in found.items()} == {
        name: "not_compared" if name == "Hazard" else "passed" for name in MODELS
    }
    assert found["Hazard"].reasons == ("no folder hazard of it",)
    assert 0 < found["Reranker"].furthest < 1e-4
    assert not any(one.notes for one in found.values())


def test_a_sibling_s_checkpoint_fails_and_is_said_to_be_none_that_is_pinned(read, sibling, table) -> None:
    golden = read()
    side = upstream_sides.Asking(golden, table, "Intent").of_checkpoint(sibling, parity_side.answering)

    (found,) = upstream_check.check_models(golden, side.names, side.opening, table)

    assert found.verdict == "failed"
    assert found.furthest > 1e-3
    assert "not pinned" in found.notes[0]


def test_that_nothing_says_which_revision_a_bundle_is_of_is_stated(read, bundles) -> None:
    golden, shipped = read(), model_table.load_table()
    side = upstream_sides.Asking(golden, shipped, "Intent").of_bundle(bundles["tiny-intent"], CPU)

    (found,) = upstream_check.check_models(golden, side.names, side.opening, shipped)

    assert found.verdict == "passed"
    assert "not pinned" in found.notes[0]
    assert ("  Intent: " + found.notes[0], "passed") in list(golden_table.model_lines([found]))


def test_models_of_a_store_are_found_by_any_name_and_the_others_are_not_compared(read, store, table) -> None:
    golden = read(lambda whole: whole["cpu"].update(Absent={"revision": OTHER, "logit": [0.0, 0.0]}))
    side = upstream_sides.Asking(golden, table).of_store(store, CPU)

    found = upstream_check.check_models(golden, side.names, side.opening, table)

    assert [(one.model, one.verdict) for one in found] == [
        *((name, "passed") for name in MODELS),
        ("Absent", "not_compared"),
    ]
    upstream_check.require_passed(found)
    assert next(golden_table.model_lines(found))[0] == (
        "6 of 6 models answered as upstream's golden answers do; 1 not compared"
    )


def test_a_model_that_cannot_be_loaded_fails_and_the_next_one_is_checked(read, copied, bundles, table) -> None:
    (copied["tiny-pii"] / "model-unpadded.onnx").write_bytes(b"")
    golden = read()
    asking = upstream_sides.Asking(golden, table)
    sides = {
        "PII": upstream_sides.Asking(golden, table, "PII").of_bundle(copied["tiny-pii"], CPU),
        "Intent": upstream_sides.Asking(golden, table, "Intent").of_bundle(bundles["tiny-intent"], CPU),
    }

    found = upstream_check.check_models(asking.golden, sides, lambda name: sides[name].opening(name), table)

    assert [one.verdict for one in found] == ["failed", "passed"]
    assert "model-unpadded.onnx" in found[0].reasons[0]


def test_answers_of_a_kind_that_nobody_knows_are_not_compared(check) -> None:
    found = check("Intent", lambda answered: answered.update(verdicts=answered.pop("probabilities")))

    assert (found.verdict, found.inputs) == ("not_compared", 0)
    assert found.reasons == ("the file has no answers of a known kind",)
