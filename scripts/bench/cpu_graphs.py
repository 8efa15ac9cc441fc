"""Make the graphs that cpu.py times: Vela's bundle, and the graph that a user would make without Vela.

A process of its own, so that what an export leaves in memory is not counted as an engine's.

    python scripts/bench/cpu_graphs.py bundle CHECKPOINT FOLDER
    python scripts/bench/cpu_graphs.py plain CHECKPOINT FOLDER [--tokens 8192]
"""

import argparse
import importlib.metadata
import json
import shutil
import sys
from pathlib import Path

import peers
import torch
from transformers import AutoModelForSequenceClassification

from vela.export import bundle_writer, trace
from vela.graphs import contract, digests
from vela.verify import checkpoint

MADE_FROM_FILE = "made_from.json"
EXPORTERS = ("torch", "transformers", "onnxscript", "onnx")
EXAMPLE_SHAPE = (2, 48)  # no size of 0 or 1, which torch.export would take for a constant


def export_bundle(source: checkpoint.Checkpoint, folder: Path) -> None:
    """Export the two dynamic graphs afresh: an old bundle would time an old Vela."""
    shutil.rmtree(folder, ignore_errors=True)
    plan = bundle_writer.ExportPlan("bench", buckets=())
    bundle_writer.export_bundle(source, folder, plan, trace.TraceCache(), _report)


def export_plain(source: checkpoint.Checkpoint, folder: Path, tokens: int | None = None) -> None:
    """Export Transformers' own model with SDPA attention and dynamic axes, everything else at torch's defaults.

    Made once per checkpoint and versions of the exporters: the full size takes minutes. With `tokens` it is one row of
    so many tokens, whatever is asked.
    """
    made_from = {name: importlib.metadata.version(name) for name in EXPORTERS} | {"tokens": str(tokens)}
    made_from["checkpoint"] = digests.digest_of_listing(source.listing())
    note = folder / MADE_FROM_FILE
    if note.exists() and json.loads(note.read_text()) == made_from:
        _report("plain graph: made before from this checkpoint")
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = AutoModelForSequenceClassification.from_pretrained(
        source.folder, attn_implementation="sdpa", dtype=torch.float32
    ).eval()
    ids = torch.ones((1, tokens) if tokens else EXAMPLE_SHAPE, dtype=torch.int64)
    axes = {} if tokens else {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    torch.onnx.export(
        model,
        (),
        folder / peers.PLAIN_FILE,
        kwargs={contract.INPUT_IDS: ids, contract.ATTENTION_MASK: torch.ones_like(ids)},
        input_names=[contract.INPUT_IDS, contract.ATTENTION_MASK],
        output_names=[contract.LOGITS],
        dynamic_shapes={contract.INPUT_IDS: dict(axes), contract.ATTENTION_MASK: dict(axes)},
        dynamo=True,
    )
    note.write_text(json.dumps(made_from, indent=1))


def _report(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["bundle", "plain"])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, help="fix the plain graph at one row of so many")
    arguments = parser.parse_args()
    source = checkpoint.Checkpoint.read(arguments.checkpoint)
    if arguments.kind == "bundle":
        export_bundle(source, arguments.folder)
    else:
        export_plain(source, arguments.folder, arguments.tokens)
