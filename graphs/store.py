"""A store: the directory of published bundles that servers read, each bundle there whole or not at all.

    store/
      store.json              what this folder is, and the version of its layout
      lock                    held by the publisher at work
      bundles/<digest>/       one published bundle, read-only, named by the digest over its file listing
      current/<model>         which bundle a model is served from; replaced by one rename
      staging/                what a publisher has not finished; empty between publishes

A publish copies, never links to, what it was given, so nothing that happens to a checkpoint later reaches the store.
Bundles that a newer publish replaced stay: servers may still be reading them, and a pointer can go back.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Self, TypeVar

import msgspec

from vela.graphs import bundle as bundles
from vela.graphs import digests, durable, errors, lock, manifest, member, publication

LAYOUT_VERSION = 1
STORE_FILE = "store.json"
LOCK_FILE = "lock"
BUNDLES_FOLDER = "bundles"
CURRENT_FOLDER = "current"
STAGING_FOLDER = "staging"
LAYOUT_NAMES = {STORE_FILE, LOCK_FILE, BUNDLES_FOLDER, CURRENT_FOLDER, STAGING_FOLDER}
POINTER_LIMIT_BYTES = 4096
LOCK_TIMEOUT_S = 300.0  # a 1.2 GB bundle takes seconds to copy; several publishers may queue


Content = TypeVar("Content", bound=msgspec.Struct)


class _StoreFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    layout_version: int


class _Pointer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: str
    bundle: str


@dataclass(frozen=True, slots=True)
class PublishedBundle:
    """A bundle in a store.

    Attributes:
        name: The model's name.
        folder: Where it lies; its content never changes.
        digest: Over the listing of all its files, records included.
    """

    name: str
    folder: Path
    digest: str

    def open(self) -> bundles.Bundle:
        """Open the bundle; its files are not read yet.

        Raises:
            ManifestInvalid: its manifest cannot be used, or is of another model.
        """
        opened = bundles.Bundle.open(self.folder)
        if opened.manifest.model.name != self.name:
            raise manifest.invalid_manifest(f"the model {opened.manifest.model.name!r}, not {self.name!r}", self.folder)
        return opened

    def check(self) -> bundles.Bundle:
        """Read every byte and compare it with the digest that the bundle is stored under.

        Raises:
            DigestMismatch: a file was changed, added or removed since it was published.
            ManifestInvalid: as `open`.
        """
        opened = self.open()
        try:
            names = member.list_members(self.folder)
            found = digests.digest_of_listing({name: member.sha256_of_member(self.folder, name) for name in names})
        except OSError as cause:
            raise bundles.digest_mismatch(f"what cannot be read ({cause})", self.folder.name, self.digest) from cause
        if found != self.digest:
            opened.check_files()  # names the file, where the manifest knows it
            raise bundles.digest_mismatch(f"sha256 {found} over its listing", self.folder.name, self.digest)
        return opened


@dataclass(frozen=True, slots=True)
class Store:
    """An opened store. Opening and reading take no lock and write nothing.

    Attributes:
        path: Its folder.
    """

    path: Path

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a store for reading or publishing.

        Raises:
            StoreError: there is none, or its layout is of another version.
        """
        facts = _read(path, STORE_FILE, _StoreFacts)
        if facts.layout_version != LAYOUT_VERSION:
            raise _unusable(f"layout version {facts.layout_version}", f"version {LAYOUT_VERSION}", path)
        return cls(path)

    @classmethod
    def create_or_open(cls, path: Path, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> Self:
        """Open a store; make it where there is nothing, or finish one whose making was interrupted.

        Raises:
            StoreError: the folder holds other things, or cannot be written.
        """
        if (path / STORE_FILE).exists():
            return cls.open(path)
        with _writing(path):
            foreign = {entry.name for entry in path.iterdir()} - LAYOUT_NAMES if path.exists() else set()
            if foreign:
                found = f"a folder that holds {', '.join(sorted(foreign)[:3])}"
                raise _unusable(found, "a store, an empty folder or none", path)
            durable.make_folders(path)
            with lock.hold(path / LOCK_FILE, lock_timeout_s):
                _lay_out(path)
        return cls.open(path)

    def models(self) -> dict[str, PublishedBundle]:
        """Give what is published, by model name, sorted; each is whole.

        Raises:
            StoreError: a pointer is damaged, or leads to no bundle.
        """
        found = {}
        for name in _pointer_names(self.path):
            pointer = _read(self.path / CURRENT_FOLDER, name, _Pointer)
            bundle = self._bundle(name, pointer.bundle)
            if pointer.model != name or not digests.is_sha256(pointer.bundle) or not bundle.folder.is_dir():
                found_there = f"a pointer from {name!r} to the bundle {pointer.bundle!r} of {pointer.model!r}"
                raise _unusable(found_there, "a bundle of that model in the store", self.path)
            found[name] = bundle
        return found

    def publish(
        self, folder: Path, records: Sequence[Path] = (), *, lock_timeout_s: float = LOCK_TIMEOUT_S
    ) -> PublishedBundle:
        """Copy a verified bundle into the store and make it its model's current one.

        Args:
            folder: The bundle, as the gate left it.
            records: Records made elsewhere for this very bundle, published with it.
            lock_timeout_s: How long to wait for another publisher, in seconds.

        Returns:
            The published bundle; the same one, and nothing written, where it was published before.

        Raises:
            NotVerified: a graph has no pass on the CPU, or a record does not agree with the bundle.
            ManifestInvalid: the manifest cannot be used.
            DigestMismatch: a file is not the one that the manifest names, or is a link.
            StoreError: the store is locked or cannot be written.
        """
        contents = publication.Contents.from_bundle(bundles.Bundle.open(folder), records)
        target = self._bundle(contents.model, contents.digest)
        with _writing(self.path), lock.hold(self.path / LOCK_FILE, lock_timeout_s):
            self._clean_staging()
            if target.folder.exists():
                contents.check()
                target.check()
            else:
                self._place(contents, target.folder)
            self._point(target)
        return target

    def _bundle(self, name: str, digest: str) -> PublishedBundle:
        return PublishedBundle(name, self.path / BUNDLES_FOLDER / digest, digest)

    def _place(self, contents: publication.Contents, target: Path) -> None:
        """Copy files into staging, checking each as it is copied, then move the whole folder to its name."""
        staged = self.path / STAGING_FOLDER / target.name
        try:
            durable.make_folder(staged)
            folders = sorted({parent for name in contents.files for parent in PurePosixPath(name).parents})
            for inner in folders[1:]:
                durable.make_folder(staged / inner)
            for name, source in contents.files.items():
                source.copy_to(staged / name)
            for inner in reversed(folders):
                durable.sync_folder(staged / inner)
            durable.rename(staged, target)
        finally:
            self._clean_staging()

    def _point(self, target: PublishedBundle) -> None:
        """Replace a model's pointer; readers see the old one or the new one."""
        pointer, content = self.path / CURRENT_FOLDER / target.name, _encode(_Pointer(target.name, target.digest))
        if pointer.exists() and pointer.read_bytes() == content:
            return
        staged = self.path / STAGING_FOLDER / f"{target.name}.pointer"
        durable.write_file(staged, content)
        durable.rename(staged, pointer)

    def _clean_staging(self) -> None:
        """Remove what a publisher that died left; the caller holds the lock, so nobody is at work there."""
        durable.empty_folder(self.path / STAGING_FOLDER)


def _lay_out(path: Path) -> None:
    """Make a store's folders, then the file that makes it one; each step may find an earlier attempt's work."""
    for name in (BUNDLES_FOLDER, CURRENT_FOLDER, STAGING_FOLDER):
        durable.make_folder(path / name)
    durable.empty_folder(path / STAGING_FOLDER)
    if not (path / STORE_FILE).exists():
        staged = path / STAGING_FOLDER / STORE_FILE
        durable.write_file(staged, _encode(_StoreFacts(LAYOUT_VERSION)))
        durable.rename(staged, path / STORE_FILE)


def _pointer_names(path: Path) -> list[str]:
    try:
        names = [entry.name for entry in (path / CURRENT_FOLDER).iterdir()]
    except OSError as cause:
        raise _unusable(f"{CURRENT_FOLDER}/ that cannot be listed ({cause.strerror})", "a store", path) from cause
    return sorted(name for name in names if not name.startswith("."))  # network file systems leave such names


def _read(root: Path, name: str, kind: type[Content]) -> Content:
    try:
        return msgspec.json.decode(member.read_member(root, name, POINTER_LIMIT_BYTES), type=kind)
    except OSError as cause:
        raise _unusable(f"{name}: {member.describe(cause, root, name)}", "a store that Vela made", root) from cause
    except msgspec.MsgspecError as cause:
        raise _unusable(f"{name} with content that does not fit ({cause})", "what Vela wrote", root) from cause


def _encode(content: msgspec.Struct) -> bytes:
    return msgspec.json.encode(content) + b"\n"


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn what the file system refuses (no space, no permission, read-only) into one clear error."""
    try:
        yield
    except OSError as cause:
        raise errors.StoreError(
            f"a file system that refuses: {cause}",
            expected="a store that can be written",
            where=str(path),
            fix="Make room or grant write permission, then publish again; nothing half-written is visible.",
        ) from cause


def _unusable(found: str, expected: str, path: Path) -> errors.StoreError:
    return errors.StoreError(
        found, expected=expected, where=str(path), fix="Name the folder that `vela publish --store` made."
    )
