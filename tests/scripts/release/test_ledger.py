"""The ledger: what a run leaves for the next, what stands while it runs, and how it is shown."""

from pathlib import Path

import crews
import msgspec
import pytest

from vela.graphs import errors, lock
from vela.scripts.release import board, ledger, page, run, workers

ROOM = 1 << 40
CREW = workers.Crew(1, ROOM, (0,), crews.publishes)


def verdict(word="passed", cause="") -> ledger.GraphVerdict:
    return ledger.GraphVerdict(word, cause, 9, 1e-6, 2e-6, "18 of 19", 1.5, "verification/model.cpu.json", "0" * 64)


def graph(name="model", precision="fp32", **verdicts) -> ledger.GraphLine:
    return ledger.GraphLine(name, "portable", precision, None, None, 100, "f" * 64, verdicts)


def line(name="a", outcome="published", *graphs, **fields) -> ledger.ModelLine:
    return ledger.ModelLine(name, outcome, graphs=graphs, **fields)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([], "waiting"),
        (["published"], "published"),
        (["published", "waiting"], "waiting"),
        (["published", "running"], "running"),
        (["running", "not_compared"], "not_compared"),
        (["not_compared", "failed", "published"], "failed"),
    ],
)
def test_models_together_are_as_good_as_the_worst(outcomes: list, expected: str) -> None:
    assert ledger.worst_of([line(str(index), outcome) for index, outcome in enumerate(outcomes)]) == expected


def test_a_refused_copy_fails_the_release_of_a_published_model() -> None:
    copy = graph("cuda-fp16-b1-s16", "fp16", **{"cuda:0": verdict("failed", "slower")})

    assert ledger.worst_of([line("a", "published", graph(cpu=verdict()), copy)]) == "failed"


def test_a_run_leaves_a_ledger_that_the_next_one_counts_on(tmp_path: Path) -> None:
    run.release(crews.plan_of("a b", tmp_path), CREW, lambda message: None)

    found = run.release(crews.plan_of("b c", tmp_path), CREW, lambda message: None)

    assert found == ledger.read_ledger(tmp_path)
    assert found.runs == 2
    assert {entry.name: entry.outcome for entry in found.models} == dict.fromkeys("abc", "published")


def test_a_run_that_ends_early_keeps_what_an_earlier_one_proved(tmp_path: Path) -> None:
    first = run.release(crews.plan_of("a", tmp_path), CREW, lambda message: None)
    proven = msgspec.structs.replace(
        first.models[0], graphs=(graph(cpu=verdict()),), steps=(ledger.Step("verify cpu", "done", 9.0, "key"),)
    )
    ledger.write_ledger(tmp_path, msgspec.structs.replace(first, models=(proven,)))

    book = run._Book.open(crews.plan_of("a", tmp_path))
    book.note(line("a", "running", graph(), steps=(ledger.Step("export", "kept"),)))

    (kept,) = ledger.read_ledger(tmp_path).models
    assert kept.graphs[0].verdicts == {"cpu": verdict()}
    assert [(step.name, step.key) for step in kept.steps] == [("export", ""), ("verify cpu", "key")]


@pytest.mark.parametrize("ending", ["failed", "not_compared"])
def test_a_model_that_ends_badly_takes_nothing_of_what_was_proved_before(tmp_path: Path, ending: str) -> None:
    first = run.release(crews.plan_of("a", tmp_path), CREW, lambda message: None)
    proven = msgspec.structs.replace(
        first.models[0],
        published="d",
        graphs=(graph(cpu=verdict()),),
        steps=(ledger.Step("verify cpu", "done", 9, "k"),),
    )
    ledger.write_ledger(tmp_path, msgspec.structs.replace(first, models=(proven,)))

    book = run._Book.open(crews.plan_of("a", tmp_path))
    book.note(line("a", ending, reason="the Hub was busy", steps=(ledger.Step("source", "failed"),)))

    (kept,) = ledger.read_ledger(tmp_path).models
    assert (kept.outcome, kept.reason, kept.published) == (ending, "the Hub was busy", "d")
    assert kept.step("verify cpu").key == "k"
    assert kept.graphs[0].verdicts == {"cpu": verdict()}


def test_a_killed_worker_takes_nothing_of_what_was_proved_before(tmp_path: Path) -> None:
    first = run.release(crews.plan_of("b", tmp_path), CREW, lambda message: None)
    proven = msgspec.structs.replace(first.models[0], steps=(ledger.Step("verify cpu", "done", 9, "k"),))
    ledger.write_ledger(tmp_path, msgspec.structs.replace(first, models=(proven,)))

    crew = workers.Crew(1, ROOM, (0,), crews.is_killed)
    (kept,) = run.release(crews.plan_of("b", tmp_path), crew, lambda message: None).models

    assert kept.outcome == "failed"
    assert kept.step("verify cpu").key == "k"


def test_a_run_that_has_not_come_to_a_model_does_not_say_that_it_is_published(tmp_path: Path) -> None:
    run.release(crews.plan_of("a b", tmp_path), CREW, lambda message: None)

    book = run._Book.open(crews.plan_of("a b", tmp_path))
    book.note(line("a", "running"))

    assert [entry.outcome for entry in ledger.read_ledger(tmp_path).models] == ["running", "waiting"]


def test_the_page_is_there_after_a_run_that_was_refused(tmp_path: Path) -> None:
    asked = crews.plan_of("a", tmp_path, weight_bytes=1 << 60)

    with pytest.raises(errors.ExportError, match="reckoned to need"):
        run.release(asked, CREW, lambda message: None)

    assert "0 of 1 models published" in (tmp_path / "ledger.html").read_text()


def test_a_place_that_cannot_be_written_is_said() -> None:
    with pytest.raises(errors.StoreError, match="a place that cannot be written to"):
        run.release(crews.plan_of("a", Path("/proc/nowhere")), CREW, lambda message: None)


def test_verdicts_of_another_file_of_that_name_are_not_kept(tmp_path: Path) -> None:
    first = run.release(crews.plan_of("a", tmp_path), CREW, lambda message: None)
    other = msgspec.structs.replace(graph(cpu=verdict()), sha256="0" * 64)
    ledger.write_ledger(
        tmp_path, msgspec.structs.replace(first, models=(msgspec.structs.replace(first.models[0], graphs=(other,)),))
    )

    book = run._Book.open(crews.plan_of("a", tmp_path))
    book.note(line("a", "running", graph(), steps=(ledger.Step("export", "done"),)))

    assert ledger.read_ledger(tmp_path).models[0].graphs[0].verdicts == {}


def test_a_damaged_ledger_is_refused_and_left_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "ledger.json").write_text('{"format": "vela-release/1", "models": "many"}')

    with pytest.raises(errors.StoreError, match="a ledger that cannot be used"):
        run.release(crews.plan_of("a", tmp_path), CREW, lambda message: None)
    assert "many" in (tmp_path / "ledger.json").read_text()


def test_two_releases_do_not_work_in_one_folder(tmp_path: Path) -> None:
    with (
        lock.hold(tmp_path / run.LOCK_FILE, 0.0),
        pytest.raises(errors.StoreError, match="found another release at work in this folder"),
    ):
        run.release(crews.plan_of("a", tmp_path), CREW, lambda message: None)


def test_the_table_names_every_model_and_graph_and_why_one_is_not_published() -> None:
    lines = [
        line("guard", "published", graph(cpu=verdict()), graph("portable-b1-s64"), published="c0ffee" * 10),
        line("shield", "failed", graph(cpu=verdict("failed", "other weights")), reason="41 of 138 tensors are others"),
    ]

    shown = [text for text, _ in board.release_table(lines, with_graphs=True)]

    assert shown[0] == "1 of 2 models published, 3 graphs"
    assert "  guard   published       2     1/1         9   1.0e-06    18/19      0.0        -  c0ffeec0ffee" in shown
    assert any(text.split()[:3] == ["portable-b1-s64", "-", "not"] for text in shown)
    assert shown[-1] == "  shield: 41 of 138 tensors are others"


def test_the_page_shows_what_the_ledger_holds_and_escapes_it() -> None:
    hostile = line("a", "failed", graph(cpu=verdict("failed")), reason="<script>alert(1)</script> found")
    book = ledger.Ledger(ledger.FORMAT, "now", "now", 1.0, 3, ("cpu",), "a table", {}, (hostile, line("b")))

    shown = page.render(book)

    assert "1 of 2 models published" in shown
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown
    assert shown.count("<h2") == 3
