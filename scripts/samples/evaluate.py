"""Measure written samples on held-out data against simple baselines, and write eval.json beside each.

    python scripts/samples/evaluate.py --data DIR --checkpoints DIR [--only pii ...]

Needs torch, transformers 5, tokenizers and scikit-learn; runs on a processor in minutes.
"""

import argparse
import importlib
import json
import sys
from pathlib import Path

import torch
from inference import Checkpoint
from train import SAMPLES
from workspace import Workspace

from vela.export.standins.tokenizer import write_json


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure the sample checkpoints.")
    parser.add_argument("--data", type=Path, required=True, help="folder of the corpora, as JSON lines")
    parser.add_argument("--checkpoints", type=Path, required=True, help="folder that holds tiny-intent and the others")
    parser.add_argument("--only", nargs="*", default=list(SAMPLES), choices=SAMPLES, help="samples to measure")
    return parser.parse_args()


def main() -> int:
    """Measure the samples one after the other."""
    arguments = parse_arguments()
    torch.set_num_threads(1)
    for sample in arguments.only:
        task = importlib.import_module(f"tasks.{sample}")
        checkpoint = Checkpoint.from_folder(arguments.checkpoints / task.NAME)
        workspace = Workspace(arguments.data, arguments.checkpoints, checkpoint.tokenizer, "cpu")
        measured = importlib.import_module(f"measures.{sample}").measure(workspace, checkpoint)
        write_json(checkpoint.folder / "eval.json", {"name": task.NAME, "seed": task.SEED, **measured})
        sys.stdout.write(f"{task.NAME} {json.dumps(measured)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
