"""`vela latency` as a shell sees it: corpus, run, rounds, compare, and their exit codes."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from answering_server import AnsweringServer, Reply, answer

from vela.verify.latency import load

QUIET = ("--max-load", "100000")  # whatever else runs where the tests do
SERVER = """
import sys
sys.path.insert(0, sys.argv[1])
import answering_server
answering_server.AnsweringServer(int(sys.argv[2]))
"""


@pytest.fixture
def server() -> Iterator[AnsweringServer]:
    found = AnsweringServer()
    yield found
    found.close()


@pytest.fixture
def corpus(tmp_path: Path, vela) -> str:
    path = tmp_path / "corpus.jsonl"
    vela("latency", "corpus", str(path), "--texts", "8")
    return str(path)


def test_a_corpus_is_written_and_its_digest_said(vela, tmp_path):
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl")]
    said = [vela("latency", "corpus", str(path), "--texts", "12", "--model", "m") for path in paths]

    lines = paths[0].read_text().splitlines()
    assert [status for status, _, _ in said] == [0, 0]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert len(lines) == 13
    assert json.loads(lines[0])["sha256"] in said[0][1]
    assert json.loads(lines[1])["body"]["model"] == "m"


def test_a_run_exits_with_0_and_writes_its_record(vela, corpus, server, tmp_path):
    out = tmp_path / "r.json"

    status, said, _ = vela("latency", "run", corpus, "--url", server.url, "--out", str(out), "--concurrency", "1,2")

    found = json.loads(out.read_bytes())
    assert status == 0
    assert said.splitlines()[0].startswith(f"PASS: {server.url}, 8 requests ")
    assert (found["format"], found["verdict"]) == ("vela-latency-run/1", "passed")
    assert [phase["answered"] for phase in found["turn"]["phases"]] == [8, 8]
    assert len(server.asked) == 8 + 8 + 8


def test_an_answer_under_load_that_is_another_exits_with_1(vela, corpus, server, tmp_path):
    out = tmp_path / "r.json"
    first = json.loads(Path(corpus).read_text().splitlines()[1])["body"]["input"]
    server.script = lambda asked: answer(label="b" if asked.text == first and asked.times == 3 else "a")

    status, _, error = vela("latency", "run", corpus, "--url", server.url, "--out", str(out), "--concurrency", "1,2")

    assert status == 1
    assert "answers are not the ones given alone: c00000 with 2 callers decides otherwise" in error
    assert json.loads(out.read_bytes())["turn"]["differing"][0]["max_abs"] is None


def test_a_server_that_is_not_there_exits_with_1(vela, corpus, server, tmp_path):
    server.close()

    status, _, error = vela("latency", "run", corpus, "--url", server.url, "--out", str(tmp_path / "r.json"))

    assert status == 1
    assert "no connection" in error


def test_rounds_of_two_servers_exit_with_0_and_write_record_and_page(vela, corpus, server, tmp_path):
    out, html = tmp_path / "r.json", tmp_path / "r.html"

    status, said, error = vela(
        *("latency", "rounds", corpus, "--side", f"exact={server.url}", "--side", f"batching={server.url}"),
        *("--options", 'batching={"profile": "batching"}', "--rounds", "3", "--tolerance", "1000", "--same-answers"),
        *("--out", str(out), "--html", str(html), "--concurrency", "1,2", *QUIET),
    )

    found = json.loads(out.read_bytes())
    assert status == 0
    assert "round 3 of 3" in error
    assert "8 of 8 answers equal exact's" in said
    assert [one["order"] for one in found["rounds"]] == [
        ["exact", "batching"],
        ["batching", "exact"],
        ["exact", "batching"],
    ]
    assert found["limits"]["is_same"]
    assert html.read_text().startswith("<!doctype html>")


def test_failing_rounds_exit_with_1_and_still_write_the_record(vela, corpus, server, tmp_path):
    out = tmp_path / "r.json"
    server.script = lambda asked: Reply(b"", 500) if asked.times == 5 else answer()

    status, said, error = vela(
        *("latency", "rounds", corpus, "--side", f"a={server.url}", "--side", f"b={server.url}"),
        *("--rounds", "3", "--tolerance", "1000", "--out", str(out), "--concurrency", "1", *QUIET),
    )

    assert status == 1
    assert said.startswith("FAIL: a ")
    assert "8 requests of the warm-up failed: 8 status 500 without JSON" in error
    assert json.loads(out.read_bytes())["verdict"] == "failed"


def test_a_machine_that_is_never_quiet_exits_with_3(vela, corpus, server, tmp_path, monkeypatch):
    monkeypatch.setattr(load, "one_minute_load", lambda: 50.0)

    status, _, error = vela(
        *("latency", "rounds", corpus, "--side", f"a={server.url}", "--side", f"b={server.url}"),
        *("--rounds", "3", "--max-load", "2", "--out", str(tmp_path / "r.json"), "--patience", "0"),
    )

    assert status == 3
    assert "0 rounds that count where 3 are needed" in error
    assert server.asked == []


def test_a_command_is_started_for_the_measurement(vela, corpus, server, tmp_path):
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    tests = Path(__file__).resolve().parent.parent

    status, said, error = vela(
        *("latency", "rounds", corpus, "--side", f"old={server.url}"),
        *("--side", f"new={sys.executable} {script} {tests} {{port}}", "--rounds", "3", "--tolerance", "1000"),
        *("--out", str(tmp_path / "r.json"), "--concurrency", "1", "--same-answers", *QUIET),
    )

    assert status == 0, error
    assert "8 of 8 answers equal old's" in said


def test_two_records_are_put_side_by_side(vela, corpus, server, tmp_path):
    paths = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for path in paths:
        vela("latency", "run", corpus, "--url", server.url, "--out", path, "--concurrency", "1")

    status, said, _ = vela("latency", "compare", *paths)
    as_json = vela("latency", "compare", *paths, "--json")

    assert status == 0
    assert "8 of 8 answers alone are equal" in said
    assert {one["figure"] for one in json.loads(as_json[1])["lines"]} == {"p50", "p95", "p99", "mean", "per_s"}


def test_records_of_other_requests_are_refused(vela, corpus, server, tmp_path):
    other = tmp_path / "other.jsonl"
    vela("latency", "corpus", str(other), "--texts", "9")
    paths = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for path, asked in zip(paths, (corpus, str(other)), strict=True):
        vela("latency", "run", asked, "--url", server.url, "--out", path, "--concurrency", "1")

    status, _, error = vela("latency", "compare", *paths)

    assert status == 1
    assert "figures of other requests say nothing about each other" in error


@pytest.mark.parametrize(
    "options",
    [
        ("--concurrency", "4,16"),
        ("--concurrency", "1,1"),
        ("--concurrency", "1,x"),
        ("--answer-tolerance", "-1"),
        ("--timeout", "0"),
    ],
)
def test_misuse_of_run_exits_with_2(vela, corpus, tmp_path, options):
    out = str(tmp_path / "r.json")

    assert vela("latency", "run", corpus, "--url", "http://127.0.0.1:1", "--out", out, *options)[0] == 2


@pytest.mark.parametrize("options", [("--out", "none/r.json"), ("--out", "r.json", "--html", "none/r.html")])
def test_a_place_that_cannot_be_written_to_is_found_before_anything_is_asked(
    vela, corpus, server, tmp_path, monkeypatch, options
):
    monkeypatch.chdir(tmp_path)

    status, _, error = vela(
        "latency", "rounds", corpus, "--side", f"a={server.url}", "--side", f"b={server.url}", *options
    )

    assert status == 1
    assert "none/r." in error
    assert server.asked == []


@pytest.mark.parametrize("options", [(), ("--side", "b=http://h:1", "--rounds", "2")])
def test_misuse_of_rounds_exits_with_2(vela, corpus, tmp_path, options):
    out = str(tmp_path / "r.json")

    assert vela("latency", "rounds", corpus, "--side", "a=http://h:1", "--out", out, *options)[0] == 2


def test_a_key_is_sent_and_an_empty_one_is_refused(vela, corpus, server, tmp_path):
    key, out = tmp_path / "key", str(tmp_path / "r.json")
    key.write_text("secret\n")
    asked = (
        "latency",
        "run",
        corpus,
        "--url",
        server.url,
        "--out",
        out,
        "--concurrency",
        "1",
        "--api-key-file",
        str(key),
    )

    with_key = vela(*asked)
    key.write_text("\n")
    without = vela(*asked)

    assert (with_key[0], without[0]) == (0, 2)
    assert {one.headers["authorization"] for one in server.asked} == {"Bearer secret"}
    assert "secret" not in Path(out).read_text()
