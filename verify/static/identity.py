"""Weight identity of any graph: every tensor of the checkpoint is in it by content, and nothing else is.

Written by whom, under which names and in which layout does not matter. Integers are read with their own steps first,
so that those are not taken for weights; then floats are matched whole, joined and cut; what is left must be a table
that config.json gives. A graph of another checkpoint has nothing that matches, which is seen in seconds.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from vela.graphs import contract
from vela.verify import architecture
from vela.verify.static import graph_tensor, quantised, rounded, tables, tensor_match, weights
from vela.verify.static.graph_constants import Constant
from vela.verify.static.graph_tensor import Floats, GraphTensor

# Tables of which a graph of one length, or for one text, needs the first rows only.
FIRST_ROWS_SUFFIXES = ("position_embeddings.weight", "token_type_embeddings.weight")
COARSEST_FIRST: tuple[contract.WeightPrecision, ...] = ("int4", "int8", "bf16", "fp16", "fp32")
MOSTLY = 0.5  # share of numbers that must be right for a tensor to be called an altered one


@dataclass(frozen=True, slots=True)
class Identity:
    """What was found.

    Attributes:
        precisions: Of each tensor of the checkpoint that was found.
        table_count: Tensors of the graph that config.json gives.
    """

    precisions: Mapping[str, contract.WeightPrecision]
    table_count: int

    @property
    def precision(self) -> contract.WeightPrecision:
        """The coarsest of all."""
        return min(self.precisions.values(), key=COARSEST_FIRST.index)

    def __str__(self) -> str:
        kinds = [kind for kind in reversed(COARSEST_FIRST) if kind in self.precisions.values()]
        counts = ", ".join(f"{list(self.precisions.values()).count(kind)} as {kind}" for kind in kinds)
        return (
            f"{len(self.precisions)} tensors found by content ({counts}), {self.table_count} tables recomputed from "
            "config.json"
        )


@dataclass(slots=True)
class _Search:
    """A search in progress.

    Attributes:
        tensors: The checkpoint's, by name.
        wanted: Names of those that the head uses.
        found: Precision by name.
        explained: Names of the graph's constants that were found to be something.
    """

    tensors: Mapping[str, Floats]
    wanted: Collection[str]
    found: dict[str, contract.WeightPrecision] = field(default_factory=dict)
    explained: set[str] = field(default_factory=set)

    def missing(self) -> dict[str, Floats]:
        """Give the tensors that the head uses and that were not found yet."""
        return {name: self.tensors[name] for name in self.wanted if name not in self.found}

    def match(self, reading: GraphTensor) -> bool:
        """Match a graph's tensor, whole or joined, and take note."""
        missing = self.missing()
        rest = {name: values for name, values in self.tensors.items() if name not in missing}
        names = (
            tensor_match.match_whole(reading, missing)
            or tensor_match.match_whole(reading, rest)
            or self._with_equals(tensor_match.match_joined(reading, missing))
        )
        self.take(names, [reading])
        return bool(names)

    def take(self, names: Collection[str], readings: Sequence[GraphTensor]) -> None:
        """Note that tensors of the checkpoint are these of the graph."""
        if names:
            for name in names:
                self.found.setdefault(name, readings[0].precision)
            self.explained |= {name for reading in readings for name in (reading.name, *reading.uses)}

    def _with_equals(self, names: set[str]) -> set[str]:
        """Add the tensors that equal found ones: an exporter keeps equal constants once."""
        equals = {
            other
            for name in names
            for other, values in self.missing().items()
            if values.shape == self.tensors[name].shape and np.array_equal(values, self.tensors[name])
        }
        return names | equals


def identify_weights(
    constants: Sequence[Constant],
    tensors: Mapping[str, Floats],
    wanted: Collection[str],
    reading: architecture.Architecture,
    where: str,
) -> Identity:
    """Find the checkpoint's tensors in a graph.

    Args:
        constants: The graph's, as far as its answer depends on them.
        tensors: All of the checkpoint's, by name.
        wanted: Names of those that the head uses.
        reading: Its architecture, from which tables are computed.
        where: The graph's file name.

    Raises:
        GraphError: tensors are missing, foreign or altered; the message counts and names them.
    """
    search = _Search(tensors, wanted)
    foreign = _match_integers(search, constants)
    left = [reading for reading in _match_floats(search, constants) if reading.stored.size > 1]
    unknown = [value for value in left if not tables.is_table_of_any_exporter(value.stored, reading)]
    missing = search.missing()
    foreign += [_describe(value, missing, reading) for value in unknown[: weights.NAMED]]
    foreign += [value.name for value in unknown[weights.NAMED :]]
    if missing or foreign:
        is_rounded = rounded.are_rounded(missing, {value.name: value.stored for value in unknown}, tensors)
        raise weights.other_weights(sorted(missing), wanted, foreign, where, "precision" if is_rounded else None)
    return Identity({name: search.found[name] for name in sorted(wanted)}, len(left))


def _match_integers(search: _Search, constants: Sequence[Constant]) -> list[str]:
    """Match the tensors that are kept as integers; give those that are none of the checkpoint's."""
    known = {id(constant.value): constant for constant in constants}
    unmatched = [
        constant
        for constant in constants
        if quantised.is_integer_weight(constant)
        and not any(search.match(reading) for reading in quantised.read_integers(constant, known))
    ]
    foreign = []
    for constant in unmatched:
        is_weight = constant.content.ndim > 1 and constant.content.dtype.name != "int32"
        if constant.name not in search.explained and is_weight:
            foreign.append(f"{constant.name} ({constant.content.dtype.name})")
            search.explained.add(quantised.nearest_step(constant, known))
    return foreign


def _match_floats(search: _Search, constants: Sequence[Constant]) -> list[GraphTensor]:
    """Match the tensors that are kept as floats; give those that are none of the checkpoint's."""
    readings = [
        GraphTensor.from_floats(constant.name, constant.content)
        for constant in constants
        if constant.content.dtype.name in graph_tensor.ROUNDINGS and constant.name not in search.explained
    ]
    left = [reading for reading in readings if not search.match(reading)]
    for name, expected in search.missing().items():
        parts = tensor_match.match_cut(expected, left)
        if parts:
            search.take([name], [reading for reading in left if reading.name in parts])
    for name, expected in search.missing().items():
        if name.endswith(FIRST_ROWS_SUFFIXES):
            rows = [reading for reading in left if tensor_match.match_first_rows(reading, expected)]
            search.take([name] if rows else [], rows)
    return [reading for reading in left if reading.name not in search.explained]


def _describe(reading: GraphTensor, missing: Mapping[str, Floats], config: architecture.Architecture) -> str:
    """Name a foreign tensor, and the one of the checkpoint that it was before it was rounded or altered."""
    for name, expected in missing.items():
        for turned in tensor_match.orientations(reading, expected.shape):
            kind = rounded.rounded_to(turned, expected) if turned.precision == "fp32" else ""
            if kind:
                return f"{reading.name} ({name}, rounded to {kind})"
            if expected.size > 1 and tensor_match.share_differing(turned, expected) < MOSTLY:
                count = tensor_match.count_differing(turned, expected)
                return f"{reading.name} ({name}, but for {count:,} of {expected.size:,} numbers)"
    return tables.describe(reading.name, reading.stored, config)
