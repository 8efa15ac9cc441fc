"""All golden answers asked of every graph: how far each is, and that nothing wrong or unasked passes."""

import functools
import math
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from vela.graphs import bundle, contract, errors, golden
from vela.serve import device as devices
from vela.serve import engine, golden_asking, golden_check, registry
from vela.serve.deployment import Deployment
from vela.serve.model import Choice
from vela.verify import golden_table

SAMPLE = "tiny-intent"
CPU = Deployment()
BATCHING = Deployment(profile="batching")  # loads the graph with a mask besides


def check(folder: Path, deployment: Deployment = CPU) -> list[golden_asking.GraphCheck]:
    return golden_asking.check_bundle(bundle.Bundle.open(folder), deployment)


def rewrite(folder: Path, **changes) -> golden.Golden:
    """Change golden.json, by hand and well formed."""
    opened = bundle.Bundle.open(folder)
    content = msgspec.structs.replace(golden.read(opened), **changes)
    golden.write(opened, content)
    return content


def moved(probe: golden.Probe, by: float) -> golden.Probe:
    """Move the last number of a probe's answer."""
    ((name, values),) = probe.outputs.items()
    numbers = (*values.numbers[:-1], values.numbers[-1] + by)
    return msgspec.structs.replace(probe, outputs={name: golden.Values(values.shape, numbers)})


def test_every_graph_that_serve_loads_is_asked_every_probe(bundles) -> None:
    for name, folder in bundles.items():
        content = msgspec.json.decode((folder / contract.GOLDEN_FILE).read_bytes(), type=golden.Golden)

        found = check(folder)

        assert {one.verdict for one in found} == {"passed"}, name
        assert {one.probes for one in found} == {len(content.probes)}
        assert all(0 <= one.furthest <= one.bound == content.bounds["cpu"] for one in found)
        golden_asking.require_matched(found)


def test_a_profile_s_graphs_are_asked_too(bundles) -> None:
    assert {one.graph for one in check(bundles[SAMPLE], BATCHING)} == {"model", "model-unpadded"}


def test_probes_that_loading_skips_are_asked_as_well(copied) -> None:
    folder = copied[SAMPLE]
    *others, last = golden.read(bundle.Bundle.open(folder)).probes
    content = rewrite(folder, probes=(*others, moved(last, 0.01)))
    assert len(others) >= golden_check.FIXED_PROBES

    (found,) = check(folder)

    assert found.verdict == "failed"
    assert found.furthest == pytest.approx(0.01, rel=0.05)
    assert found.worst == last.case_id
    assert found.reason == (
        f"logits {found.furthest:.3g} away on {last.case_id} ({len(last.ids)} tokens), "
        f"at most {content.bounds['cpu']:.3g} allowed"
    )
    with pytest.raises(errors.GoldenMismatch, match=r"tiny-intent model-unpadded \(1 of 1 failed\)"):
        golden_asking.require_matched([found])


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_fail_whichever_of_them_it_is(bundles, monkeypatch, wrong) -> None:
    run = engine.Session.run

    def spoilt(self, inputs, run_options=None):
        outputs = run(self, inputs, run_options)
        return {
            name: np.where(np.arange(values.size) == 1, np.float32(wrong), values) for name, values in outputs.items()
        }

    monkeypatch.setattr(engine.Session, "run", spoilt)

    (found,) = check(bundles[SAMPLE])

    assert (found.verdict, found.furthest) == ("failed", None)
    assert "logits not finite on" in found.reason
    with pytest.raises(errors.GoldenMismatch):
        golden_asking.require_matched([found])


def test_an_engine_that_stops_at_one_probe_fails_the_graph_and_says_why(bundles, monkeypatch) -> None:
    run, asked = engine.Session.run, []

    def stopping(self, inputs, run_options=None):
        asked.append(inputs)
        if len(asked) == 3:
            raise errors.EngineError("a run error", expected="an answer", where="model", fix="Look.")
        return run(self, inputs, run_options)

    monkeypatch.setattr(engine.Session, "run", stopping)

    (found,) = check(bundles[SAMPLE])

    assert found.verdict == "failed"
    assert "a run error" in found.reason


def test_a_bundle_without_golden_answers_is_not_compared(copied) -> None:
    (copied[SAMPLE] / contract.GOLDEN_FILE).unlink()

    (found,) = check(copied[SAMPLE])

    assert (found.verdict, found.graph, found.probes) == ("not_compared", "", 0)
    with pytest.raises(errors.NothingCompared, match="vela golden write"):
        golden_asking.require_matched([found])


def test_a_graph_that_takes_none_of_the_probes_is_not_compared(copied, monkeypatch) -> None:
    folder = copied[SAMPLE]
    probes = golden.read(bundle.Bundle.open(folder)).probes
    rewrite(folder, probes=tuple(msgspec.structs.replace(one, ids=(one.ids * 65)[:65]) for one in probes))
    opened = bundle.Bundle.open(folder)
    fixed = opened.graph("portable-b1-s64")
    monkeypatch.setattr(Choice, "graphs", property(lambda _: (fixed,)))

    (found,) = check(folder)

    assert (found.verdict, found.probes) == ("not_compared", 0)
    assert found.reason == f"none of {len(probes)} probes fits its 64 tokens"


def test_nothing_at_all_is_no_pass() -> None:
    with pytest.raises(errors.NothingCompared):
        golden_asking.require_matched([])


def test_answers_of_another_bundle_and_other_bytes_fail_and_the_next_model_is_checked(copied, bundles) -> None:
    foreign, damaged = copied["tiny-guard"], copied["tiny-pii"]
    shutil.copyfile(bundles[SAMPLE] / contract.GOLDEN_FILE, foreign / contract.GOLDEN_FILE)
    with (damaged / "model-unpadded.onnx").open("ab") as stream:
        stream.write(b"x")
    subjects = [
        (path.name, functools.partial(bundle.Bundle.open, path)) for path in (foreign, damaged, bundles[SAMPLE])
    ]

    found = golden_asking.check_models(subjects, CPU)

    assert [(one.model, one.verdict) for one in found] == [
        *(("tiny-guard", "failed"), ("tiny-pii", "failed"), (SAMPLE, "passed"))
    ]
    assert "for this very bundle" in found[0].reason
    assert "model-unpadded.onnx" in found[1].reason
    lines = dict(golden_table.graph_lines(found))
    assert "1 of 3 graphs gave their golden answers on cpu" in lines
    assert lines[f"  tiny-guard: {found[0].reason}"] == "failed"


def test_a_device_that_is_not_here_is_an_error_before_any_bundle_is_opened() -> None:
    def never() -> bundle.Bundle:
        raise AssertionError("a bundle was opened")

    with pytest.raises(errors.ProviderUnavailable):
        golden_asking.check_models([(SAMPLE, never)], Deployment(devices.Device.parse("rocm:0")))


def test_models_of_a_store_are_opened_one_by_one(store) -> None:
    subjects = golden_asking.subjects_from_sources(registry.sources_from_store(store, ["tiny-guard", SAMPLE]))

    found = golden_asking.check_models(subjects, CPU)

    assert [(one.model, one.verdict) for one in found] == [("tiny-guard", "passed"), (SAMPLE, "passed")]
