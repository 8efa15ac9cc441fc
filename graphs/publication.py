"""What a publish would put into a store: every file by name, with where it is read from and the digest it must have.

It is settled before anything is written: the rules were kept, the names are known, and so is the digest that the
bundle will be stored under. Files that nothing names (a README, a cache, an editor's backup) are not published.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vela.graphs import bundle as bundles
from vela.graphs import contract, digests, durable, errors, manifest, member, verdicts

# Written by the gate beside the records, for people and for later checks; published as they are, if they are there.
OPTIONAL_FILES = (
    contract.REPORT_FILE,
    f"{contract.RECORDS_FOLDER}/{contract.REPORT_FILE}",
    contract.GOLDEN_FILE,
    contract.ATTESTATION_FILE,
)
NAME_DIGITS = 12  # of a record's digest in the name of an added record's file; two that collide are refused


@dataclass(frozen=True, slots=True)
class Source:
    """A file to publish.

    Attributes:
        root: Folder that it is read from.
        name: Its name there.
        sha256: Digest that its bytes must have.
    """

    root: Path
    name: str
    sha256: str

    def copy_to(self, target: Path) -> None:
        """Copy the file to a new one, refusing it when the bytes that arrived are others.

        Raises:
            DigestMismatch: it is missing, a link, or has other bytes.
            OSError: the new file cannot be written.
        """
        try:
            descriptor = member.open_member(self.root, self.name)
        except OSError as cause:
            found = member.describe(cause, self.root, self.name)
            raise bundles.digest_mismatch(found, self.name, self.sha256) from cause
        try:
            arrived = durable.copy_file(descriptor, target)
        finally:
            os.close(descriptor)
        if arrived != self.sha256:
            raise bundles.digest_mismatch(f"sha256 {arrived}", self.name, self.sha256)


@dataclass(frozen=True, slots=True)
class Contents:
    """All that one publish puts into a store.

    Attributes:
        model: The model's name.
        files: Sources by the name that they get in the store.
    """

    model: str
    files: dict[str, Source]

    @classmethod
    def from_bundle(cls, bundle: bundles.Bundle, added: Sequence[Path] = ()) -> Self:
        """Settle what to publish of a bundle, with records that were made elsewhere.

        Raises:
            NotVerified: a record does not agree with the bundle, or a graph has no pass on the CPU.
        """
        own = verdicts.read_all_evidence(bundle)
        known = {item.sha256 for item in own}
        others = [verdicts.read_evidence(path.parent, path.name) for path in added]
        others = [item for item in others if item.sha256 not in known]
        verdicts.check_publishable(bundle, (*own, *others))
        files = {name: Source(bundle.folder, name, sha256) for name, sha256 in bundle.expected_digests().items()}
        files[contract.MANIFEST_FILE] = Source(bundle.folder, contract.MANIFEST_FILE, bundle.manifest_sha256)
        files |= {item.name: Source(item.root, item.name, item.sha256) for item in own}
        files |= {added_name(item): Source(item.root, item.name, item.sha256) for item in others}
        files |= {name: _source_as_it_is(bundle.folder, name) for name in OPTIONAL_FILES if _is_there(bundle, name)}
        return cls(bundle.manifest.model.name, dict(sorted(files.items())))

    @property
    def digest(self) -> str:
        """Digest over the listing: the name of the bundle in a store."""
        return digests.digest_of_listing({name: source.sha256 for name, source in self.files.items()})

    def check(self) -> None:
        """Compare every source with its digest, without copying.

        Raises:
            DigestMismatch: names the first file that is not the one settled on.
        """
        for source in self.files.values():
            bundles.check_file(source.root, source.name, source.sha256)


def added_name(evidence: verdicts.Evidence) -> str:
    """Name an added record in the bundle; with its digest, because another machine's CPU is also called `cpu`.

    Raises:
        NotVerified: the record's device is no name of a device.
    """
    record = evidence.record
    device = (record.engine.device if record.engine else "none").replace(":", "-")
    if not manifest.is_name(device):
        raise errors.NotVerified(
            f"a record for the device {device!r}",
            expected="cpu, migraphx:N, rocm:N or cuda:N",
            where=evidence.name,
            fix="Publish the file that `vela verify-graph` wrote.",
        )
    return f"{contract.RECORDS_FOLDER}/{record.graph_id}.{device}.{evidence.sha256[:NAME_DIGITS]}.json"


def _is_there(bundle: bundles.Bundle, name: str) -> bool:
    return os.path.lexists(bundle.folder / name)


def _source_as_it_is(root: Path, name: str) -> Source:
    """Pin a file that no manifest pins to the bytes that it has now.

    Raises:
        DigestMismatch: it cannot be read, or is a link.
    """
    try:
        return Source(root, name, member.sha256_of_member(root, name))
    except OSError as cause:
        found = member.describe(cause, root, name)
        raise bundles.digest_mismatch(found, name, "(any, of a regular file)") from cause
