"""Weight identity of a graph that Vela wrote: every tensor of the checkpoint is in it, by content, and nothing else.

No name is trusted. A by-reference graph must point exactly at tensors of the bundle's weight file, or at rows of one
that are all there once, and those tensors must have the checkpoint's bytes; inline tensors must have the bytes of a
checkpoint tensor, as stored or transposed. Float tables that the checkpoint does not hold are recomputed from
config.json; whether layers turn by the right ones is rotary.py's business. So a graph from another checkpoint fails
here in seconds, without inference, and the message says how many tensors are foreign. Graphs that others wrote are
identity.py's.
"""

import bisect
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vela.graphs import causes, errors, heads, manifest, scorers
from vela.verify import checkpoint, graph_file
from vela.verify.static import rounded, tables

LAYER_PATTERN = re.compile(r"(?:^|\.)layers?\.(\d+)\.")
NAMED = 4  # tensors that a message names
MOST_OF_A_LAYER = 0.5  # share of its tensors; one that was altered is no stale layer


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """The tensors of a folder's weight files, by place and by content.

    Attributes:
        by_file: A file's tensors in the order of their offsets.
        by_content: Names for a digest; equal tensors share one.
    """

    by_file: Mapping[str, Sequence[manifest.WeightTensor]]
    by_content: Mapping[str, tuple[str, ...]]

    @classmethod
    def from_tensors(cls, tensors: Iterable[manifest.WeightTensor]) -> Self:
        """Index described tensors."""
        by_file: dict[str, list[manifest.WeightTensor]] = {}
        by_content: dict[str, tuple[str, ...]] = {}
        for tensor in sorted(tensors, key=lambda tensor: (tensor.offset, tensor.length)):
            by_file.setdefault(tensor.file, []).append(tensor)
            by_content[tensor.sha256] = (*by_content.get(tensor.sha256, ()), tensor.name)
        return cls(by_file, by_content)

    def locate(self, external: graph_file.ExternalTensor) -> tuple[manifest.WeightTensor, range] | None:
        """Find the tensor that an external one is, or whose rows it is; None where it is neither."""
        tensors = self.by_file.get(external.location, ())
        index = bisect.bisect_right(tensors, external.offset, key=lambda tensor: tensor.offset) - 1
        if index < 0:
            return None
        tensor = tensors[index]
        before = external.offset - tensor.offset
        if before == 0 and external.shape == tensor.shape and external.length == tensor.length:
            return tensor, range(math.prod(tensor.shape[:1]))
        if not tensor.shape or not external.shape or external.shape[1:] != tensor.shape[1:]:
            return None
        row_bytes = tensor.length // max(1, tensor.shape[0])
        rows = range(before // max(1, row_bytes), before // max(1, row_bytes) + external.shape[0])
        is_whole_rows = before % max(1, row_bytes) == 0 and external.length == len(rows) * row_bytes
        return (tensor, rows) if is_whole_rows and rows.stop <= tensor.shape[0] else None


def needed_weights(names: Collection[str], decoder: heads.Decoder, exit_layer: int, layers: int) -> set[str]:
    """Give the tensors that a graph with this exit uses.

    An early exit leaves out later layers; an embedder's leaves out the final norm too, and a reranker's does not. A
    reranker's graph holds the scorers of its own exit, and of no other.
    """
    is_reranker = isinstance(decoder, heads.RerankDecoder)
    found = set()
    for name in names:
        match = LAYER_PATTERN.search(name)
        is_later = match is not None and int(match.group(1)) >= exit_layer
        is_left_out = "final_norm" in name and exit_layer < layers and not is_reranker
        if not is_later and not is_left_out and not (is_reranker and scorers.is_of_another_exit(name, exit_layer)):
            found.add(name)
    return found


def check_weights(
    graph: graph_file.GraphFile,
    bundle_weights: StoredWeights,
    checkpoint_weights: StoredWeights,
    source: checkpoint.Checkpoint,
    exit_layer: int,
) -> str:
    """Check that a graph holds exactly the checkpoint's weights.

    Args:
        graph: The parsed graph.
        bundle_weights: What lies beside it, as it is now.
        checkpoint_weights: What the reference checkpoint holds.
        source: That checkpoint.
        exit_layer: Layers that the graph runs.

    Raises:
        GraphError: tensors are missing, foreign, misplaced or altered; the message counts and names them.
    """
    reading, decoder = source.architecture, source.head.decoder
    all_names = {name for names in checkpoint_weights.by_content.values() for name in names}
    all_names = {name for name in all_names if reading.uses(name, decoder)}
    needed = needed_weights(all_names, decoder, exit_layer, reading.layers)
    found, foreign, is_other = _external_matches(graph, bundle_weights, checkpoint_weights, needed)
    inline_found, unknown = _inline_matches(graph, checkpoint_weights)
    found |= inline_found
    strange = {name: value for name, value in unknown.items() if not tables.is_table(value, reading)}
    foreign += [tables.describe(name, value, reading) for name, value in strange.items()]
    missing = sorted(needed - found)
    if missing or foreign:
        known = _rounding(graph, strange, missing, source)
        if known is None and is_other and not _is_one_layer(missing, needed):
            known = "other weights"
        raise other_weights(missing, needed, foreign, graph.path.name, known)
    return f"{len(needed)} tensors found by content, {len(unknown)} tables recomputed from config.json"


def _rounding(
    graph: graph_file.GraphFile,
    strange: Mapping[str, NDArray[Any]],
    missing: Sequence[str],
    source: checkpoint.Checkpoint,
) -> causes.Cause | None:
    """Say whether all that is missing is there after all, but in fewer bits or in another type."""
    narrow = {name: value for name, value in graph.inline.items() if "float" in value.dtype.name}
    narrow = {name: value for name, value in narrow.items() if value.dtype != np.float32}
    is_rounded = rounded.are_rounded(missing, narrow | dict(strange), source.read_tensors())
    return "precision" if is_rounded else None


def _external_matches(
    graph: graph_file.GraphFile,
    bundle_weights: StoredWeights,
    checkpoint_weights: StoredWeights,
    needed: Collection[str],
) -> tuple[set[str], list[str], bool]:
    """Match references; give what was found, what is foreign, and whether one stands where another belongs."""
    found: set[str] = set()
    foreign: list[str] = []
    is_other = False
    parts: dict[tuple[str, str], list[range]] = {}  # rows by the place of a tensor that is referred to in parts
    for name, external in graph.external.items():
        located = bundle_weights.locate(external)
        names = set() if located is None else set(checkpoint_weights.by_content.get(located[0].sha256, ()))
        is_other = is_other or not names
        if located is None:
            foreign.append(
                f"{name} (bytes {external.offset} to {external.offset + external.length} of {external.location} are "
                "neither a tensor nor rows of one: its offset, length or shape is wrong)"
            )
        elif not names:
            foreign.append(name)
        elif not names & set(needed):
            foreign.append(f"{name} (holds {min(names)}, which this exit does not use)")
        else:
            stored, rows = located
            parts.setdefault((stored.file, stored.name), []).append(rows)
            found |= names
    for tensors in bundle_weights.by_file.values():
        for tensor in tensors:
            rows_used = parts.get((tensor.file, tensor.name), [])
            if rows_used and not _covers_once_or_whole(rows_used, math.prod(tensor.shape[:1])):
                ranges = ", ".join(f"{rows.start} to {rows.stop}" for rows in rows_used)
                foreign.append(f"{tensor.name} (used by rows {ranges} of {tensor.shape[0]}: not each row once)")
                is_other = True
            is_other = is_other or rows_used.count(range(math.prod(tensor.shape[:1]))) > 1
    return found, foreign, is_other


def _covers_once_or_whole(parts: Iterable[range], rows: int) -> bool:
    """Say whether parts, those apart that are the whole, lie end to end over all rows."""
    position = 0
    for part in sorted((part for part in parts if part != range(rows)), key=lambda part: part.start):
        if part.start != position:
            return False
        position = part.stop
    return position in (0, rows)


def _inline_matches(
    graph: graph_file.GraphFile, checkpoint_weights: StoredWeights
) -> tuple[set[str], dict[str, NDArray[Any]]]:
    """Match inline float tensors; one of a single element may be a scalar of the arithmetic, and is never unknown."""
    found: set[str] = set()
    unknown = {}
    for name, value in graph.inline.items():
        if value.dtype != np.float32:
            continue
        names = checkpoint_weights.by_content.get(graph_file.sha256_of_array(value))
        if names is None and value.ndim == 2:
            names = checkpoint_weights.by_content.get(graph_file.sha256_of_array(value.T))
        if names is not None:
            found |= set(names)
        elif value.size > 1:
            unknown[name] = value
    return found, unknown


def other_weights(
    missing: Sequence[str],
    needed: Collection[str],
    foreign: Sequence[str],
    where: str,
    known: causes.Cause | None = None,
) -> errors.GraphError:
    """Make the error for a graph that does not hold exactly the checkpoint's weights.

    Args:
        missing: Tensors of the checkpoint that are not in the graph.
        needed: Those that the head uses.
        foreign: Tensors of the graph that are not the checkpoint's, described.
        where: The graph's file name.
        known: What became of them, where that is known.
    """
    found = f"all {len(needed)} tensors of the checkpoint are in the graph"
    kind: type[errors.GraphError] = errors.ForeignTables
    cause: causes.Cause = "other computation"
    if missing:
        found = f"{len(missing)} of {len(needed)} tensors of the checkpoint are not in the graph{_listed(missing)}"
        kind = errors.GraphError
        if foreign:  # else the graph leaves a tensor out, and holds no other in its place
            cause = "stale layer" if _is_one_layer(missing, needed) else "other weights"
    return kind(
        f"other weights: {found}, and {len(foreign)} tensors of the graph are not the checkpoint's{_listed(foreign)}",
        expected="every tensor of the checkpoint, and nothing else but recomputable tables",
        where=where,
        fix="The graph or the weights beside it come from another checkpoint or were altered: export again.",
        cause=known or cause,
    )


def _is_one_layer(missing: Sequence[str], needed: Collection[str]) -> bool:
    """Say whether what is missing is one layer, or most of it; equal norms may be found in another place."""
    layers = {match.group(1) if (match := LAYER_PATTERN.search(name)) else "" for name in missing}
    if len(layers) != 1 or "" in layers:
        return False
    whole = [name for name in needed if (match := LAYER_PATTERN.search(name)) and match.group(1) in layers]
    return len(missing) >= MOST_OF_A_LAYER * len(whole)


def _listed(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f" ({', '.join(names[:NAMED])}{more})"
