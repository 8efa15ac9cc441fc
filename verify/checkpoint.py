"""A checkpoint folder: its files, digests, tensors, architecture and head, read before any framework opens it.

Export starts here and so does the gate, so both refuse the same things: pickled weights, reduced precision, shards
that their index does not describe, unknown configuration keys.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vela.graphs import contract, digests, errors, heads, manifest, model_table, safetensors_header, scorers, task
from vela.verify import architecture, weight_files

# What belongs to a checkpoint: everything that Transformers, sentence-transformers or a tokenizer reads. Graphs,
# records and notes that lie beside it do not.
CHECKPOINT_SUFFIXES = (".json", ".safetensors", ".txt", ".model")
NOT_OF_THE_CHECKPOINT = frozenset({contract.MANIFEST_FILE, "golden.json", "attestation.json", "eval.json"})
SUBFOLDERS = ("1_Pooling",)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A readable checkpoint of a supported task.

    Attributes:
        folder: Where it lies.
        config: Content of config.json.
        architecture: The independent reading of it.
        head: The head that its files describe.
        tensors: Places of all tensors, by file and name.
    """

    folder: Path
    config: dict[str, Any]
    architecture: architecture.Architecture
    head: heads.Head
    tensors: dict[str, dict[str, safetensors_header.StoredTensor]]

    @classmethod
    def read(
        cls, folder: Path, *, allowed_keys: Collection[str] = (), table: model_table.ModelTable | None = None
    ) -> Self:
        """Read and check a checkpoint folder.

        Args:
            folder: Where it lies.
            allowed_keys: Unknown keys of config.json that the caller vouches for.
            table: Models of which more is known than their files say; the one that ships, where none is given.

        Raises:
            CheckpointError: it is incomplete, of an unsupported task or precision, or contradicts itself.
        """
        if not folder.is_dir():
            raise _unreadable(str(folder), "no such folder", "a checkpoint folder")
        config = task.read_json(folder / "config.json")
        files = [name for name in checkpoint_files(folder) if name.endswith(".safetensors")]
        tensors = weight_files.read_weight_files(folder, files)
        reading = architecture.read_architecture(config, allowed_keys)
        head = task.read_head(folder, _pinned_depths(folder, table or model_table.load_table()))
        if head.inputs != "text" and not reading.takes_pairs:
            raise _unreadable("config.json", f"a {head.kind} head over pairs", "texts: this family marks pairs by type")
        if isinstance(head.decoder, heads.RerankDecoder):
            shapes = {name: place.shape for name, place in tensors[task.RERANK_HEADS_FILE].items()}
            scorers.check_scorers(shapes, head.decoder)
        return cls(folder, config, reading, head, tensors)

    def listing(self) -> dict[str, str]:
        """Give the SHA-256 of every file of the checkpoint."""
        return listing(self.folder)

    def weight_tensors(self) -> tuple[manifest.WeightTensor, ...]:
        """Describe every tensor by place and content, as it is now."""
        return describe_tensors(self.folder, self.tensors)

    def read_tensors(self) -> dict[str, NDArray[np.float32]]:
        """Give every FP32 tensor by name; they are mapped from their files, not read."""
        return {
            name: safetensors_header.map_float_tensor(self.folder / file, place)
            for file, entries in self.tensors.items()
            for name, place in entries.items()
            if place.dtype == "F32"
        }

    @property
    def model_type(self) -> str:
        """The family that config.json names."""
        return str(self.config["model_type"])

    @property
    def max_positions(self) -> int:
        """Longest input that the encoder takes, whatever a head allows."""
        return int(self.config["max_position_embeddings"])

    @property
    def parameter_count(self) -> int:
        """Number of weights in all safetensors files."""
        tensors = [tensor for entries in self.tensors.values() for tensor in entries.values()]
        return sum(tensor.length // 4 for tensor in tensors if tensor.dtype == "F32")


def _pinned_depths(folder: Path, table: model_table.ModelTable) -> task.Depths | None:
    """Give the exits and dimensions that the model table has of a checkpoint whose files do not list them."""
    if not (folder / task.POOLING_FILE).is_file() or (folder / task.MATRYOSHKA_FILE).is_file():
        return None
    entry = table.describing(folder)
    return task.Depths(entry.exits, entry.dimensions) if entry is not None and entry.exits else None


def checkpoint_files(folder: Path) -> list[str]:
    """List the checkpoint's files, sorted, as names relative to the folder."""
    names = [path.name for path in folder.iterdir() if path.is_file() and path.suffix in CHECKPOINT_SUFFIXES]
    for subfolder in SUBFOLDERS:
        if (folder / subfolder).is_dir():
            names += [f"{subfolder}/{path.name}" for path in (folder / subfolder).iterdir() if path.suffix == ".json"]
    return sorted(name for name in names if name not in NOT_OF_THE_CHECKPOINT)


def listing(folder: Path) -> dict[str, str]:
    """Give the SHA-256 of every file of the checkpoint in a folder."""
    return {name: digests.sha256_of_file(folder / name) for name in checkpoint_files(folder)}


def describe_tensors(
    folder: Path, tensors: Mapping[str, Mapping[str, safetensors_header.StoredTensor]]
) -> tuple[manifest.WeightTensor, ...]:
    """Describe the tensors of a folder's weight files by place and content, reading each file once."""
    described = []
    for file, entries in tensors.items():
        ranges = [(place.offset, place.length) for place in entries.values()]
        content = digests.sha256_of_ranges(folder / file, ranges)
        for (name, place), sha256 in zip(entries.items(), content, strict=True):
            described.append(
                manifest.WeightTensor(file, name, place.dtype, place.shape, place.offset, place.length, sha256)
            )
    return tuple(described)


def _unreadable(where: str, found: str, expected: str) -> errors.CheckpointError:
    return errors.CheckpointError(
        found, expected=expected, where=where, fix="Save the checkpoint with save_pretrained, in float32."
    )
