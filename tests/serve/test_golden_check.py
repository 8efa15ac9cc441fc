"""Golden answers at load: every graph gives them, or the model is not served."""

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from vela.graphs import bundle as bundles
from vela.graphs import errors, golden
from vela.serve import registry
from vela.serve.model import ServedModel

MODEL = "mood"
IDS = ((2, 3, 4, 5), (2, 9, 8, 7, 6, 5, 4))


@pytest.fixture
def folder(bags, tmp_path) -> Path:
    return Path(shutil.copytree(bags[MODEL], tmp_path / MODEL))


@pytest.fixture
def answered(folder) -> golden.Golden:
    """Golden answers that the bundle's own graph gives."""
    opened = bundles.Bundle.open(folder)
    session = ServedModel.open(opened).loaded["model"].session
    probes = []
    for ids in IDS:
        row = np.array([ids], np.int64)
        (logits,) = session.run({"input_ids": row, "attention_mask": np.ones_like(row)}).values()
        values = golden.Values((logits.shape[1],), tuple(map(float, logits[0])))
        probes.append(golden.Probe(f"c{len(ids)}", ids, {"logits": values}))
    return golden.Golden(
        1, opened.manifest_sha256, "0" * 64, "itself", "test", {}, {"cpu": 2e-5, "gpu": 4e-3}, tuple(probes)
    )


@pytest.fixture
def load(folder) -> Callable[[golden.Golden], ServedModel]:
    def run(content: golden.Golden) -> ServedModel:
        opened = bundles.Bundle.open(folder)
        golden.write(opened, content)
        return ServedModel.open(opened)

    return run


def altered(content: golden.Golden, **changes) -> golden.Golden:
    """Change the first number of the last probe."""
    *others, last = content.probes
    values = last.outputs["logits"]
    numbers = (values.numbers[0] + changes.pop("by", 0.0), *values.numbers[1:])
    outputs = changes.pop("outputs", {"logits": golden.Values(values.shape, numbers)})
    probe = msgspec.structs.replace(last, outputs=outputs)
    return msgspec.structs.replace(content, probes=(*others, probe), **changes)


def test_a_graph_that_gives_them_is_served_and_says_how_many(load, answered) -> None:
    assert load(answered).golden_count == len(IDS)


def test_a_bundle_without_them_is_served_and_says_so(folder) -> None:
    assert ServedModel.open(bundles.Bundle.open(folder)).golden_count == 0


@pytest.mark.parametrize("by", [3e-5, -1.0])
def test_an_answer_that_is_further_away_than_the_bound_serves_nothing(load, answered, by) -> None:
    with pytest.raises(errors.GoldenMismatch, match=r"model on cpu: found logits .* away"):
        load(altered(answered, by=by))


def test_rounding_is_no_mismatch(load, answered) -> None:
    assert load(altered(answered, by=1e-5)).golden_count == len(IDS)


def test_an_answer_of_another_shape_or_name_is_a_mismatch(load, answered) -> None:
    for outputs in ({"logits": golden.Values((2,), (0.0, 0.0))}, {"scores": golden.Values((1,), (0.0,))}):
        with pytest.raises(errors.GoldenMismatch):
            load(altered(answered, outputs=outputs))


def test_answers_of_another_bundle_are_no_reason_to_serve_it(load, answered) -> None:
    with pytest.raises(errors.BundleError, match="for this very bundle"):
        load(msgspec.structs.replace(answered, manifest_sha256="12" * 32))


def test_the_registry_says_what_became_of_them(folder, answered, source_of) -> None:
    opened = bundles.Bundle.open(folder)
    states = {}
    for name, content in {"matched": answered, "failed": altered(answered, by=1.0)}.items():
        golden.write(opened, content)
        loaded = registry.Registry(registry.Plan((source_of(MODEL, folder),)))
        loaded.load()
        states[name] = loaded.entries[MODEL]
        loaded.close()

    assert {name: entry.golden for name, entry in states.items()} == {"matched": "matched", "failed": "failed"}
    assert states["matched"].status == "ready"
    assert states["failed"].status == "failed"
    assert "golden" in states["failed"].reason or "checkpoint's own answer" in states["failed"].reason
