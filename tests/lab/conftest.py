"""What the laboratory's tests share: the seed of this run, one judge for a worker, and the released bundles."""

import os
from pathlib import Path

import pytest
from lab import judging, trial
from lab.catalogue import Scene

from vela.verify import repeats

# Short texts and a sixteenth of them, so that a fault costs a second; scripts/bench/faults.py asks more of more graphs.
MAX_TOKENS = 48
BUCKET = 64
SHARE = 16


@pytest.fixture(scope="session")
def seed() -> int:
    """What is drawn is drawn from this; `--lab-seed` sets it."""
    return int(os.environ["VELA_LAB_SEED"])


@pytest.fixture(autouse=True)
def whole_racing(little_racing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the gate look for races as long as it does for users."""
    monkeypatch.setattr(repeats, "RACING_SECONDS", little_racing)


@pytest.fixture(scope="session")
def judge() -> judging.Judge:
    """Remembers the references of a worker."""
    return judging.Judge(share=SHARE)


@pytest.fixture(scope="session")
def ground(released: Path, checkpoints: dict[str, Path]) -> trial.Ground:
    """The released bundles, with their records; read only."""
    return trial.Ground(released / "bundles", next(iter(checkpoints.values())).parent)


@pytest.fixture(scope="session")
def scenes() -> dict[str, tuple[Scene, ...]]:
    """Graphs of the released bundles that faults are tried on, by sample: a dynamic one and a fixed one."""
    samples = ("intent", "guard", "multilabel", "pii", "grounded", "embedding", "reranker")
    made = {}
    for name in (f"tiny-{sample}" for sample in samples):
        is_pair = name in ("tiny-grounded", "tiny-reranker")  # pairs are longer
        tokens = 2 * BUCKET if is_pair else MAX_TOKENS
        bucket = 2 * BUCKET if name == "tiny-grounded" else BUCKET
        made[name] = (Scene(name, "model", tokens), Scene(name, f"portable-b1-s{bucket}", tokens))
    return made
