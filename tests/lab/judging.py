"""Where the laboratory meets the gate, from the outside: a folder goes in, statuses of checks by name come out.

The only module here that knows the gate. References are remembered between faults, because the checkpoint is not what
is under test: it answers the same texts a hundred times. And only a share of the corpus is asked, and no fresh process
unless it is wanted; what gets through that is asked all of it, and by all processes.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from vela.export import verification
from vela.graphs import errors, store
from vela.serve import engine, providers
from vela.verify import checkpoint, ground, options, rows, schedule

OPENING, PUBLISHING = "opening", "publishing"  # what refuses besides the gate's own checks

READ_ALL = rows.read_corpus  # taken before the suite leaves texts out for its other tests


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a bundle.

    Attributes:
        verdict: The gate's, or `refused` where it could not be judged or published at all.
        statuses: By check, in the record's order.
        cause: The gate's, or the refusal.
        graph_sha256: Of the graph that was judged.
        compared: Runs that were compared.
        named: What the gate says is wrong, in one word; empty where it does not know.
    """

    verdict: str
    statuses: Mapping[str, str]
    cause: str
    graph_sha256: str = ""
    compared: int = 0
    named: str = ""

    @property
    def failed(self) -> tuple[str, ...]:
        return tuple(name for name, status in self.statuses.items() if status == "failed")

    @property
    def is_let_through(self) -> bool:
        return self.verdict == "passed"


class _Remembering:
    """A reference that is asked for each row once."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._answers: dict[tuple[int, ...], Any] = {}
        self.facts = inner.facts

    def answer(self, rows: Sequence[tuple[int, ...]]) -> list[Any]:
        fresh = [row for row in dict.fromkeys(rows) if row not in self._answers]
        if fresh:
            self._answers |= zip(fresh, self._inner.answer(fresh), strict=True)
        return [self._answers[row] for row in rows]


class _RememberingMutant:
    """A mutant that is asked for each row, with so many pads behind it, once."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._answers: dict[tuple[tuple[int, ...], int], Any] = {}
        self.facts = inner.facts

    def answer(self, rows: Sequence[tuple[int, ...]], *, pads: int = 0) -> list[Any]:
        fresh = [row for row in dict.fromkeys(rows) if (row, pads) not in self._answers]
        if fresh:
            found = self._inner.answer(fresh, pads=pads)
            self._answers |= {(row, pads): answer for row, answer in zip(fresh, found, strict=True)}
        return [self._answers[row, pads] for row in rows]


@dataclass(slots=True)
class Judge:
    """Judges bundles, remembering the reference of each checkpoint.

    Attributes:
        share: Every how many-th text of the corpus is asked; made texts and probes always are.
        references: By digest of the checkpoint's files.
    """

    share: int = 1
    references: dict[str, ground.References] = field(default_factory=dict)

    def judge(
        self,
        folder: Path,
        source: Path,
        graph_ids: tuple[str, ...],
        *,
        max_tokens: int,
        is_fail_fast: bool = False,
        session: engine.SessionOptions | None = None,
        entries: Mapping[str, str] | None = None,
        share: int | None = None,
        processes: int = 0,
    ) -> list[Outcome]:
        """Ask the gate about some graphs of a bundle."""
        asked = options.GateOptions(
            max_tokens=max_tokens,
            graph_ids=graph_ids,
            is_fail_fast=is_fail_fast,
            session=session or engine.SessionOptions(threads=1),
        )
        try:
            with self._remembered(), _configured(entries or {}), _hurried(share or self.share, processes):
                records = verification.verify_folder(folder, source, asked, lambda _: None)
        except errors.VelaError as problem:
            return [Outcome("refused", {OPENING: "failed"}, f"{type(problem).__name__}: {problem}")]
        return [
            Outcome(
                found.verdict,
                {check.name: check.status for check in found.checks},
                found.cause,
                found.graph_sha256,
                found.compared,
                found.named or "",
            )
            for found in records
        ]

    @contextlib.contextmanager
    def _remembered(self) -> Iterator[None]:
        load = verification.make_references

        def recall(source: checkpoint.Checkpoint) -> ground.References:
            key = str(sorted(source.listing().items()))
            if key not in self.references:
                found = load(source)
                self.references[key] = ground.References(
                    _Remembering(found.exact),
                    _Remembering(found.wide),
                    tuple(map(_RememberingMutant, found.mutants)),
                    found.states,
                    found.suspects,
                )
            return self.references[key]

        with mock.patch.object(verification, "make_references", recall):
            yield


def publish(folder: Path, to: Path) -> Outcome:
    """Try to publish a bundle."""
    try:
        store.Store.create_or_open(to).publish(folder)
    except errors.VelaError as problem:
        return Outcome("refused", {PUBLISHING: "failed"}, f"{type(problem).__name__}: {problem}")
    return Outcome("passed", {PUBLISHING: "passed"}, "")


@contextlib.contextmanager
def _hurried(share: int, processes: int) -> Iterator[None]:
    """Let the gate read every so many-th text and start so many processes; a share of 1 changes nothing."""
    started = processes if share > 1 else schedule.FRESH_PROCESSES

    def thinned(*arguments: Any) -> rows.Corpus:
        whole = READ_ALL(*arguments)
        return dataclasses.replace(whole, texts=whole.texts[::share], pairs=whole.pairs[::share])

    with (
        mock.patch.object(rows, "read_corpus", thinned),
        mock.patch.object(schedule, "FRESH_PROCESSES", started),
    ):
        yield


@contextlib.contextmanager
def _configured(entries: Mapping[str, str]) -> Iterator[None]:
    """Let every session that is opened have more configuration entries."""
    make = providers.session_options

    def configured(*arguments: Any, **named: Any) -> Any:
        options = make(*arguments, **named)
        for key, value in entries.items():
            options.add_session_config_entry(key, value)
        return options

    with mock.patch.object(providers, "session_options", configured) if entries else contextlib.nullcontext():
        yield
