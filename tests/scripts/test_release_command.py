"""`vela release` as a user runs it: killed in the middle, run again, and what it says in the end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vela.graphs import store
from vela.scripts.release import ledger

NAMES = ("tiny-guard", "tiny-intent")
PATIENCE_S = 180.0
POLL_S = 0.05
PROGRAM = [sys.executable, "-c", "from vela.scripts.cli import main; main()", "release"]


def command(checkpoints: dict[str, Path], work: Path, *options: str) -> list[str]:
    folders = [str(checkpoints[name]) for name in NAMES]
    shape = ["--buckets", "64", "--for", "cpu", "--max-tokens", "64", "--jobs", "1"]
    return [*PROGRAM, *folders, "--store", str(work / "store"), "--work", str(work / "work"), *shape, *options]


def state_of(work: Path, name: str) -> ledger.ModelLine | None:
    found = ledger.read_ledger(work / "work")
    return found.line(name) if found else None


def kill_when_published(running: subprocess.Popen, work: Path, name: str) -> None:
    """Kill a release, and all that it started, while the model after this one is on its way."""
    ends = time.monotonic() + PATIENCE_S
    while (line := state_of(work, name)) is None or line.outcome != "published":
        assert running.poll() is None, "the release ended before it was killed"
        assert time.monotonic() < ends
        time.sleep(POLL_S)
    started = children_of(running.pid)
    assert started
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    wait_for_the_end_of(started)


def children_of(pid: int) -> list[int]:
    """Give the processes that a process started and that still run."""
    return [int(text) for path in Path(f"/proc/{pid}/task").glob("*/children") for text in path.read_text().split()]


def wait_for_the_end_of(pids: list[int]) -> None:
    ends = time.monotonic() + PATIENCE_S
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < ends, "a process outlived the release that started it"
        time.sleep(POLL_S)


def test_a_release_that_was_killed_goes_on_and_keeps_what_it_proved(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    with (tmp_path / "log").open("w") as log:
        running = subprocess.Popen(command(checkpoints, tmp_path), stderr=log, stdout=log)
        kill_when_published(running, tmp_path, NAMES[0])
    first, second = (state_of(tmp_path, name) for name in NAMES)
    assert first is not None
    assert second is not None
    assert second.outcome in ("waiting", "running")
    assert list(store.Store.open(tmp_path / "store").models()) == [NAMES[0]]

    done = subprocess.run(command(checkpoints, tmp_path, "--json"), capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    lines = {line["name"]: line for line in found["models"]}
    states = {step["name"]: step["state"] for step in lines[NAMES[0]]["steps"]}
    assert found["runs"] == 2
    assert [lines[name]["outcome"] for name in NAMES] == ["published", "published"]
    assert states == {"source": "done", "export": "kept", "verify cpu": "kept", "publish": "kept"}
    assert lines[NAMES[0]]["published"] == first.published
    assert list(store.Store.open(tmp_path / "store").models()) == sorted(NAMES)
    assert [graph["id"] for name in NAMES for graph in lines[name]["graphs"]] == ["model", "model-unpadded"] * 2
    assert "2 of 2 models published" in (tmp_path / "work" / "ledger.html").read_text()


def test_an_interrupted_release_says_how_it_goes_on(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    running = subprocess.Popen(
        command(checkpoints, tmp_path),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # whoever runs tests in background ignores it
    )
    for line in running.stderr or ():
        if "tiny-guard: export" in line:
            break
    started = children_of(running.pid)
    assert started
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: all of them at once

    said = running.communicate(timeout=PATIENCE_S)[1]

    assert running.returncode == 1
    assert f"interrupted; the same command goes on from {tmp_path / 'work'}" in said
    assert "Traceback" not in said
    wait_for_the_end_of(started)
    assert state_of(tmp_path, NAMES[0]).outcome == "running"
    assert not (tmp_path / "store").exists()


def test_misuse_is_said_before_anything_is_made(vela, tmp_path: Path) -> None:
    store_and_work = ["--store", str(tmp_path / "store"), "--work", str(tmp_path / "work")]

    for arguments, code, words in (
        (["sheild"], 1, "found the model name 'sheild'"),
        (["shield", "shield"], 1, "found the models shield more than once"),
        (["--for", "cpu", "--reduced", "fp16"], 2, "--reduced copies fixed graphs"),
        (["--buckets", "many"], 2, "'many' is no list of numbers"),
        (["--buckets", "1,64"], 2, "1 is below 2"),
        (["--batch", "-3"], 2, "-3 is below 1"),
        (["--memory", "0.5", "shield"], 1, "found shield, reckoned to need"),
        (["--device", "abacus"], 1, "abacus"),
    ):
        found = vela("release", *arguments, *store_and_work)

        assert found[0] == code, arguments
        assert words in found[2]
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("outcomes", "code"), [(("published",), 0), (("published", "not_compared"), 3), (("failed", "not_compared"), 1)]
)
def test_the_exit_code_says_what_became_of_all(outcomes: tuple[str, ...], code: int) -> None:
    from vela.scripts.commands import release

    assert release._exit_code([ledger.ModelLine(str(place), word) for place, word in enumerate(outcomes)]) == code
