"""A bundle: the checkpoint's folder with its graphs beside the weights, opened as untrusted input.

Export writes it, the gate judges it, publish moves it, serve reads it. Opening checks the manifest; no path that a
manifest names may leave the folder; `check_files` compares digests before anything is used.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vela.graphs import contract, errors, member
from vela.graphs import manifest as manifests


@dataclass(frozen=True, slots=True)
class Bundle:
    """An opened bundle.

    Attributes:
        folder: Where it lies.
        manifest: What it says it holds.
        manifest_sha256: Digest of manifest.json.
    """

    folder: Path
    manifest: manifests.Manifest
    manifest_sha256: str

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a bundle's manifest; files are not read yet.

        Raises:
            ManifestInvalid: the manifest cannot be used, or names a file outside the folder.
        """
        content, sha256 = manifests.read_manifest(folder / contract.MANIFEST_FILE)
        bundle = cls(folder, content, sha256)
        for name in bundle.expected_digests():
            bundle.path(name)
        return bundle

    def expected_digests(self) -> dict[str, str]:
        """Give the digest of every file that the manifest names, checkpoint files first."""
        expected = {name: source.sha256 for name, source in self.manifest.sources.items()}
        expected |= {graph.file: graph.sha256 for graph in self.manifest.graphs}
        return expected

    def path(self, name: str) -> Path:
        """Give the path of a file in the bundle.

        Raises:
            ManifestInvalid: the name is absolute, climbs, or is not in normal form.
        """
        if not member.is_plain_name(name):
            raise manifests.invalid_manifest(f"the file name {name!r}, which may leave the folder", self.folder)
        return self.folder / name

    def graph(self, graph_id: str) -> manifests.Graph:
        """Give the graph called `graph_id`.

        Raises:
            ManifestInvalid: there is none; the message lists what there is.
        """
        known = {graph.id: graph for graph in self.manifest.graphs}
        if graph_id not in known:
            raise errors.ManifestInvalid(
                f"no graph {graph_id!r}",
                expected=f"one of {', '.join(known) or 'none'}",
                where=self.folder.name,
                fix="Name a graph that the bundle holds, or export it.",
            )
        return known[graph_id]

    def exact_graphs(self) -> tuple[manifests.Graph, ...]:
        """Give the graphs that compute in float32: those that a bundle is published for."""
        return tuple(graph for graph in self.manifest.graphs if not graph.is_reduced)

    def exact_of(self, reduced: manifests.Graph) -> manifests.Graph:
        """Give the FP32 graph that a 16-bit copy was made from: the same in all but its type.

        Raises:
            ManifestInvalid: there is none.
        """
        for graph in self.exact_graphs():
            if _answers_of(graph) == _answers_of(reduced):
                return graph
        raise errors.ManifestInvalid(
            f"no FP32 graph that {reduced.id!r} is a copy of",
            expected="one of the same target, inputs and outputs",
            where=self.folder.name,
            fix="Export the bundle again: a copy is judged and timed beside its FP32 graph.",
        )

    def check_files(self, names: Iterable[str] | None = None) -> None:
        """Compare files with the manifest's digests; all of them by default.

        Raises:
            DigestMismatch: a file is missing, is no regular file inside the folder, or has other bytes.
        """
        expected = self.expected_digests()
        for name in expected if names is None else names:
            check_file(self.folder, name, expected[name])


def _answers_of(graph: manifests.Graph) -> tuple[object, ...]:
    """Give what a copy has in common with the graph that it was made from."""
    return graph.target, graph.head, graph.exit_layer, graph.inputs, graph.outputs


def check_file(root: Path, name: str, sha256: str) -> None:
    """Refuse a file of `root` that is missing, is or lies behind a symbolic link, or has another digest.

    Hard links are fine (the weights of an unpublished bundle are one); symbolic links are not, because what they
    lead to can change after the check.

    Raises:
        DigestMismatch: with the file's name, what it is and what it should be.
    """
    try:
        found = member.sha256_of_member(root, name)
    except OSError as cause:
        raise digest_mismatch(member.describe(cause, root, name), name, sha256) from cause
    if found != sha256:
        raise digest_mismatch(f"sha256 {found}", name, sha256)


def digest_mismatch(found: str, name: str, sha256: str) -> errors.DigestMismatch:
    """Make the error for a file that is not the one that a manifest names."""
    return errors.DigestMismatch(
        found,
        expected=f"sha256 {sha256}",
        where=name,
        fix="The file is not the one that the manifest names: restore it, or export the bundle again.",
    )
