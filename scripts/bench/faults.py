"""Run the whole fault laboratory: every fault in every form of graph, and honest variations that must pass.

    python scripts/bench/faults.py WORK [--lab-seed N] [--jobs 2] [--faults '*window*'] [--record FILE]

The samples are exported once, in every form, shape and storage, to WORK. First every honest variation is judged, then
every fault of tests/lab is planted in a copy of a bundle and judged, all checks to the end. A run that is interrupted
goes on from what WORK says is done. Prints the matrix of faults and checks, what was let through, and which check is
needed by which fault; with `--record` it is also written as JSON. Exits with 1 where a variation did not pass, or a
fault got through that does not say why.

The faults and how they are judged are in tests/lab, which shares no code with the gate.
"""

import argparse
import concurrent.futures
import fnmatch
import functools
import json
import multiprocessing
import secrets
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))  # in the workers too, which read this file again

from lab import catalogue, judging, ledger, matrix, trial, variations  # noqa: E402

from vela.export import trace  # noqa: E402

CHECKPOINTS = ROOT / "golden" / "checkpoints"
SAMPLES = ("intent", "guard", "multilabel", "pii", "grounded", "embedding", "reranker")
SHARE = 8  # every eighth text of the corpus is asked, and all of it where a fault got through that
VERSIONS = ("vela-onnx", "onnx", "torch", "transformers", "numpy")
Judged = list[tuple[variations.Variation, judging.Outcome]]


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Export, judge variations, try faults; give the record."""
    work, seed = arguments.work, arguments.lab_seed
    _progress(f"fault laboratory: --lab-seed {seed}")
    _export(work)
    kept = ledger.Ledger(work, seed)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(arguments.jobs, mp_context=context) as pool:
        judged = _judge_variations(work, kept, pool)
        _require_publishable(work)
        rows = _try_faults(work, kept, pool, arguments.faults)
    return {
        "command": "python scripts/bench/faults.py WORK",
        "lab_seed": seed,
        "versions": variations.versions(VERSIONS),
        "variations": _describe(judged),
        **matrix.as_json(rows),
        "lines": matrix.as_lines(rows),
        "table": matrix.as_table(rows),
    }


def _judge_variations(work: Path, kept: ledger.Ledger, pool: concurrent.futures.Executor) -> Judged:
    """Judge every bundle whose variations are not in the ledger yet."""
    names = [(storage, f"tiny-{sample}") for sample in SAMPLES for storage in variations.STORAGES]
    done = kept.variations()
    missing = [name for name in names if not set(variations.plan(work, *name)) <= set(done)]
    for found in _watched("bundles of variations", missing, pool.map(functools.partial(vary, work), missing)):
        for variation, outcome in found:
            kept.add_variation(variation, outcome)
            done[variation] = outcome
    return list(done.items())


def _try_faults(work: Path, kept: ledger.Ledger, pool: concurrent.futures.Executor, pattern: str) -> list[trial.Row]:
    """Try every fault that is not in the ledger yet."""
    trials = [(fault.name, scene) for fault, scene in catalogue.all_trials() if fnmatch.fnmatch(fault.name, pattern)]
    done = kept.rows()
    missing = [chosen for chosen in trials if (chosen[0], str(chosen[1])) not in done]
    for row in _watched("trials", missing, pool.map(functools.partial(attempt, work, kept.seed), missing)):
        kept.add_row(row)
        done[row.fault, row.scene] = row
    return [done[name, str(scene)] for name, scene in trials]


def vary(work: Path, name: tuple[variations.Storage, str]) -> Judged:
    """Judge the variations of one exported bundle, in a worker."""
    planned = list(variations.plan(work, *name))
    return list(variations.judge(planned, work, CHECKPOINTS, _judge()).items())


def attempt(work: Path, seed: int, chosen: tuple[str, catalogue.Scene]) -> trial.Row:
    """Try one fault, in a worker."""
    fault = next(fault for fault in catalogue.FAULTS if fault.name == chosen[0])
    with tempfile.TemporaryDirectory(prefix="lab-") as folder:
        ground = trial.Ground(work / "reference", CHECKPOINTS)
        return trial.try_fault(fault, chosen[1], ground, Path(folder), _judge(), seed)


@functools.cache
def _judge() -> judging.Judge:
    """Give this worker's judge, which remembers references."""
    return judging.Judge(share=SHARE)


def _export(work: Path) -> None:
    """Export what is not there yet; the encoder is traced once for all samples."""
    traces = trace.TraceCache()
    for sample in SAMPLES:
        name = f"tiny-{sample}"
        missing = [storage for storage in variations.STORAGES if not (work / storage / name).exists()]
        if missing:
            _progress(f"export {name}")
            variations.export_all([CHECKPOINTS / name], work, traces, storages=missing)


def _require_publishable(work: Path) -> None:
    """Faults of publishing are worth nothing unless the untouched bundle can be published."""
    with tempfile.TemporaryDirectory(prefix="lab-") as folder:
        outcome = judging.publish(work / "reference" / catalogue.SCENES[0].sample, Path(folder) / "store")
    if not outcome.is_let_through:
        raise SystemExit(f"the untouched bundle cannot be published: {outcome.cause}")


def _describe(judged: Judged) -> dict[str, Any]:
    digests = {variation.digest(outcome.graph_sha256) for variation, outcome in judged}
    short = [
        f"{variation}: {outcome.verdict}, {outcome.cause}"
        for variation, outcome in judged
        if not outcome.is_let_through
    ]
    varied = ("sample", "storage", "batch", "bucket", "optimise", "threads", "runtime")
    return {
        "distinct": len(digests),
        "passed": len(judged) - len(short),
        "not_passed": short,
        "compared": sum(outcome.compared for _, outcome in judged),
        "varied": {name: sorted({getattr(variation, name) for variation, _ in judged}) for name in varied},
    }


def _watched(what: str, planned: Sequence[object], results: Iterable[Any]) -> Iterable[Any]:
    started = time.monotonic()
    for index, result in enumerate(results, start=1):
        if index % 10 == 0 or index == len(planned):
            _progress(f"{what}: {index} of {len(planned)} after {time.monotonic() - started:.0f} s")
        yield result


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("work", type=Path, help="folder for exported bundles; what is there is used again")
    parser.add_argument("--lab-seed", type=int, default=secrets.randbelow(1 << 31), help="what is drawn from")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--faults", default="*", help="a pattern for the faults' names")
    parser.add_argument("--record", type=Path, help="where the matrix is written as JSON")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    """Run, print, and say whether the gate held."""
    arguments = read_arguments(words)
    found = run(arguments)
    print("\n".join([*found.pop("lines"), "", *found.pop("table"), ""]))
    print(json.dumps(found["variations"] | found["summary"], indent=1))
    if arguments.record:
        arguments.record.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    explained = {fault.name for fault in catalogue.FAULTS if fault.beyond}
    missed = [row["fault"] for row in found["rows"] if row["verdict"] == "passed" and row["fault"] not in explained]
    return 1 if missed or found["variations"]["not_passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
