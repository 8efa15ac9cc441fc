"""Join the gate and its PyTorch reference: verify a bundle folder or a graph file against a checkpoint folder.

The checkpoint is named apart from the bundle: by the caller, or for a pinned model by the model table, whose digests
the bundle's own copy must then have.
"""

import functools
from collections.abc import Collection
from pathlib import Path

import torch

from vela.export import mutants, reference, suspects
from vela.graphs import bundle, errors, golden, model_table, record
from vela.verify import checkpoint, foreign_gate, gate, golden_writing, ground
from vela.verify.options import GateOptions


def verify_folder(
    folder: Path,
    checkpoint_folder: Path | None,
    options: GateOptions,
    progress: gate.Progress,
    allowed_keys: Collection[str] = (),
) -> list[record.Record]:
    """Verify every graph of a bundle folder.

    Args:
        folder: The bundle.
        checkpoint_folder: The reference; None only for a bundle of a pinned model.
        options: How to judge.
        progress: Told what is being done.
        allowed_keys: Unknown keys of config.json that the caller vouches for.

    Raises:
        NothingCompared: there is no reference.
        VelaError: bundle or reference cannot be read.
    """
    opened = bundle.Bundle.open(folder)
    if checkpoint_folder is not None:
        _require_apart(checkpoint_folder, folder)
    source = checkpoint.Checkpoint.read(
        checkpoint_folder or _pinned_reference(opened, options.table), allowed_keys=allowed_keys, table=options.table
    )
    return gate.verify_bundle(opened, source, lambda: make_references(source), options, progress)


def verify_graph_file(
    path: Path,
    checkpoint_folder: Path | None,
    options: GateOptions,
    progress: gate.Progress,
    allowed_keys: Collection[str] = (),
    out: Path | None = None,
) -> list[record.Record]:
    """Verify one ONNX file that Vela need not have written.

    Args:
        path: The file; nothing is written beside it.
        checkpoint_folder: The reference.
        options: How to judge.
        progress: Told what is being done.
        allowed_keys: Unknown keys of config.json that the caller vouches for.
        out: Folder that the record is written into; made where it is missing. None writes none.

    Raises:
        NothingCompared: there is no reference.
        VelaError: the reference cannot be read, or the record not be written.
    """
    if checkpoint_folder is None:
        raise _no_reference("no reference", path)
    source = checkpoint.Checkpoint.read(checkpoint_folder, allowed_keys=allowed_keys, table=options.table)
    found = foreign_gate.verify_file(path, source, lambda: make_references(source), options, progress)
    if out is not None:
        foreign_gate.write_record(out, found, options.device)
    return [found]


def write_golden(
    folder: Path,
    checkpoint_folder: Path,
    most: int | None,
    progress: gate.Progress,
    *,
    allowed_keys: Collection[str] = (),
    table: model_table.ModelTable | None = None,
) -> golden.Golden:
    """Write the golden answers of a bundle that passed; see `golden_writing.write_anew`.

    Args:
        folder: The bundle.
        checkpoint_folder: The checkpoint that it was judged against.
        most: How many probes at most; None leaves it to the gate's rule.
        progress: Told what is being done.
        allowed_keys: Unknown keys of config.json that the caller vouches for.
        table: Models of which more is known than their files say; the one that ships, where none is given.

    Raises:
        NothingCompared: the checkpoint is the bundle itself.
        VelaError: bundle or checkpoint cannot be read, or the bundle did not pass.
    """
    opened = bundle.Bundle.open(folder)
    _require_apart(checkpoint_folder, folder)
    source = checkpoint.Checkpoint.read(checkpoint_folder, allowed_keys=allowed_keys, table=table)
    return golden_writing.write_anew(opened, source, lambda: make_references(source), most, progress)


def make_references(source: checkpoint.Checkpoint) -> ground.References:
    """Load a checkpoint twice, in FP32 to judge against and in FP64 to know its noise, and make its mutants."""
    exact = reference.PyTorchReference.from_checkpoint(source)
    wide = reference.PyTorchReference.from_checkpoint(source, torch.float64)
    suspected = functools.partial(suspects.make_suspects, source, exact)
    return ground.References(exact, wide, mutants.make_mutants(source, exact), exact.states, suspected)


def _require_apart(checkpoint_folder: Path, folder: Path) -> None:
    if checkpoint_folder.resolve() == folder.resolve():
        raise _no_reference("the bundle itself as its reference", folder)


def _pinned_reference(opened: bundle.Bundle, table: model_table.ModelTable) -> Path:
    """Use the bundle's own files as the reference where the model table pins every one of them.

    Raises:
        NothingCompared: no table pins this model, so nothing apart from the bundle says what it should be.
    """
    name = opened.manifest.model.name
    if not table.knows(name):
        raise _no_reference("no reference", opened.folder)
    model_table.check_checkpoint(opened.folder, table.find(name))
    return opened.folder


def _no_reference(found: str, folder: Path) -> errors.NothingCompared:
    return errors.NothingCompared(
        found,
        expected="a checkpoint apart from the bundle, or a model that the table pins",
        where=folder.name,
        fix="Pass --checkpoint DIR with the checkpoint that was exported.",
    )
