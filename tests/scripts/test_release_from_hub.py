"""A release whose checkpoint comes from a Hub that fails: nothing is published until every byte is the pinned one."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hub_server
import pytest

from vela.export.standins import family
from vela.graphs import model_table, store
from vela.scripts.release import ledger

WEIGHTS = "model.safetensors"
Release = Callable[[], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def standins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("hub") / "family"
    family.write_family(out, lambda message: None)
    return out


@pytest.fixture
def server(standins: Path) -> Iterator[hub_server.HubServer]:
    with hub_server.serving() as running:
        running.put(model_table.read_table(standins / "models.json").find("shield"), standins / "shield")
        yield running


@pytest.fixture
def release(standins: Path, server: hub_server.HubServer, tmp_path: Path) -> Release:
    def run() -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-c", "from vela.scripts.cli import main; main()", "release", "Shield"]
        places = ["--table", standins / "models.json", "--store", tmp_path / "store", "--work", tmp_path / "work"]
        shape = ["--for", "cpu", "--max-tokens", "64"]
        environment = {**os.environ, "HF_ENDPOINT": server.address, "HF_HOME": str(tmp_path / "hf")}
        return subprocess.run([*program, *places, *shape], capture_output=True, text=True, check=False, env=environment)

    return run


def test_nothing_is_published_of_a_hub_that_fails_and_the_release_goes_on_from_what_came(
    release: Release, server: hub_server.HubServer, tmp_path: Path
) -> None:
    for fault, words in (
        ("wrong byte", "as pinned"),
        ("truncated", "broke off after"),
    ):
        server.faults = {WEIGHTS: [f"{fault} always"]}

        failed = release()

        line = ledger.read_ledger(tmp_path / "work").line("shield")
        assert failed.returncode == 1
        assert words in line.reason
        assert words in failed.stdout
        assert (line.outcome, line.step("source").state, line.graphs) == ("failed", "failed", ())
        assert "Traceback" not in failed.stderr
        assert not (tmp_path / "store").exists()
        assert not (tmp_path / "work" / "bundles").exists()
    server.faults = {}
    server.asked.clear()

    done = release()

    assert done.returncode == 0, done.stdout
    assert [(name, found != "") for name, found in server.asked if name == WEIGHTS] == [(WEIGHTS, True)]
    assert "config.json" not in {name for name, _ in server.asked}
    assert list(store.Store.open(tmp_path / "store").models()) == ["shield"]
    card = store.Store.open(tmp_path / "store").models()["shield"].open().manifest.model
    assert card.repository == "vela-standins/Vela-1.0-Encoder-Standin-Shield"
