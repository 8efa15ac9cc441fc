"""Train the sample checkpoints: tokenizer, base encoder, then the seven samples side by side on one device.

    python scripts/samples/train.py --data DIR --out DIR [--only tiny-pii ...] [--effort 0.01]

Needs torch, transformers 5 and tokenizers; a GPU for the whole of it. No part of the tests or the package.
"""

import argparse
import importlib
import logging
import os
import subprocess
import sys
from pathlib import Path

SAMPLES = ("intent", "guard", "multilabel", "pii", "grounded", "embedding", "reranker")


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train the sample checkpoints.")
    parser.add_argument("--data", type=Path, required=True, help="folder of the corpora, as JSON lines")
    parser.add_argument("--out", type=Path, required=True, help="folder that gets one folder for each sample")
    parser.add_argument("--only", nargs="*", default=list(SAMPLES), choices=SAMPLES, help="samples to train")
    parser.add_argument("--effort", type=float, default=1.0, help="share of the planned steps, for trials")
    parser.add_argument("--keep-base", action="store_true", help="use the base encoder that is already there")
    parser.add_argument("--alone", action="store_true", help="train one sample in this process")
    return parser.parse_args()


def train_alone(arguments: argparse.Namespace) -> None:
    """Train the named samples in this process."""
    import torch
    from workspace import Workspace

    torch.backends.cuda.matmul.allow_tf32 = True
    torch.set_num_threads(1)
    workspace = Workspace.from_folders(arguments.data, arguments.out, arguments.effort)
    for sample in arguments.only:
        importlib.import_module(f"tasks.{sample}").train(workspace)


def train_base(arguments: argparse.Namespace) -> None:
    """Train the tokenizer and the encoder that all samples start from."""
    import pretrain
    import torch
    from workspace import Workspace

    torch.backends.cuda.matmul.allow_tf32 = True
    pretrain.write_tokenizer_of(arguments.data, arguments.out)
    pretrain.pretrain(Workspace.from_folders(arguments.data, arguments.out, arguments.effort))


def train_side_by_side(arguments: argparse.Namespace) -> int:
    """Train every sample in a process of its own and return the number that failed."""
    command = [sys.executable, __file__, "--data", arguments.data, "--out", arguments.out, "--alone"]
    command += ["--effort", str(arguments.effort), "--only"]
    environment = {**os.environ, "RAYON_NUM_THREADS": "2"}
    running = [subprocess.Popen([*command, sample], env=environment) for sample in arguments.only]
    return sum(process.wait() != 0 for process in running)


def main() -> int:
    """Run the training."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    arguments = parse_arguments()
    if arguments.alone:
        train_alone(arguments)
        return 0
    if not arguments.keep_base:
        train_base(arguments)
    return train_side_by_side(arguments)


if __name__ == "__main__":
    sys.exit(main())
