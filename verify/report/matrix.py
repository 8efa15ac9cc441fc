"""Graphs by classes of inputs: where a graph is far from its reference, in units of the bound.

One cell for each graph, length class and padding class, so that "wrong beyond 512 tokens" or "wrong where padded" is
a pattern that shows before any number is read.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from vela.graphs import record
from vela.verify.report import limits, visible

Level = Literal["calm", "near", "broken", "unbounded"]
NEAR = 0.5  # from half of the bound on a cell is pointed out
PADDING_CLASSES = ("none", "some", "window")
COLUMN_LIMIT = 48  # eight length classes with three of padding are 24; a record of the gate has no more


@dataclass(frozen=True, slots=True)
class Column:
    """A class of inputs."""

    length_class: str
    padding_class: str

    @classmethod
    def of(cls, group: record.ClassStatistics) -> Self:
        """Name the class that statistics are about."""
        return cls(group.length_class, group.padding_class)

    @property
    def place(self) -> tuple[int, str, int, str]:
        """Order columns by length, then by how much was padded; unknown names come last."""
        first = re.match(r"[0-9]{1,9}", self.length_class)
        length = int(first[0]) if first else 10**9
        padding = [*PADDING_CLASSES, self.padding_class].index(self.padding_class)
        return length, self.length_class, padding, self.padding_class


@dataclass(frozen=True, slots=True)
class Cell:
    """One graph on one class of inputs.

    Attributes:
        level: How close the worst figure is to its bound.
        worst: The figure that is closest to its bound; None where the bar bounds none.
        cases: Inputs compared.
        lost: Decisions that differ, near ties left out.
    """

    level: Level
    worst: limits.Measured | None
    cases: int
    lost: int

    @classmethod
    def from_statistics(cls, group: record.ClassStatistics, bounds: limits.Limits) -> Self:
        """Find the figure that is closest to its bound, or furthest beyond it."""
        worst = max(bounds.measure(group), key=lambda measured: measured.share, default=None)
        level: Level = "unbounded"
        if worst is not None:
            level = "broken" if worst.share > 1.0 else "near" if worst.share >= NEAR else "calm"
        return cls(level, worst, group.cases, group.cases - group.agreed)

    @property
    def percent(self) -> int:
        """Give how much of the cell is filled: a bar that is full at the bound."""
        return 0 if self.worst is None else round(100 * min(1.0, max(0.0, self.worst.share)))

    @property
    def detail(self) -> str:
        """Say the cell in words."""
        said = [f"{self.cases:,} inputs"]
        if self.worst is not None:
            found, bound = visible.small_number(self.worst.value), visible.small_number(self.worst.bound)
            said.insert(0, f"{self.worst.name} {found}, bound {bound}")
        if self.lost:
            said.append(f"{self.lost:,} decisions differ")
        return "; ".join(said)


@dataclass(frozen=True, slots=True)
class Matrix:
    """All graphs on all classes of inputs.

    Attributes:
        columns: In order of length, then of padding.
        rows: One for each graph, a cell for each column; None where a graph has no input of that class.
        hidden: Columns beyond what a page can show.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell | None, ...], ...]
    hidden: int

    @classmethod
    def from_records(cls, records: Sequence[record.Record], bounds: Sequence[limits.Limits]) -> Self:
        """Lay out the statistics of records; bounds are one for each."""
        found = {Column.of(group) for one in records for group in one.statistics}
        columns = tuple(sorted(found, key=lambda column: column.place))[:COLUMN_LIMIT]
        rows = []
        for one, its_bounds in zip(records, bounds, strict=True):
            cells = {Column.of(group): Cell.from_statistics(group, its_bounds) for group in one.statistics}
            rows.append(tuple(cells.get(column) for column in columns))
        return cls(columns, tuple(rows), len(found) - len(columns))

    @property
    def lengths(self) -> tuple[tuple[str, int], ...]:
        """Give each length class with how many columns it spans."""
        groups = itertools.groupby(self.columns, key=lambda column: column.length_class)
        return tuple((name, len(tuple(group))) for name, group in groups)
