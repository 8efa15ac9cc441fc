"""Fixtures that several folders share: the sample checkpoints, and one released store for the whole run.

The samples are exported, verified and published once for all workers, with a short ladder; tests that alter a bundle
copy it first.
"""

import dataclasses
import fcntl
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

if TYPE_CHECKING:
    from vela.export import trace
    from vela.verify import rows

ROOT = Path(__file__).resolve().parent.parent
CHECKPOINTS = ROOT / "golden" / "checkpoints"
FINISHED = (
    *("tiny-intent", "tiny-guard", "tiny-multilabel", "tiny-pii"),
    *("tiny-grounded", "tiny-embedding", "tiny-reranker"),
)
BUCKETS = (64, 128)
MAX_TOKENS = 192
TEXT_STEP = 4
LAB_SEED = "VELA_LAB_SEED"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run of the fault laboratory (tests/lab) be repeated."""
    parser.addoption("--lab-seed", type=int, default=None, help="what the fault laboratory draws from; drawn itself")


def pytest_configure(config: pytest.Config) -> None:
    """Draw the laboratory's seed once, before workers start, so that all of them have it."""
    given = config.getoption("--lab-seed")
    os.environ[LAB_SEED] = str(given if given is not None else os.environ.get(LAB_SEED) or secrets.randbelow(1 << 31))


def pytest_report_header() -> str:
    """Say what the laboratory draws from."""
    return f"fault laboratory: --lab-seed {os.environ[LAB_SEED]}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker make the released bundles while the others run what does not need them."""
    parts: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        parts["released" in getattr(item, "fixturenames", ())].append(item)
    items[:] = [*parts[True][:1], *parts[False], *parts[True][1:]]


@pytest.fixture(scope="session", autouse=True)
def thin_corpus() -> Iterator[Callable[..., "rows.Corpus"]]:
    """Let the gate read every fourth of its texts, and all of a user's: probes and laws find the faults of these tests.

    Gives the function that reads all of them, for tests of the corpus itself.
    """
    from vela.verify import rows

    whole = rows.read_corpus

    def thinned(extra: Path | None = None) -> rows.Corpus:
        corpus, own = whole(extra), len(whole().texts)
        texts = (*corpus.texts[:own:TEXT_STEP], *corpus.texts[own:])
        return dataclasses.replace(
            corpus, texts=texts, grounded=corpus.grounded[::TEXT_STEP], pairs=corpus.pairs[::TEXT_STEP]
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "read_corpus", thinned)
        yield whole


@pytest.fixture(scope="session", autouse=True)
def little_racing() -> Iterator[float]:
    """Let the gate look for races of threads in a tenth of its time: no graph of these tests has one.

    Gives the whole time, for tests of graphs that do.
    """
    from vela.verify import repeats

    whole = repeats.RACING_SECONDS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "RACING_SECONDS", whole / 10)
        yield whole


@pytest.fixture
def whole_corpus(thin_corpus: Callable[..., "rows.Corpus"], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test read all texts."""
    from vela.verify import rows

    monkeypatch.setattr(rows, "read_corpus", thin_corpus)


@pytest.fixture(scope="session")
def checkpoints() -> dict[str, Path]:
    """The shipped sample checkpoints of finished forms, by name."""
    return {name: CHECKPOINTS / name for name in FINISHED}


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder with `bundles/<name>` and `store`, made once for all workers of this run."""
    base = tmp_path_factory.getbasetemp()
    shared = (base if worker_id == "master" else base.parent) / "released"
    with (shared.parent / "released.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "done").exists():
            _release(shared)
    return shared


@pytest.fixture(scope="session")
def bundles(released: Path) -> dict[str, Path]:
    """Exported and verified bundles by sample name; read only."""
    return {name: released / "bundles" / name for name in FINISHED}


@pytest.fixture(scope="session")
def store(released: Path) -> Path:
    """A store with every finished sample published; read only."""
    return released / "store"


@pytest.fixture(scope="session")
def traces() -> "trace.TraceCache":
    """Traces shared by all tests of a worker."""
    from vela.export import trace

    return trace.TraceCache()


@pytest.fixture
def copied(tmp_path: Path, bundles: dict[str, Path]) -> dict[str, Path]:
    """Private copies of bundles, made when asked for, that a test may damage."""
    return _Copies(tmp_path / "copied", bundles)


class _Copies(dict[str, Path]):
    def __init__(self, folder: Path, bundles: dict[str, Path]) -> None:
        super().__init__()
        self._folder = folder
        self._bundles = bundles

    def __missing__(self, name: str) -> Path:
        self[name] = Path(shutil.copytree(self._bundles[name], self._folder / name))
        return self[name]


@pytest.fixture
def vela(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process, as `vela` does; gives exit code, stdout and stderr."""
    from vela.scripts import cli

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["vela", *arguments])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        output = capsys.readouterr()
        return int(stopped.value.code or 0), output.out, output.err

    return run


def _release(shared: Path) -> None:
    from vela.export.shapes import Shapes
    from vela.graphs import model_table
    from vela.scripts.release import ledger, pipeline, plan
    from vela.serve.device import CPU
    from vela.verify.options import GateOptions

    shutil.rmtree(shared, ignore_errors=True)
    shared.mkdir()
    asked = plan.ReleasePlan(
        models=tuple(plan.Wanted.from_folder(CHECKPOINTS / name) for name in FINISHED),
        shapes=Shapes(buckets=BUCKETS),
        devices=(CPU,),
        gate=GateOptions(max_tokens=MAX_TOKENS),
        work=shared,
        store=shared / "store",
        table=model_table.load_table(),
    )
    progress = os.environ.get("VELA_TEST_PROGRESS")
    lines = pipeline.release_all(asked, print if progress else lambda message: None)
    if ledger.worst_of(lines) != "published":
        raise RuntimeError(f"the samples do not pass: {[line.reason for line in lines if line.reason]}")
    (shared / "lines.json").write_bytes(msgspec.json.encode(lines))
    (shared / "done").touch()
