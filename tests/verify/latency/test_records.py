"""Records as files, two of them side by side, and the tables and the page that show them."""

import html.parser
import math

import msgspec
import pytest

from vela.graphs import errors
from vela.verify.latency import answers, comparing, intervals, judging, page, record, record_file, table

IDS = ("c0", "c1")
HOSTILE = "<script>alert(1)</script>\u202e"


def make_phase(concurrency=1, scale=1.0, failures=None):
    found = record.Quantiles(*(scale * value for value in (2.0, 4.0, 6.0, 3.0)))
    times = tuple(int(scale * value * 1e6) for value in (2.0, 4.0))
    return record.Phase(
        concurrency, 2, 2, {}, failures or {}, 0.5, 4.0 / scale, found, {"forward": 1.5}, 0.02, 1, times
    )


def make_turn(side="a", scale=1.0, differing=()):
    identity = record.Identity({"m": {"engine": HOSTILE}}, 1000.0, (5, 7))
    return record.Turn(side, identity, (), {}, (make_phase(1, scale), make_phase(4, 3 * scale)), tuple(differing))


def make_answer(value=0.75):
    return answers.Answer(f"{value}", "d", (value, 1.0 - value))


def make_run(scale=1.0, corpus_sha256="5" * 64, values=(0.75, 0.5)):
    return record.RunRecord(
        created="2026-12-01T00:00:00+00:00",
        machine={"processor": "p", "cores": "2"},
        corpus=record.CorpusFacts(corpus_sha256, "made", IDS),
        side=record.SideFacts("server", "http://127.0.0.1:1", "", {}),
        limits=record.Limits(),
        load=record.Load(0.5, 0.0, 1.5, 1.0),
        turn=make_turn(scale=scale),
        answers=tuple(make_answer(value) for value in values),
        verdict="passed",
        reasons=(),
    )


def make_rounds(scales=(1.0, 1.1, 0.9), slower=1.5):
    found = [
        record.Round(
            ("a", "b"),
            record.Load(0.5, 0.1, 2.5, 2.0),
            "",
            (make_turn("a", scale), make_turn("b", slower * scale, [record.Differing("c0", 4, "1", "2", 1e-7)])),
        )
        for scale in scales
    ]
    found.append(record.Round(("a", "b"), record.Load(9.0, 0.0, 9.0, 0.0), f"others {HOSTILE}", ()))
    comparisons = judging.compare_sides(found[:-1], ("a", "b"), 0.0)
    judged = judging.judge_rounds(found, comparisons, (), record.Limits(answers=1e-6))
    return record.RoundsRecord(
        created="2026-12-01T00:00:00+00:00",
        machine={"processor": HOSTILE, "cores": "2"},
        corpus=record.CorpusFacts("5" * 64, "made", IDS),
        sides=(record.SideFacts("a", "http://h:1", "", {}), record.SideFacts("b", "http://h:2", "x {port}", {"p": 1})),
        limits=record.Limits(answers=1e-6, load=2.0),
        rounds=tuple(found),
        comparisons=comparisons,
        between=(judging.compare_answers("b", (make_answer(),), (make_answer(0.5),), ("c0",), 0.0),),
        answers={"a": (make_answer(), None), "b": (make_answer(), make_answer())},
        verdict=judged.verdict,
        reasons=judged.reasons,
    )


@pytest.mark.parametrize("found", [make_run(), make_rounds()])
def test_a_record_is_read_back_as_it_was_written(found, tmp_path):
    record_file.write(found, tmp_path / "r.json")

    assert record_file.from_file(tmp_path / "r.json") == found


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_none_is_never_written(value, tmp_path):
    broken = msgspec.structs.replace(make_run(), load=record.Load(0.5, value, 1.0, 0.0))

    with pytest.raises(errors.NotFinite, match=r"record\.load\.own_before"):
        record_file.write(broken, tmp_path / "r.json")
    assert not (tmp_path / "r.json").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-20],
        lambda content: content.replace(b'"own_before":0.0', b'"own_before":null'),
        lambda content: content.replace(b'"own_before":0.0', b'"own_before":NaN'),
        lambda content: content.replace(b"latency-run/1", b"latency-run/2"),
        lambda content: b"[" * 100_000,
        lambda content: b"\xff",
    ],
)
def test_a_broken_record_is_refused(damage):
    with pytest.raises(errors.VerificationError, match="no record"):
        record_file.decode(damage(record_file.encode(make_run())), "r.json")


def test_two_runs_are_put_side_by_side():
    found = comparing.compare(make_run(), make_run(scale=1.5, values=(0.75, 0.4)))
    first = found.lines[0]

    assert (first.concurrency, first.figure, first.a, first.b, first.ratio) == (1, "p50", 2.0, 3.0, 1.5)
    assert {(one.concurrency, one.figure) for one in found.lines if one.ratio == pytest.approx(1 / 1.5)} == {
        (1, "per_s"),
        (4, "per_s"),
    }
    assert found.answers == {"": (1, 2)}
    assert found.warnings == ()


def test_sides_of_two_measurements_are_paired_by_name():
    found = comparing.compare(make_rounds(), make_rounds(scales=(2.0, 2.2, 1.8)))

    assert {one.side for one in found.lines} == {"a", "b"}
    assert {round(one.ratio, 6) for one in found.lines if one.figure == "p95"} == {2.0}
    assert found.warnings[0].startswith("record A failed: b is slower alone")


def test_other_requests_are_not_compared():
    with pytest.raises(errors.VerificationError, match="the second record's corpus: found requests of digest 666"):
        comparing.compare(make_run(), make_run(corpus_sha256="6" * 64))


def test_records_without_a_side_in_common_compare_nothing():
    with pytest.raises(errors.NothingCompared):
        comparing.compare(make_run(), make_rounds())


def test_other_machines_are_said():
    moved = msgspec.structs.replace(make_run(), machine={"processor": "q", "cores": "2"})

    assert comparing.compare(make_run(), moved).warnings == ("the machines differ: processor",)
    assert any(
        "the machines differ" in line for line in comparing.comparison_table(comparing.compare(make_run(), moved))
    )


def test_a_machine_that_was_busier_is_said():
    busier = msgspec.structs.replace(make_run(), load=record.Load(2.5, 0.5, 3.0, 1.0))

    assert comparing.compare(make_run(), busier).warnings == ("others' load was 0.5 in A and 2.0 in B",)


def test_the_table_of_a_run_has_its_figures_and_the_servers_own():
    lines = [line for line, _ in table.run_table(make_run())]

    assert lines[0] == "PASS: http://127.0.0.1:1, 2 requests 555555555555"
    assert lines[1] == "  load 0.50 before and 1.50 after, of it our own 0.00 and 1.00"
    assert lines[3].split() == ["1", "2/2", "2.00", "4.00", "6.00", "3.00", "4.0", "0", "-"]
    assert lines[-1].split() == ["4", "1.50"]


def test_the_table_of_rounds_has_medians_intervals_and_reasons():
    lines = [line for line, _ in table.rounds_table(make_rounds())]

    assert lines[0].startswith("FAIL: a (http://h:1), b (http://h:2)")
    assert lines[1].startswith("  3 rounds count; 1 discarded")
    assert lines[3].split()[:5] == ["a", "1", "6/6", "2.00", "4.00"]
    assert lines[6].split()[-2:] == ["3", "1.0e-07"]
    assert any(line.split()[:3] == ["b", "1", "p50"] and line.endswith("SLOWER") for line in lines)
    assert any("b is slower alone" in line for line in lines)


class Reader(html.parser.HTMLParser):
    """Collects what a page would load or run, and its plots."""

    def __init__(self):
        super().__init__()
        self.tags, self.links = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "xlink:href")]


def test_the_page_needs_no_other_file_and_runs_nothing():
    found = page.render(make_rounds())
    reader = Reader()
    reader.feed(found)

    assert "script" not in reader.tags
    assert all(link.startswith("#") for link in reader.links)
    assert "&lt;script&gt;" in found
    assert "\u202e" not in found
    assert "prefers-color-scheme: dark" in found
    assert found.count('class="plot"') == 3  # two phases, and the ratios of one side


def test_equal_records_give_an_equal_page():
    assert page.render(make_rounds()) == page.render(make_rounds())


def test_a_page_is_made_where_no_round_counts():
    found = make_rounds()
    nothing = msgspec.structs.replace(
        found, rounds=found.rounds[-1:], comparisons=(), verdict="not_compared", reasons=("too few",)
    )

    assert "too few" in page.render(nothing)


def test_a_page_holds_ratios_that_are_far_off():
    found = make_rounds()
    far = intervals.Interval(50.0, 1e-3, 1e6)
    one = msgspec.structs.replace(found.comparisons[0], ratio=far)

    assert "+" in page.render(msgspec.structs.replace(found, comparisons=(one,)))


def test_a_place_that_cannot_be_written_to_is_said(tmp_path):
    with pytest.raises(errors.VerificationError, match="cannot be written"):
        page.write(tmp_path / "none" / "p.html", make_rounds())
