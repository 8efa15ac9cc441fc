"""Collect the records that a report is about: those of a bundle, and any that were made elsewhere.

Records are untrusted input, read by the rules of publish and serve: bounded, without following a link, and only where
they are about the bundle as it lies there. One that is not is left out by name, because a page that one stale file
keeps from being made helps nobody; a file that the caller names must be a record of the bundle.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vela.graphs import bundle, contract, errors, record, verdicts

RECORDS_LIMIT = 512  # sixty graphs on eight engines; more is no bundle that a person reads


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that is no record of this bundle."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Collected:
    """What a report is about.

    Attributes:
        name: The model or the folder.
        records: In the manifest's order of graphs, then by device.
        unjudged: FP32 graphs of the bundle without a record; 16-bit copies need none.
        left_out: Files beside the records that are none of this bundle.
    """

    name: str
    records: tuple[record.Record, ...]
    unjudged: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @classmethod
    def from_bundle(cls, folder: Path, added: Sequence[Path] = ()) -> Self:
        """Collect a bundle's records, and records of it that were made elsewhere.

        Raises:
            ManifestInvalid: the bundle cannot be opened.
            NotVerified: an added file is no record of this bundle.
            NothingCompared: there is no record at all.
        """
        opened = bundle.Bundle.open(folder)
        evidence, left_out = _own_evidence(opened)
        for path in added:
            evidence.append(_agreeing(opened, verdicts.read_evidence(path.parent, path.name)))
        found = _distinct(evidence, folder.name)
        places = {graph.id: place for place, graph in enumerate(opened.manifest.graphs)}
        ordered = sorted(found, key=lambda one: (places[one.graph_id], _device(one)))
        judged = {one.graph_id for one in found}
        unjudged = tuple(graph.id for graph in opened.exact_graphs() if graph.id not in judged)
        return cls(opened.manifest.model.name, tuple(ordered), unjudged, tuple(left_out))

    @classmethod
    def from_files(cls, files: Sequence[Path]) -> Self:
        """Collect records by file, in the order given.

        Raises:
            NotVerified: a file cannot be read, or is no record of the gate.
            VerificationError: the records are of several bundles.
        """
        evidence = [verdicts.read_evidence(path.parent, path.name) for path in files]
        found = _distinct(evidence, "the command line")
        manifests = sorted({one.manifest_sha256 for one in found})
        if len(manifests) > 1:
            raise errors.VerificationError(
                f"records for {len(manifests)} manifests ({', '.join(sha256[:12] for sha256 in manifests)})",
                expected="records of one bundle",
                where="the command line",
                fix="Render one report for each bundle.",
            )
        return cls(_name_of(files), found)


def _own_evidence(opened: bundle.Bundle) -> tuple[list[verdicts.Evidence], list[LeftOut]]:
    """Read what lies in the bundle's folder of records; what is no record of the bundle is named apart."""
    folder = opened.folder / contract.RECORDS_FOLDER
    names = sorted(path.name for path in folder.glob("*.json")) if folder.is_dir() else []
    if len(names) > RECORDS_LIMIT:
        raise _unreadable(f"{len(names):,} records", opened.folder.name)
    kept, left_out = [], []
    for name in names:
        try:
            item = verdicts.read_evidence(opened.folder, f"{contract.RECORDS_FOLDER}/{name}")
            kept.append(_agreeing(opened, item))
        except errors.NotVerified as problem:
            left_out.append(LeftOut(name, f"found {problem.found}; expected {problem.expected}"))
    return kept, left_out


def _agreeing(opened: bundle.Bundle, item: verdicts.Evidence) -> verdicts.Evidence:
    """Refuse a record that is not about this bundle, but keep the failure of a graph whose file was altered.

    Raises:
        NotVerified: it is for another manifest or graph, or a pass that does not hold for the files as they are.
    """
    found = item.record
    is_ours = found.manifest_sha256 == opened.manifest_sha256
    is_ours = is_ours and found.graph_id in {graph.id for graph in opened.manifest.graphs}
    if not (found.verdict == "failed" and is_ours):
        verdicts.check_agreement(opened, item)
    return item


def _distinct(evidence: Sequence[verdicts.Evidence], where: str) -> tuple[record.Record, ...]:
    """Keep one of several equal files."""
    found = {item.sha256: item.record for item in evidence}
    if len(found) > RECORDS_LIMIT:
        raise _unreadable(f"{len(found):,} records", where)
    if not found:
        raise errors.NothingCompared(
            "no record", expected="records of the gate", where=where, fix="Run `vela verify-graph` on the bundle first."
        )
    return tuple(found.values())


def _unreadable(found: str, where: str) -> errors.VerificationError:
    return errors.VerificationError(
        found,
        expected=f"at most {RECORDS_LIMIT}",
        where=where,
        fix="Name the records that the report should be about.",
    )


def _device(found: record.Record) -> str:
    return found.engine.device if found.engine else ""


def _name_of(files: Sequence[Path]) -> str:
    """Name the bundle that the files lie in, where they lie in one."""
    folders = {path.absolute().parent for path in files}
    if len(folders) == 1:
        (folder,) = folders
        return folder.parent.name if folder.name == contract.RECORDS_FOLDER else folder.name
    return f"{len(files)} records"
