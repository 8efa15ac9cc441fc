"""Measure the export of one 307M checkpoint: time, peak memory, size of the graphs, copies of the weights.

    python scripts/bench/export_large.py WORK [--buckets 16,32,64,128,256,512,1024,2048,4096,8192]

Makes the checkpoint in WORK when it is not there, exports it in a process of its own, prints JSON. The bounds that
the project holds itself to: graphs at most 2 % of the weights, peak RSS below 4 GB, no second copy of the weights.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

TEN_BUCKETS = "16,32,64,128,256,512,1024,2048,4096,8192"


def measure(work: Path, buckets: str) -> dict[str, object]:
    """Export in a subprocess and measure it."""
    checkpoint, out = work / "checkpoint", work / "bundle"
    if not (checkpoint / "tokenizer_config.json").exists():
        subprocess.run([sys.executable, Path(__file__).with_name("large_checkpoint.py"), checkpoint], check=True)
    shutil.rmtree(out, ignore_errors=True)
    command: list[str | Path] = [Path(sys.executable).with_name("vela"), "export"]
    command += ["--checkpoint", checkpoint, "--out", out]
    started = time.monotonic()
    exporting = subprocess.Popen([*command, "--buckets", buckets], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(exporting.pid, 0)  # its own peak, not that of whatever made the checkpoint
    duration_s = time.monotonic() - started
    if status:
        raise SystemExit(f"vela export ended with status {status}")
    graphs = sorted(out.glob("*.onnx"))
    graph_bytes = sum(path.stat().st_size for path in graphs)
    weights = out / "model.safetensors"
    return {
        "graphs": len(graphs),
        "graph_bytes": graph_bytes,
        "weight_bytes": weights.stat().st_size,
        "graphs_of_weights_percent": round(100 * graph_bytes / weights.stat().st_size, 3),
        "weights_are_the_checkpoints_file": os.path.samefile(weights, checkpoint / "model.safetensors"),
        "duration_s": round(duration_s, 1),
        "peak_rss_bytes": usage.ru_maxrss * 1024,
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "onnxscript")},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path)
    parser.add_argument("--buckets", default=TEN_BUCKETS)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    print(json.dumps(measure(arguments.work, arguments.buckets), indent=1))
