"""PyTorch as a side of a comparison: the checkpoint in FP32 with SDPA, behind the rules by which serve reads texts.

The gate compares token ids; here texts are compared, so what is cut, windowed and decoded is serve's own, and only the
forward pass is PyTorch's (reference.py).
"""

import importlib.metadata
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from vela.export import reference
from vela.graphs import model_table
from vela.serve import answers, policy
from vela.serve.reading import Item
from vela.verify import checkpoint
from vela.verify.parity import side_checkpoint


def side_of(root: Path, table: model_table.ModelTable) -> side_checkpoint.CheckpointSide:
    """Give the side of the checkpoints in `<root>/<name>`."""
    versions = {name: importlib.metadata.version(name) for name in ("transformers", "tokenizers")}
    threads = {"device": "cpu", "threads": str(torch.get_num_threads()), "precision": "float32, sdpa"}
    name = f"torch {importlib.metadata.version('torch')}"
    return side_checkpoint.CheckpointSide(name, root, table, lambda source, _: load(source), versions | threads)


def load(source: checkpoint.Checkpoint) -> side_checkpoint.Forward:
    """Load a checkpoint as the reference that graphs are judged against.

    Raises:
        CheckpointError: tensors are missing or left over, or the model is not what config.json states.
    """
    loaded = reference.PyTorchReference.from_checkpoint(source)
    return side_checkpoint.Forward(lambda ids, output: loaded.answer([ids])[0][output])


def answering(source: checkpoint.Checkpoint) -> Callable[[Sequence[Item]], list[answers.Answer | answers.FailedAnswer]]:
    """Load a checkpoint that answers with its own defaults, as `vela predict` asks a bundle.

    Raises:
        CheckpointError: as `load`.
    """
    model = side_checkpoint.CheckpointModel.of(source, load(source))
    rules = model.settle(policy.Options())
    return lambda items: model.answer(items, rules)
