"""The wheel as users get it, built once for all workers of a run."""

import fcntl
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("export", "graphs", "scripts", "serve", "verify")


@pytest.fixture(scope="session")
def root() -> Path:
    """Give the source tree."""
    return ROOT


@pytest.fixture(scope="session")
def pyproject() -> dict[str, Any]:
    """Give pyproject.toml as it is read by the build."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="session")
def make_once(
    tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Callable[[str, Callable[[Path], None]], Path]:
    """Give a function that makes a folder once, whichever worker comes first: `make_once("wheel", build)`."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent

    def make(name: str, maker: Callable[[Path], None]) -> Path:
        folder = shared / name
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "done").exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                maker(folder)
                (folder / "done").touch()
        return folder

    return make


@pytest.fixture(scope="session")
def wheel(make_once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Give the built wheel."""
    return next(make_once("wheel", build_wheel).glob("*.whl"))


def build_wheel(out: Path) -> None:
    """Build from a copy, so that no build folder of the checkout is reused and none is left there."""
    source = out / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source / name)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
