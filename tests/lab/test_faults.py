"""No fault of the catalogue is let through, wherever the dice put it; the full matrix is scripts/bench/faults.py's."""

from collections import Counter

import pytest
from lab import causes, law_faults, trial
from lab.catalogue import FAULTS
from lab.fault import TEXT_SAMPLE, Fault
from lab.workbench import Dice

FAMILIES = ("architecture", "weights", "precision", "export", "packaging", "tokenizer", "decoding", "engine")


def test_the_catalogue_has_forty_faults_and_every_family():
    names = Counter(fault.name for fault in FAULTS)

    assert len(names) == len(FAULTS) >= 40
    assert set(FAMILIES) <= {fault.family for fault in FAULTS}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_fault_is_not_let_through(fault: Fault, tmp_path, ground, scenes, judge, seed):
    rng = Dice(seed, f"where {fault.name} lies").roll()
    candidates = [scene for name in fault.samples or (TEXT_SAMPLE,) for scene in scenes[name]]
    order = [candidates[index] for index in rng.permutation(len(candidates))]

    row = _first_planted(fault, order, tmp_path, ground, judge, seed)

    assert row.outcome.named in ("", *causes.names_of(fault.name)), row.outcome.cause
    if row.is_let_through and fault.beyond:
        pytest.skip(f"the gate lets it through: {fault.beyond}")
    assert not row.is_let_through, f"{fault.name} [{row.scene}]: {row.drawn}; repeat with --lab-seed {seed}"


@pytest.mark.parametrize("limit", law_faults.LIMITS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_what_is_beyond_the_gate_still_is(limit: Fault, tmp_path, ground, scenes, judge, seed):
    row = _first_planted(limit, scenes[TEXT_SAMPLE], tmp_path, ground, judge, seed)

    assert row.is_let_through, f"{limit.name} is caught now, by {row.outcome.cause}: make it a fault of the catalogue"


def _first_planted(fault, scenes, work, ground, judge, seed, *, is_fail_fast: bool = True) -> trial.Row:
    """Plant the fault in the first scene that has a place for it."""
    for scene in scenes:
        options = {"is_fail_fast": is_fail_fast, "is_thorough": not fault.beyond}
        row = trial.try_fault(fault, scene, ground, work, judge, seed, **options)
        if row.is_planted:
            return row
    raise AssertionError(f"{fault.name} has no place in any of {[str(scene) for scene in scenes]}: {row.drawn}")


@pytest.mark.parametrize(
    "name",
    [
        "full layers have theta 10000 by another table",
        "windows are one token narrower",
        "padding is seen everywhere",
        "every GELU is the tanh approximation",
        "a mean is taken over by the first token",
        "two labels change places behind the classifier",
        "all weights are rounded to bfloat16 on the way",
        "weights rounded to float16 fill an FP32 file",
        "one weight is held in float16",
        "one layer is stale",
        "the graph holds a sibling's weights",
        "a sibling's weights lie beside the graphs, and the manifest says so",
        "one norm has an epsilon of 1e-12",
        "cosines carry an attention factor",
        "padding is seen in one layer",
        "config.json has another pooling",
        "the tokenizer has two words exchanged",
        "the graph file was written again",
        "an engine's own operator is used wrongly",
        "numbers overflow unless operators are fused",
    ],
)
def test_a_fault_is_called_by_its_name(name, tmp_path, ground, scenes, judge, seed):
    fault = next(fault for fault in FAULTS if fault.name == name)
    fixed_first = sorted(scenes[TEXT_SAMPLE], key=lambda scene: not scene.graph_id.startswith("portable"))

    row = _first_planted(fault, fixed_first, tmp_path, ground, judge, seed, is_fail_fast=False)

    assert row.outcome.named in causes.names_of(name), row.outcome.cause
