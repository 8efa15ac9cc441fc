"""The gate's record: what its constructor refuses, and that it survives writing and reading."""

from typing import Any

import msgspec
import pytest

from vela.graphs import record


def test_a_record_survives_writing_and_reading(make_bundle: Any) -> None:
    made = make_bundle().record()

    assert msgspec.json.decode(record.encode_record(made), type=record.Record) == made


def test_a_record_that_compared_nothing_cannot_say_passed(make_bundle: Any) -> None:
    with pytest.raises(ValueError, match="compared nothing"):
        make_bundle().record(compared=0, runs=())


@pytest.mark.parametrize("status", ["failed", "not_run"])
def test_a_record_with_a_check_that_did_not_pass_cannot_say_passed(make_bundle: Any, status: Any) -> None:
    with pytest.raises(ValueError, match="did not pass"):
        make_bundle().record(checks=(record.Check("weights", status, "", 0.0),))


def test_a_failed_record_may_hold_failed_checks(make_bundle: Any) -> None:
    checks = (record.Check("weights", "failed", "41 tensors differ", 0.0),)

    assert make_bundle().record(verdict="failed", compared=0, runs=(), checks=checks).verdict == "failed"


@pytest.mark.parametrize("figure", [float("nan"), float("inf")])
@pytest.mark.parametrize("position", range(5))
def test_statistics_that_are_not_finite_cannot_be_made(figure: float, position: int) -> None:
    figures = [0.0] * 5
    figures[position] = figure

    with pytest.raises(ValueError, match="not finite"):
        record.ClassStatistics("1-64", "none", 1, 1, *figures, agreed=1, near_ties=0, decades=(1, *[0] * 8))


def test_records_of_one_graph_on_several_devices_have_files_of_their_own() -> None:
    assert record.record_file("model", "cpu") == "verification/model.cpu.json"
    assert record.record_file("model", "migraphx:0") == "verification/model.migraphx-0.json"
