"""Runs: which graph is asked which case, how padded, in which row of a batch, and with what under the mask.

Each text goes to the graph that serve would pick for it, alone; on top of that, probes go to every graph, so that a
short text in a long bucket (a run of pads longer than the local window), every row of a batch and the bucket's edges
are always judged. Some probes are run again with another text's ids where the mask hides them: that must change no
bit, however small a leak would be beside the bounds of parity.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from vela.graphs import contract, digests, manifest
from vela.serve import engine
from vela.verify.cases import Case

Item = TypeVar("Item")
PROBE_COUNT = 16
POISONED_COUNT = 4  # each costs a run of the bucket's whole length
COMPANIONS = 2  # rows beside the subject in a batch of a dynamic graph
# Pads beyond this fill the whole window of some rows in every model of the family (half-window 64, both sides).
WINDOW_PADS = 128


@dataclass(frozen=True, slots=True)
class Run:
    """A case on a graph, with companions that share its batch.

    Attributes:
        case: The case that is compared.
        companions: Other rows of the batch, which must change nothing.
        pad_to: Tokens that a dynamic graph's row is padded to; None leaves it alone.
        row: Which row of the batch the case is.
        poison: Whose ids lie under the mask instead of padding; None where padding does.
    """

    case: Case
    companions: tuple[Case, ...] = ()
    pad_to: int | None = None
    row: int = 0
    poison: Case | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.row <= len(self.companions):
            raise ValueError(f"row {self.row} of a batch of {len(self.companions) + 1}")

    @property
    def unpoisoned(self) -> "Run":
        """The same run with padding under the mask."""
        return replace(self, poison=None)

    @property
    def rows(self) -> list[tuple[int, ...]]:
        """Token ids of every row of the batch, in order."""
        others = [companion.ids for companion in self.companions]
        return [*others[: self.row], self.case.ids, *others[self.row :]]

    def width(self, graph: manifest.Graph) -> int:
        """Tokens of each row as the graph gets it."""
        return graph.sequence or max(self.pad_to or 0, *map(len, self.rows))

    def padding_class(self, graph: manifest.Graph) -> str:
        """Name how the case is padded: `none`, `some`, or `window` for more pads than any local window of use."""
        pads = self.width(graph) - self.case.tokens
        if pads == 0:
            return "none"
        return "window" if pads > WINDOW_PADS else "some"

    def inputs(self, graph: manifest.Graph, pad_id: int) -> dict[str, NDArray[np.int64]]:
        """Lay out what the graph is fed: `input_ids` and `attention_mask`, (B, T) int64, padded as serve does it."""
        laid = engine.pad_rows(self.rows, graph, pad_id, width=self.pad_to)
        if self.poison is not None:
            ids, seen = laid[contract.INPUT_IDS], laid[contract.ATTENTION_MASK] != 0
            laid[contract.INPUT_IDS] = np.where(seen, ids, np.resize(np.array(self.poison.ids), ids.shape))
        return laid

    def own_part(
        self, outputs: Mapping[str, NDArray[np.float32]], graph: manifest.Graph
    ) -> dict[str, NDArray[np.float32]]:
        """Cut the case's own answer out of a batch's: (C,), (T, C), (H,) or () for each output."""
        found = {}
        for spec in graph.outputs:
            row = outputs[spec.name][self.row]
            found[spec.name] = row[: self.case.tokens] if len(spec.shape) == 3 else np.asarray(row)
        return found


@dataclass(frozen=True, slots=True)
class Planned:
    """The runs of one graph.

    Attributes:
        required: Probes and laws; without all of them nothing is said of the graph.
        corpus: The other texts that serve would give it. The first n, for any n, are spread over all lengths.
    """

    required: tuple[Run, ...]
    corpus: tuple[Run, ...]

    @property
    def all(self) -> tuple[Run, ...]:
        """Every run, in order."""
        return self.required + self.corpus


def plan_runs(
    graph: manifest.Graph, graphs: Sequence[manifest.Graph], cases: Sequence[Case], half_window: int, limit: int
) -> Planned:
    """List the runs of one graph.

    Args:
        graph: The graph to judge.
        graphs: All graphs of the bundle, which decide what serve would pick.
        cases: All cases.
        half_window: Probes are padded by more than twice this on dynamic graphs, as far as the limit lets them.
        limit: Longest row that the encoder takes, pads included: learned positions end.
    """
    if graph.sequence is None:
        return _plan_dynamic(graph, cases, half_window, limit)
    fitting = [case for case in cases if case.tokens <= graph.sequence]
    probes = pick_probes(fitting)
    own = [case for case in fitting if case.tokens > _shorter_bucket(graph, graphs)]
    chosen = list(dict.fromkeys([*probes, *spread(own)]))
    others = (graph.batch or 1) - 1
    alone = [
        Run(
            case,
            companions=tuple(chosen[(index + step) % len(chosen)] for step in range(1, others + 1)),
            row=index % (others + 1),
        )
        for index, case in enumerate(chosen)
    ]
    first, rest = alone[: len(probes)], alone[len(probes) :]
    return Planned((*first, *_poisoned(first, graph, cases)), tuple(rest))


def _plan_dynamic(graph: manifest.Graph, cases: Sequence[Case], half_window: int, limit: int) -> Planned:
    probes = pick_probes(cases)
    alone = [Run(case) for case in dict.fromkeys([*probes, *spread(cases)])]
    first, rest = alone[: len(probes)], alone[len(probes) :]
    if not graph.takes_mask:
        return Planned((*first, *_equal_rows(probes, cases)), tuple(rest))
    padded = [Run(case, pad_to=min(limit, case.tokens + 2 * half_window + 3)) for case in probes]
    batched = [
        Run(
            case,
            companions=tuple(probes[index - step] for step in range(1, COMPANIONS + 1)),
            row=index % (COMPANIONS + 1),
        )
        for index, case in enumerate(probes)
    ]
    return Planned((*first, *padded, *batched, *_poisoned(padded, graph, cases)), tuple(rest))


def _shorter_bucket(graph: manifest.Graph, graphs: Sequence[manifest.Graph]) -> int:
    """Give the longest bucket below this one that answers the same exit: serve gives it the texts that fit."""
    return max(
        (
            other.sequence
            for other in graphs
            if other.sequence is not None
            and graph.sequence is not None
            and other.sequence < graph.sequence
            and other.exit_layer == graph.exit_layer
        ),
        default=0,
    )


def _poisoned(candidates: Sequence[Run], graph: manifest.Graph, cases: Sequence[Case]) -> list[Run]:
    """Repeat some runs, spread over all lengths, with the longest text's ids under the mask."""
    if not graph.takes_mask:
        return []
    longest = max(cases, key=lambda case: (case.tokens, case.id))
    padded = [run for run in candidates if run.padding_class(graph) != "none"]
    return [replace(run, poison=longest) for run in evenly(padded, POISONED_COUNT)]


def _equal_rows(probes: Sequence[Case], cases: Sequence[Case]) -> list[Run]:
    """Batch each probe with up to two other cases of its own length: what a graph without a mask can be fed."""
    by_length: dict[int, list[Case]] = {}
    for case in cases:
        by_length.setdefault(case.tokens, []).append(case)
    groups = [(probe, [case for case in by_length[probe.tokens] if case != probe][:COMPANIONS]) for probe in probes]
    filled = [(probe, tuple(others)) for probe, others in groups if others]
    return [Run(probe, others, row=index % (len(others) + 1)) for index, (probe, others) in enumerate(filled)]


def pick_probes(cases: Sequence[Case], count: int = PROBE_COUNT) -> list[Case]:
    """Pick cases spread evenly over all lengths: the shortest, the longest, and those between."""
    return evenly(sorted(cases, key=lambda case: (case.tokens, case.id)), count)


def spread(cases: Sequence[Case]) -> list[Case]:
    """Order cases so that the first n, for any n, are spread over all lengths."""
    ordered = sorted(cases, key=lambda case: (case.tokens, case.id))
    bits = max(1, (len(ordered) - 1).bit_length())
    places = sorted(range(len(ordered)), key=lambda place: int(f"{place:0{bits}b}"[::-1], 2))
    return [ordered[place] for place in places]


def evenly(ordered: Sequence[Item], count: int) -> list[Item]:
    """Take `count` items spread evenly, the first and the last among them."""
    if len(ordered) <= count:
        return list(ordered)
    return [ordered[round(index * (len(ordered) - 1) / (count - 1))] for index in range(count)]


def digest_of_runs(planned: Iterable[Run]) -> str:
    """Give one digest for what a graph is asked, so that two records can be seen to rest on the same inputs."""
    listed = [
        [
            run.case.id,
            run.case.ids,
            [companion.ids for companion in run.companions],
            run.pad_to,
            run.row,
            None if run.poison is None else run.poison.ids,
        ]
        for run in planned
    ]
    return digests.sha256_of_bytes(json.dumps(listed).encode())
