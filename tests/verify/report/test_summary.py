"""What a report says before any figure."""

import pytest

from vela.graphs import record
from vela.verify.report import reading, summary

CUDA = record.EngineFacts("onnxruntime", "1.31.0", "onnxruntime-gpu", "CUDAExecutionProvider", "cuda:0", "9.0", {})


def summed(*records, **collected):
    return summary.Summary.from_collected(reading.Collected("sample", records, **collected))


def test_a_bundle_passes_where_every_graph_did(make_record):
    found = summed(make_record("model"), make_record("portable-b1-s64"))

    assert found.verdict == "passed"
    assert [str(line) for line in found.headlines] == ["2 of 2 graphs passed the strict bar on onnxruntime 1.32.0 cpu"]
    assert found.causes == ()


def test_one_failure_fails_the_bundle_and_is_counted(make_record, make_failed, make_not_compared):
    found = summed(make_record("a"), make_failed("b"), make_not_compared("c"))

    assert found.verdict == "failed"
    assert str(found.headlines[0]) == "1 of 3 graphs passed the strict bar on onnxruntime 1.32.0 cpu"


def test_a_graph_that_was_not_compared_is_never_a_pass(make_record, make_not_compared):
    assert summed(make_record("a"), make_not_compared("b")).verdict == "not_compared"
    assert summed(make_not_compared("b")).verdict == "not_compared"


def test_a_graph_without_a_record_is_never_a_pass(make_record):
    assert summed(make_record("a"), unjudged=("b",)).verdict == "not_compared"


def test_a_record_that_is_left_out_keeps_the_bundle_from_passing(make_record):
    assert summed(make_record("a"), left_out=(reading.LeftOut("x.json", "stale"),)).verdict == "not_compared"


def test_nothing_at_all_is_not_a_pass():
    assert summed().verdict == "not_compared"


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": None},
        {"checks": ()},
        {"planned": 5},
        {"bars": (record.BarResult("strict", "failed", ("|Δp| 0.81",)),)},
    ],
)
def test_a_record_that_contradicts_its_pass_is_shown_as_not_compared(make_record, changes):
    (graph,) = summed(make_record(**changes)).graphs

    assert graph.verdict == "not_compared"
    assert "The record says passed with" in graph.cause


def test_each_engine_and_bar_has_a_headline_of_its_own(make_record, make_failed):
    found = summed(make_record(), make_failed(engine=CUDA, bar="strict-gpu"))

    assert [(line.verdict, str(line)) for line in found.headlines] == [
        ("passed", "1 of 1 graphs passed the strict bar on onnxruntime 1.32.0 cpu"),
        ("failed", "0 of 1 graphs passed the strict-gpu bar on onnxruntime 1.31.0 cuda:0"),
    ]


def test_a_headline_without_any_engine_says_so(make_not_compared):
    (line,) = summed(make_not_compared()).headlines

    assert str(line) == "0 of 1 graphs passed the strict bar and reached no engine"


def test_a_cause_is_said_once_for_all_graphs_that_share_it_and_failures_come_first(make_failed, make_not_compared):
    found = summed(make_not_compared("a"), make_failed("b"), make_failed("c"))

    assert [(cause.verdict, [graph.stored.graph_id for graph in cause.graphs]) for cause in found.causes] == [
        ("failed", ["b", "c"]),
        ("not_compared", ["a"]),
    ]


def test_the_closest_figure_names_the_graph_and_the_class(make_record, make_failed):
    found = {one.measured.name: one for one in summed(make_record("a"), make_failed("b")).closest}

    closest = found["Max |Δp|"]
    assert (closest.measured.value, closest.measured.bound) == (0.25, 5e-4)
    assert (closest.graph.stored.graph_id, closest.column.length_class) == ("b", "513-2048")


def test_decades_are_added_up_over_classes(make_failed):
    (graph,) = summed(make_failed()).graphs

    assert graph.decades == (0, 2, 3, 1, 0, 0, 0, 0, 2)


def test_disagreements_that_no_tie_excuses_come_first_and_the_clearest_before_others(make_failed, make_run):
    runs = (make_run("tie", margin=1e-4), make_run("clear", margin=0.9), make_run("less", margin=0.2), make_run())
    (graph,) = summed(make_failed(runs=runs)).graphs

    assert [(one.run.case_id, one.is_lost) for one in graph.disagreements] == [
        ("clear", True),
        ("less", True),
        ("tie", False),
    ]
    assert graph.lost == 2


def test_findings_that_differ_in_the_name_of_the_graphs_file_only_are_one_cause(make_failed):
    found = summed(*(make_failed(name, cause=f"weights.identity: {name}.onnx: found other weights") for name in "ab"))

    assert [(cause.text, len(cause.graphs)) for cause in found.causes] == [("weights.identity: found other weights", 2)]
