"""The weight files of a checkpoint: one `model.safetensors`, or the shards that an index names, and nothing left over.

Graphs refer to a file, an offset and a length, so shards cost nothing: a graph refers to several files. What must
hold is that there is one story. A shard that the index does not name, a tensor that it puts elsewhere or a file that
Transformers would not read could otherwise be what a graph is bound to.
Source: Transformers' own order: `model.safetensors` first, then `model.safetensors.index.json`.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from vela.graphs import contract, errors, safetensors_header, task

INDEX_FILE = f"{contract.WEIGHTS_FILE}.index.json"
NAMED = 4  # files or tensors that a message names
# Older BERT checkpoints hold the numbers 0, 1, 2, … as a tensor; it is no weight, and no reader uses it.
POSITION_NUMBERS = "embeddings.position_ids"
Tensors = dict[str, dict[str, safetensors_header.StoredTensor]]


def read_weight_files(folder: Path, files: list[str]) -> Tensors:
    """Read the places of all tensors, by file and name.

    Args:
        folder: The checkpoint.
        files: Its safetensors files.

    Raises:
        CheckpointError: weights are missing, left over or not in FP32, or an index contradicts its shards.
    """
    weight_map = _read_index(folder) if (folder / INDEX_FILE).is_file() else {}
    _check_files(folder, files, set(weight_map.values()) or {contract.WEIGHTS_FILE})
    tensors = {name: safetensors_header.read_safetensors_header(folder / name) for name in files}
    if weight_map:
        _check_shards(weight_map, tensors)
    _check_precision(tensors)
    return tensors


def _read_index(folder: Path) -> Mapping[str, str]:
    """Read which shard holds which tensor."""
    weight_map = task.read_json(folder / INDEX_FILE).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise _unreadable(INDEX_FILE, "no weight_map", "the shard of every tensor")
    outside = sorted({str(file) for file in weight_map.values() if not _is_shard_name(file)})
    if outside:
        raise _unreadable(
            INDEX_FILE, f"the shards {_listed(outside)}", "names of safetensors files that lie in the folder itself"
        )
    return weight_map


def _is_shard_name(file: object) -> bool:
    return (
        isinstance(file, str)
        and PurePosixPath(file).name == file
        and "\\" not in file
        and file.endswith(".safetensors")
    )


def _check_files(folder: Path, files: list[str], wanted: set[str]) -> None:
    """Refuse weights that are missing, and files that would be bound though Transformers does not read them."""
    missing = sorted(wanted - set(files))
    if missing:
        raise _unreadable(
            folder.name,
            f"no {_listed(missing)} among the weight files {files}",
            f"{contract.WEIGHTS_FILE}, or every shard of {INDEX_FILE}; pickled weights never",
        )
    left_over = sorted(set(files) - wanted - {task.RERANK_HEADS_FILE})
    if left_over:
        raise _unreadable(
            folder.name,
            f"the weight files {_listed(left_over)} beside {_listed(sorted(wanted))}",
            "one story of the weights: no shards of another save, no adapters, no second copy",
        )


def _check_shards(weight_map: Mapping[str, str], tensors: Tensors) -> None:
    """Refuse shards that hold other tensors than the index says."""
    stored = {(name, file) for file in set(weight_map.values()) for name in tensors[file]}
    missing = sorted(f"{name} in {file}" for name, file in set(weight_map.items()) - stored)
    unlisted = sorted(f"{name} in {file}" for name, file in stored - set(weight_map.items()))
    if missing or unlisted:
        raise _unreadable(
            INDEX_FILE,
            f"{len(missing)} tensors that are not where it says{_listed_if(missing)}, and {len(unlisted)} that it does "
            f"not name{_listed_if(unlisted)}",
            "the tensors of the shards, each where it is",
        )


def _check_precision(tensors: Tensors) -> None:
    for file, entries in tensors.items():
        reduced = {
            name: place.dtype
            for name, place in entries.items()
            if place.dtype != "F32" and not name.endswith(POSITION_NUMBERS)
        }
        if reduced:
            counts = ", ".join(f"{count} in {dtype}" for dtype, count in sorted(Counter(reduced.values()).items()))
            raise errors.CheckpointError(
                f"of {len(entries)} tensors {counts}, such as {min(reduced)}",
                expected="FP32 weights: an FP32 graph holds the checkpoint's own bytes, and weights widened in silence "
                "would be a model that lies in no file",
                where=file,
                fix="Widen it knowingly, and export what that writes: from_pretrained(DIR, dtype=torch.float32), then "
                "save_pretrained(NEW). It answers as the reduced weights do in FP32 arithmetic.",
            )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def _listed_if(names: list[str]) -> str:
    return f" ({_listed(names)})" if names else ""


def _unreadable(where: str, found: str, expected: str) -> errors.CheckpointError:
    return errors.CheckpointError(
        found,
        expected=expected,
        where=where,
        fix="Save the checkpoint again, into an empty folder, with save_pretrained.",
    )
