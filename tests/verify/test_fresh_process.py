"""Fresh processes are asked what the gate asked, number for number, and one that dies is an answer too."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from vela.graphs import bundle
from vela.serve import engine
from vela.serve.device import CPU
from vela.verify import cases, engine_checks, fresh_process, runs

SAMPLE, GRAPH = "tiny-intent", "model"
PAD_ID = 0


def case(*ids: int) -> cases.Case:
    return cases.Case("c", ids, "text", 0, ())


@pytest.fixture
def asked() -> runs.Run:
    return runs.Run(case(2, 9, 8, 3), (case(2, 5, 3), case(2, 6, 7, 8, 3)), pad_to=40, row=1)


def request_for(folder: Path, run: runs.Run) -> fresh_process.Request:
    subject = fresh_process.Bundled(str(folder))
    return fresh_process.Request.about(subject, PAD_ID, CPU, engine.SessionOptions(threads=1), {GRAPH: run})


def test_a_job_becomes_the_same_rows_again(asked) -> None:
    job = msgspec.json.decode(msgspec.json.encode(fresh_process.Job.from_run(GRAPH, asked)), type=fresh_process.Job)

    made = job.to_run()

    assert made.rows == asked.rows
    assert (made.row, made.pad_to, made.case.ids) == (asked.row, asked.pad_to, asked.case.ids)


def test_a_fresh_process_gives_every_bit_of_the_answer(bundles, asked) -> None:
    opened = bundle.Bundle.open(bundles[SAMPLE])
    graph = opened.graph(GRAPH)
    session = engine.Session.open(opened.path(graph.file), graph, CPU, engine.SessionOptions(threads=1))
    expected = engine_checks.answer(session, asked, opened.manifest.tokenizer.pad_id)

    (found,) = fresh_process.ask_fresh(request_for(opened.folder, asked), {GRAPH: asked}, 1)[GRAPH]

    assert found.problem == ""
    assert found.answer is not None
    assert found.answer.keys() == expected.keys()
    assert all(np.array_equal(found.answer[name], expected[name]) for name in expected)


def test_a_process_that_died_says_how(tmp_path, asked) -> None:
    (found,) = fresh_process.ask_fresh(request_for(tmp_path / "nowhere", asked), {GRAPH: asked}, 1)[GRAPH]

    assert found.answer is None
    assert "ended with 1" in found.problem
    assert "nowhere" in found.problem


def test_a_graph_that_does_not_load_there_says_why(copied, asked) -> None:
    folder = copied[SAMPLE]
    (folder / "model.onnx").write_bytes(b"nonsense")

    (found,) = fresh_process.ask_fresh(request_for(folder, asked), {GRAPH: asked}, 1)[GRAPH]

    assert found.answer is None
    assert "load error" in found.problem
