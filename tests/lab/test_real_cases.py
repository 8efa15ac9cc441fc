"""Graphs that were really published or written wrong, rebuilt on a sample: each fails, and by what should see it.

Where each comes from is in its fault's `provenance`.
"""

import pytest
from lab import trial
from lab.catalogue import FAULTS
from lab.workbench import Bench, Dice

from vela.export import verification
from vela.verify import checkpoint, foreign_gate
from vela.verify.options import GateOptions

BY_NAME = {fault.name: fault for fault in FAULTS}


@pytest.fixture
def try_case(tmp_path, ground, scenes, judge, seed):
    def run(name: str, sample: str = "tiny-intent", *, is_fixed: bool) -> trial.Row:
        fault, scene = BY_NAME[name], scenes[sample][is_fixed]
        assert fault.provenance
        return trial.try_fault(fault, scene, ground, tmp_path, judge, seed)

    return run


@pytest.mark.parametrize("is_fixed", [False, True])
def test_local_layers_that_see_fewer_keys_to_the_left_fail_by_their_answers(try_case, is_fixed):
    row = try_case("windows reach less far to the left", is_fixed=is_fixed)

    assert row.outcome.failed == ("parity.strict",)


@pytest.mark.parametrize("is_fixed", [False, True])
def test_a_token_model_published_as_a_sequence_graph_fails_before_it_runs(try_case, is_fixed):
    row = try_case("a token model is published as a sequence model", "tiny-pii", is_fixed=is_fixed)

    assert "graph.contract" in row.outcome.failed
    assert "logits" in row.outcome.cause


@pytest.mark.parametrize("is_fixed", [False, True])
def test_a_file_that_says_fp16_and_computes_in_fp32_fails_before_it_runs(try_case, is_fixed):
    row = try_case("a manifest says fp16 of FP32 weights", is_fixed=is_fixed)

    assert "graph.reduction" in row.outcome.failed
    assert row.outcome.named == "precision"


@pytest.mark.parametrize(("name", "is_fixed"), [("there is no window", False), ("padding is seen everywhere", True)])
def test_a_path_that_drops_window_or_padding_fails_by_its_answers(try_case, name, is_fixed):
    row = try_case(name, is_fixed=is_fixed)

    assert "parity.strict" in row.outcome.failed


def test_one_theta_for_all_layers_fails_though_every_table_is_right(try_case):
    row = try_case("sliding layers have theta 160000 by arithmetic on the right table", is_fixed=True)

    assert row.outcome.failed == ("graph.rotary", "parity.strict")


def test_a_guard_against_nan_that_an_engine_does_not_know_fails_by_the_lint_alone(try_case):
    row = try_case("attention is guarded by IsNaN", is_fixed=True)

    assert row.outcome.failed == ("graph.lint",)
    assert "IsNaN" in row.outcome.cause


@pytest.fixture
def judge_file(tmp_path, ground, seed):
    """Plant a case in a graph and judge its file as one of another exporter: no manifest says what it is."""

    def run(name: str):
        fault, source = BY_NAME[name], ground.checkpoints / "tiny-intent"
        folder = tmp_path / "planted"
        dice = Dice(seed, name)
        fault.plant(Bench.of(ground.bundles / "tiny-intent", "portable-b1-s64", source, folder, dice))
        read = checkpoint.Checkpoint.read(source)
        references = lambda: verification.make_references(read)  # noqa: E731
        options = GateOptions(max_tokens=64, budget_s=60.0)
        return foreign_gate.verify_file(folder / "portable-b1-s64.onnx", read, references, options, lambda _: None)

    return run


def test_a_file_whose_windows_reach_less_far_to_one_side_says_window(judge_file):
    found = judge_file("windows reach less far to the left")

    assert (found.verdict, found.named) == ("failed", "window")
    assert "a window of 15 to the left and 16 to the right instead of 16" in found.cause


def test_a_file_beside_its_siblings_weights_says_other_weights_and_how_many(judge_file):
    found = judge_file("a sibling's weights lie beside the graphs")

    assert (found.verdict, found.named) == ("failed", "other weights")
    assert "of 42 tensors of the checkpoint are not in the graph" in found.cause
