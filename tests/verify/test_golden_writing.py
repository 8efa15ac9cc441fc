"""Golden answers written again: by the gate's rules, on its verdicts only, and nothing that a bundle does not give."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from vela.export import verification
from vela.graphs import attestation, contract, errors, golden
from vela.graphs import bundle as bundles
from vela.verify import cases, checkpoint, golden_writing, ground, mutants, probes, reference
from vela.verify.options import GateOptions

SAMPLE = "tiny-intent"
FEW_MUTANTS = 4  # by all of them the same rules choose, and that takes the time


def never() -> ground.References:
    """Stand where the reference is loaded, which a refused bundle must not reach."""
    raise AssertionError("the reference was loaded")


@pytest.fixture(autouse=True)
def short_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the reference's noise on inputs as short as those of the bundles of these tests."""
    monkeypatch.setattr(golden_writing, "GateOptions", lambda: GateOptions(max_tokens=192))


@pytest.fixture(scope="module")
def references(checkpoints: Mapping[str, Path]) -> ground.References:
    """Load the sample once for all tests, with some of its mutants."""
    found = verification.make_references(checkpoint.Checkpoint.read(checkpoints[SAMPLE]))
    return ground.References(found.exact, found.wide, found.mutants[:FEW_MUTANTS])


@pytest.fixture
def write(checkpoints: Mapping[str, Path], references: ground.References) -> Callable[..., golden.Golden]:
    """Write a bundle's golden answers as `vela golden write` does."""
    source = checkpoint.Checkpoint.read(checkpoints[SAMPLE])

    def run(folder: Path, most: int | None = None, asked: ground.References = references) -> golden.Golden:
        opened = bundles.Bundle.open(folder)
        return golden_writing.write_anew(opened, source, lambda: asked, most, lambda _: None)

    return run


def test_equal_inputs_give_equal_bytes_that_say_what_they_rest_on(copied, write, tmp_path) -> None:
    folder = copied[SAMPLE]
    opened, path = bundles.Bundle.open(folder), folder / contract.GOLDEN_FILE
    elsewhere = Path(shutil.copytree(folder, tmp_path / "elsewhere"))
    by_gate = golden.read(opened)

    made = write(folder)
    write(elsewhere)

    assert path.read_bytes() == (elsewhere / contract.GOLDEN_FILE).read_bytes()
    assert golden.read(opened) == made
    assert (made.command, by_gate.command) == ("vela golden write", "vela verify-graph")
    for field in ("manifest_sha256", "checkpoint_sha256", "reference", "tools"):
        assert getattr(made, field) == getattr(by_gate, field)
    assert str(tmp_path).encode() not in path.read_bytes()


def test_inputs_that_the_gate_chose_too_have_the_same_answers(copied, write) -> None:
    by_gate = {probe.ids: probe for probe in golden.read(bundles.Bundle.open(copied[SAMPLE])).probes}

    shared = [probe for probe in write(copied[SAMPLE]).probes if probe.ids in by_gate]

    assert len(shared) > 1
    for probe in shared:
        ours, theirs = (one.outputs["logits"].numbers for one in (probe, by_gate[probe.ids]))
        assert np.allclose(ours, theirs, rtol=0, atol=1e-5)


def test_fewer_probes_are_those_that_separate_best(copied, write) -> None:
    folder = copied[SAMPLE]

    few = write(folder, 8)

    assert len(few.probes) == 8
    assert few.command == "vela golden write --probes 8"
    assert golden.read(bundles.Bundle.open(folder)) == few


def test_a_statement_that_nobody_signed_is_about_the_new_answers(copied, write) -> None:
    folder = copied[SAMPLE]
    opened = bundles.Bundle.open(folder)
    attestation.write(opened)
    before = subjects(folder)

    write(folder, 8)

    after = subjects(folder)
    assert after["golden.json"] == attestation.publication.digests.sha256_of_file(folder / "golden.json")
    assert {name for name in after if after[name] != before[name]} == {"golden.json"}


def subjects(folder: Path) -> dict[str, str]:
    """Give the digests of a bundle's unsigned statement."""
    stated = json.loads((folder / contract.ATTESTATION_FILE).read_bytes())
    return {one["name"]: one["digest"]["sha256"] for one in stated["subject"]}


def remove_record(folder: Path) -> None:
    (folder / "verification" / "model.cpu.json").unlink()


def fail_record(folder: Path) -> None:
    path = folder / "verification" / "model.cpu.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"verdict": "failed", "cause": "planted"}))


def change_weight(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()  # a bundle's weights are a link to its checkpoint's
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "kind", "said"),
    [
        (remove_record, errors.NotVerified, "graph 'model' with no record.*vela verify-graph"),
        (fail_record, errors.NotVerified, "failed on cpu .* planted.*vela verify-graph"),
        (change_weight, errors.DigestMismatch, "model.safetensors"),
    ],
)
def test_a_bundle_that_did_not_pass_as_it_lies_there_is_refused_and_keeps_its_answers(
    copied, checkpoints, damage, kind, said
) -> None:
    folder = copied[SAMPLE]
    before = (folder / contract.GOLDEN_FILE).read_bytes()
    damage(folder)

    with pytest.raises(kind, match=said):
        golden_writing.write_anew(
            bundles.Bundle.open(folder), checkpoint.Checkpoint.read(checkpoints[SAMPLE]), never, None, lambda _: None
        )

    assert (folder / contract.GOLDEN_FILE).read_bytes() == before


def test_another_checkpoint_than_the_verdicts_is_refused(copied, sibling) -> None:
    source = checkpoint.Checkpoint.read(sibling)

    with pytest.raises(errors.NotVerified, match=r"which 'model.*' was judged against"):
        golden_writing.write_anew(bundles.Bundle.open(copied[SAMPLE]), source, never, None, lambda _: None)


def test_the_bundle_itself_is_no_checkpoint_to_write_from(copied) -> None:
    with pytest.raises(errors.NothingCompared, match="the bundle itself"):
        verification.write_golden(copied[SAMPLE], copied[SAMPLE], None, lambda _: None)


class Shifted:
    """A reference that answers a little otherwise than its bundle."""

    def __init__(self, exact: reference.Reference) -> None:
        self._exact = exact
        self.facts = exact.facts

    def answer(self, asked):
        return [{name: values + 0.01 for name, values in one.items()} for one in self._exact.answer(asked)]


def test_answers_that_the_bundle_does_not_give_are_not_written(copied, write, references) -> None:
    folder = copied[SAMPLE]
    before = (folder / contract.GOLDEN_FILE).read_bytes()
    shifted = ground.References(Shifted(references.exact), Shifted(references.wide), references.mutants)

    with pytest.raises(errors.GoldenMismatch, match=r"logits 0\.01 away"):
        write(folder, asked=shifted)

    assert (folder / contract.GOLDEN_FILE).read_bytes() == before


def made_pool(effects: Mapping[int, float]) -> tuple[mutants.Mutants, dict[str, dict[str, np.ndarray]]]:
    """Make a pool of one case for each length, with one mutant that shows so much on it."""
    made = [cases.Case(f"c{tokens}", (1,) * tokens, "", 0, ()) for tokens in effects]
    expected = {case.id: {"logits": np.zeros(2)} for case in made}
    shown = {case.id: {"logits": np.full(2, effects[case.tokens])} for case in made}
    measured = mutants.Measured(mutants.Facts("one mistake", "window"), shown)
    return mutants.Mutants(mutants.Pool(tuple(made), 3), (measured,), ()), expected


@pytest.mark.parametrize(("most", "count"), [(8, 8), (32, 9)])
def test_the_shortest_fixed_graph_is_asked_a_probe_too(most, count) -> None:
    found, expected = made_pool({**{tokens: tokens / 100 for tokens in range(100, 110)}, 10: 0.1, 12: 0.2})

    without = probes.choose_probes(found, expected, most=most)
    chosen = probes.choose_probes(found, expected, most=most, shortest=16)

    assert min(case.tokens for case in without) >= 100
    assert [case.tokens for case in chosen if case.tokens <= 16] == [12]  # the one that separates better
    assert len(chosen) == count
    assert chosen[:7] == without[:7]
