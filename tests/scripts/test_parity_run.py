"""`vela parity corpus` and `run`: what is printed, the exit codes, a real server, and a run that was killed."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import parity_samples
import pytest

from vela.graphs import model_table

MAIN = "from vela.scripts import cli; cli.main()"
PATIENCE_S = 60


@pytest.fixture
def table(tmp_path, checkpoints) -> str:
    path = tmp_path / "table.json"
    path.write_bytes(model_table.encode_table(parity_samples.sample_table(checkpoints)))
    return str(path)


@pytest.fixture
def jobs_file(vela, tmp_path, table) -> str:
    path = str(tmp_path / "a.jobs.json")
    assert vela("parity", "corpus", path, "--jobs", "cpu", "--table", table, "--texts", "4")[0] == 0
    return path


@pytest.fixture
def run(vela, tmp_path, table, jobs_file) -> Callable[..., tuple[int, str, str]]:
    """Record into a file of this test's folder, without load unless a test says otherwise."""

    def call(side: str, out: str, *arguments: str) -> tuple[int, str, str]:
        load = () if "--load-seconds" in arguments else ("--load-seconds", "0")
        named = ("--side", side, "--out", str(tmp_path / out), "--table", table)
        return vela("parity", "run", jobs_file, *named, *load, *arguments)

    return call


@pytest.fixture
def server(store) -> Iterator[str]:
    """The address of a process that serves all samples."""
    command = [sys.executable, "-c", MAIN, "serve", "--store", str(store), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("ready: "), line + process.stderr.read()
            yield line.rsplit(" ", 1)[-1].strip()
        finally:
            process.kill()


def answers_of(path: Path) -> dict[tuple[str, str], dict]:
    found = [json.loads(line) for line in path.read_bytes().splitlines()[1:]]
    return {(one["job"], one["id"]): one for one in found if "id" in one}


def test_a_corpus_says_what_is_asked_and_is_the_same_each_time(vela, tmp_path, table):
    paths = [tmp_path / name for name in ("a.jobs.json", "b.jobs.json")]

    status, out, err = vela("parity", "corpus", str(paths[0]), "--jobs", "amd", "--table", table, "--texts", "3")
    vela("parity", "corpus", str(paths[1]), "--jobs", "amd", "--table", table, "--texts", "3")

    assert (status, err) == (0, "")
    assert "  tiny-pii: 3 inputs, tokens, reject at 8,192 tokens" in out.splitlines()
    assert out.splitlines()[-1].startswith(f"wrote 7 jobs to {paths[0]}, inputs sha256 ")
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_server_answers_to_the_bit_as_its_bundles_do(vela, run, server, bundles, tmp_path):
    one = run("bundle", "bundle.jsonl", "--bundles", str(bundles["tiny-pii"].parent))
    other = run("http", "http.jsonl", "--url", server, "--load-seconds", "0.05")
    record = tmp_path / "record.json"
    files = (str(tmp_path / f"{name}.jsonl") for name in ("bundle", "http"))
    compared = vela("parity", "compare", *files, "--out", str(record))

    assert (one[0], other[0], compared[0]) == (0, 0, 0)
    assert f"recorded {server} in {tmp_path}/http.jsonl" in other[1]
    found, expected = (answers_of(tmp_path / f"{name}.jsonl") for name in ("http", "bundle"))
    assert {key: one.get("result") for key, one in found.items()} == {
        key: one.get("result") for key, one in expected.items()
    }
    assert len(found) == 8 * 4
    jobs = json.loads(record.read_bytes())["jobs"]
    assert all(job["throughput"]["runtime"]["concurrency"] == 4 and not job["throughput"]["legacy"] for job in jobs)
    assert {each["max_abs_delta"] for each in jobs} == {0.0}


def test_a_run_that_was_killed_is_taken_up_by_the_same_command(run, jobs_file, table, store, tmp_path):
    out = tmp_path / "killed.jsonl"
    command = [sys.executable, "-c", MAIN, "parity", "run", jobs_file, "--side", "bundle", "--store", str(store)]
    command += ["--table", table, "--out", str(out), "--load-seconds", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = process.stderr.readline()
        process.kill()
    left = [path.name for path in tmp_path.iterdir() if "killed" in path.name]
    partial = (tmp_path / "killed.jsonl.partial").read_bytes()
    before = partial[: partial.rindex(b"\n") + 1]
    (tmp_path / "killed.jsonl.partial").write_bytes(before + b'{"job":"tiny-guard","id":"p0')

    status, printed, _ = run("bundle", "killed.jsonl", "--store", str(store))

    assert told == "tiny-intent: 4 of 4 asked\n"
    assert left == ["killed.jsonl.partial"]
    assert status == 0
    assert "  tiny-intent: 4 answered, 0 rejected, 4 of them before" in printed.splitlines()
    assert out.read_bytes().startswith(before)
    assert len(answers_of(out)) == 8 * 4


def test_a_foreign_graph_is_asked_by_name(run, bundles, checkpoints):
    graph = f"tiny-guard={bundles['tiny-guard'] / 'model.onnx'}"
    root = str(checkpoints["tiny-guard"].parent)

    status, out, _ = run("onnx", "a.jsonl", "--graph", graph, "--checkpoints", root, "--jobs-only", "tiny-guard")
    lacks = run("onnx", "b.jsonl", "--graph", graph, "--checkpoints", root)

    assert status == 0
    assert "recorded onnx model.onnx onnxruntime" in out
    assert lacks[0] == 1
    assert "--graph: found tiny-guard; expected samples/Vela-tiny-intent as one of tiny-intent" in lacks[2]


def test_a_checkpoint_is_asked_in_pytorch(run, checkpoints, tmp_path):
    root = str(checkpoints["tiny-guard"].parent)

    status, out, err = run("torch", "a.jsonl", "--checkpoints", root, "--jobs-only", "tiny-guard, tiny-reranker")

    assert status == 0
    assert out.splitlines()[-1].startswith("recorded torch ")
    assert "tiny-guard: 4 of 4 asked" in err
    assert {job for job, _ in answers_of(tmp_path / "a.jsonl")} == {"tiny-guard", "tiny-reranker"}


def test_a_file_that_is_there_a_job_that_is_not_and_no_server_exit_with_1(run, tmp_path, store):
    (tmp_path / "there").write_text("")

    there = run("bundle", "there", "--store", str(store))
    job = run("bundle", "a", "--store", str(store), "--jobs-only", "shield")
    gone = run("http", "b", "--url", "http://127.0.0.1:1")

    assert [there[0], job[0], gone[0]] == [1, 1, 1]
    assert "or remove it" in there[2]
    assert "no job 'shield'" in job[2]
    assert "no answer" in gone[2]
    assert not (tmp_path / "b.partial").exists()


@pytest.mark.parametrize(
    ("side", "arguments", "said"),
    [
        ("torch", (), "--side torch needs --checkpoints"),
        ("bundle", (), "--side bundle needs --bundles or --store"),
        ("bundle", ("--bundles", "DIR", "--store", "DIR"), "--side bundle needs --bundles or --store"),
        ("onnx", ("--checkpoints", "DIR"), "--side onnx needs --graph and --checkpoints"),
        ("onnx", ("--checkpoints", "DIR", "--graph", "a=/no/file"), "expected NAME=FILE"),
        ("onnx", ("--checkpoints", "DIR", "--graph", "FILE"), "expected NAME=FILE"),
        ("http", ("--url", "http://a", "--store", "DIR"), "--store does not go with --side http"),
        ("torch", ("--checkpoints", "DIR", "--device", "cuda:0"), "--device does not go with --side torch"),
        ("http", ("--url", "http://a", "--unverified"), "--unverified does not go with --side http"),
        ("http", ("--url", "http://a", "--api-key-file", "FILE"), "no key of printable ASCII"),
        ("http", ("--url", "http://a", "--load-seconds", "-1"), "--load-seconds"),
        ("grpc", (), "--side"),
    ],
)
def test_misuse_exits_with_2_and_says_why(run, tmp_path, side, arguments, said):
    (tmp_path / "empty").write_text("\n")
    places = {"DIR": str(tmp_path), "FILE": str(tmp_path / "empty")}

    status, _, err = run(side, "out", *(places.get(word, word) for word in arguments))

    assert status == 2
    assert said in err


@pytest.mark.parametrize(
    "arguments", [["corpus"], ["corpus", "a"], ["corpus", "a", "--jobs", "tpu"], ["run", "missing"]]
)
def test_misuse_of_either_command_exits_with_2(vela, arguments):
    assert vela("parity", *arguments)[0] == 2
