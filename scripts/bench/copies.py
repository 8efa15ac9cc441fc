"""Let the gate decide about 16-bit copies on a device, and list its decisions with the figures behind them.

    python scripts/bench/copies.py WORK CHECKPOINT… --device cuda:0 [--buckets 64,128] [--budget MINUTES] [--bundle B…]

Each CHECKPOINT is exported into WORK with copies in both types and judged on the device, FP32 graphs first; each bundle
B was judged there before, and its records are read. Prints JSON: for each copy its verdict and why, how many decisions
agree, how far numbers are apart, and its time beside its FP32 graph's.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import report

from vela.export import bundle_writer, trace, verification
from vela.graphs import bundle as bundles
from vela.graphs import errors, record, verdicts
from vela.serve import buckets
from vela.serve.device import Device
from vela.verify import checkpoint
from vela.verify.options import GateOptions

MAX_TOKENS = 512


def describe(found: record.Record) -> dict[str, Any]:
    """Sum up one record."""
    groups = found.statistics
    return {
        "graph": found.graph_id,
        "precision": found.precision,
        "verdict": found.verdict,
        "cause": found.cause,
        "bar": found.bar,
        "compared": found.compared,
        "agreed": sum(run.agrees for run in found.runs),
        "max_abs_probability": max((group.max_abs_probability for group in groups), default=None),
        "median_abs_probability": max((group.median_abs_probability for group in groups), default=None),
        "max_abs_logit": max((group.max_abs_logit for group in groups), default=None),
        "least_cosine": min((run.cosine for run in found.runs), default=None),
        "speed": None
        if found.speed is None
        else {
            "tokens": found.speed.tokens,
            "ms": round(1000 * found.speed.seconds, 4),
            "fp32_ms": round(1000 * found.speed.exact_seconds, 4),
            "ratio": round(found.speed.ratio, 3),
        },
    }


def judge(
    folder: Path, work: Path, options: GateOptions, lengths: Sequence[int], traces: trace.TraceCache
) -> bundles.Bundle:
    """Export a checkpoint with copies, and judge what a device would run."""
    device = options.device
    form = buckets.EXPORTED_FOR[device.kind]
    plan = bundle_writer.ExportPlan(folder.name, buckets=tuple(lengths), forms=(form,), reduced=("fp16", "bf16"))
    source = checkpoint.Checkpoint.read(folder)
    opened = bundle_writer.export_bundle(source, work / folder.name, plan, traces, lambda _: None)
    verification.verify_folder(opened.folder, folder, options, lambda line: print(line, file=sys.stderr))
    return opened


def decisions(opened: bundles.Bundle, device: Device) -> list[dict[str, Any]]:
    """List what was decided about a bundle's graphs on a device."""
    found = verdicts.read_all_evidence(opened)
    return [describe(one.record) for one in found if one.name == record.record_file(one.record.graph_id, str(device))]


def main() -> None:
    """Judge, and print the decisions."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("checkpoints", type=Path, nargs="*")
    parser.add_argument("--device", required=True)
    parser.add_argument("--buckets", default="64,128")
    parser.add_argument("--budget", type=float, help="minutes for each checkpoint")
    parser.add_argument("--bundle", type=Path, action="append", default=[])
    given = parser.parse_args()
    device, traces = Device.parse(given.device), trace.TraceCache()
    lengths = [int(part) for part in given.buckets.split(",")]
    options = GateOptions(device, max_tokens=MAX_TOKENS, budget_s=given.budget and 60 * given.budget)
    models = {}
    for folder in given.checkpoints:
        try:
            models[folder.name] = decisions(judge(folder, given.work, options, lengths, traces), device)
        except errors.VelaError as problem:
            models[folder.name] = [{"refused": str(problem)}]
    for folder in given.bundle:
        opened = bundles.Bundle.open(folder)
        models[opened.manifest.model.name] = decisions(opened, device)
    found = {
        "command": "python scripts/bench/copies.py WORK CHECKPOINT… --device DEVICE --bundle BUNDLE",
        "machine": report.describe_machine(),
        "device": str(device),
        "models": models,
    }
    print(json.dumps(found, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
