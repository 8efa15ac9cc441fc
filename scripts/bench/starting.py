"""Start `vela serve` with many models: how long until it is ready, its memory, and what it does while nobody asks.

    python scripts/bench/starting.py CHECKPOINT WORK [--models 12] [--tokenizers 4] [--ready-s 90] [--resident-gb 7.0]

CHECKPOINT is a text classifier such as large_checkpoint.py makes. WORK gets, for each model, a bundle for the CPU that
the gate passed in its shortest way, and the store that they are published to; what is there already is used again. Some
models share a tokenizer by its digest, as families do. Digests and golden answers are checked at every start. Prints
JSON; exits with 1 where a start takes longer, or more memory, than allowed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import report
import served

IDLE_S = 5.0
MOST_IDLE = 0.01  # of one core


def make_store(checkpoint: Path, work: Path, models: int, tokenizers: int) -> Path:
    """Export, verify and publish as many models as asked for; give the store."""
    path = work / "store"
    for number in range(models):
        name = f"model-{number + 1:02}"
        variant, bundle = work / f"tokenizer-{number % tokenizers}", work / name
        if (path / "current" / name).exists():
            continue
        _vary_tokenizer(checkpoint, variant, number % tokenizers)
        shutil.rmtree(bundle, ignore_errors=True)
        _vela("export", "--checkpoint", variant, "--for", "cpu", "--model", name, "--out", bundle)
        _vela("verify-graph", bundle, "--checkpoint", variant, "--max-tokens", "64", "--budget", "5")
        _vela("publish", bundle, "--store", path)
    return path


def _vary_tokenizer(checkpoint: Path, variant: Path, number: int) -> None:
    """Link a checkpoint beside a tokenizer.json of the same content and another digest."""
    if variant.exists():
        return
    staging = variant.with_suffix(".part")
    shutil.rmtree(staging, ignore_errors=True)
    shutil.copytree(checkpoint, staging, copy_function=os.link)
    tokenizer = staging / "tokenizer.json"
    content = tokenizer.read_text()
    tokenizer.unlink()
    tokenizer.write_text(content + "\n" * number)
    staging.rename(variant)


def _vela(*arguments: object) -> None:
    command = [str(Path(sys.executable).with_name("vela")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")


def measure(path: Path) -> dict[str, float]:
    """Start a server over a store, and look at it while it is idle."""
    with served.serving(path) as server:
        resident = server.memory_bytes()
        time.sleep(1.0)
        before = server.cpu_s()
        time.sleep(IDLE_S)
        idle = (server.cpu_s() - before) / IDLE_S
        return {"ready_s": round(server.ready_s, 1), "resident_bytes": resident, "idle_cpu_share": round(idle, 4)}


def main() -> int:
    """Prepare, measure, and print the figures; give the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--models", type=int, default=12)
    parser.add_argument("--tokenizers", type=int, default=4)
    parser.add_argument("--ready-s", type=float, default=90.0)
    parser.add_argument("--resident-gb", type=float, default=7.0)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    found = measure(make_store(given.checkpoint, given.work, given.models, given.tokenizers))
    print(
        json.dumps(
            {"models": given.models, "tokenizers": given.tokenizers, **found, "machine": report.describe_machine()}
        )
    )
    within = found["ready_s"] <= given.ready_s and found["resident_bytes"] <= given.resident_gb * 1e9
    return 0 if within and found["idle_cpu_share"] < MOST_IDLE else 1


if __name__ == "__main__":
    sys.exit(main())
