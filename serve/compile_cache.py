"""Programs that a provider compiled, kept so that none answers for another graph, other weights or another compiler.

MIGraphX's own cache knows a program by the graph's file name and its dimensions, loads what it finds under that name
without a checksum, and says nothing when it compiles anew. So Vela gives it a folder of its own for every identity:
everything that goes into a program, hashed. What a folder holds is bound to digests; a session gets a private copy; and
a program is kept only after its first run gave the golden answers.

    ROOT/<identity>/entry.json      what the identity was made of, and the digests of the programs
    ROOT/<identity>/programs/       what the provider wrote
    ROOT/<identity>.lock            held while programs are compiled, checked and copied
    ROOT/.private-<identity>-…/     a session's copy, or what is being compiled; never read by another session

Source: reference/onnxruntime.md §1.5, the provider's sources; the layout follows the router's own compilation cache.
"""

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from vela.graphs import digests, durable, errors, lock

ENTRY, PROGRAMS = "entry.json", "programs"
ENTRY_LIMIT_BYTES = 1 << 20
PRIVATE_MODE = 0o700
# Another process may be compiling the same program: minutes for a large bucket, more with tuning.
WAIT_S = 3600.0


class Identity(msgspec.Struct, frozen=True):
    """Everything that goes into a compiled program; two that differ in anything share nothing.

    Attributes:
        graph: Digest of the ONNX file.
        weights: Digests of the files that it refers to, by name.
        rows: B.
        tokens: T.
        precision: Of the products.
        options: What the provider was told, but for the place of its cache.
        versions: Of ONNX Runtime's build, and of the libraries that compile, by name.
        processor: What it is compiled for, such as `gfx942`.
        environment: Variables that change what is compiled.
    """

    graph: str
    weights: Mapping[str, str]
    rows: int
    tokens: int
    precision: str
    options: Mapping[str, str]
    versions: Mapping[str, str]
    processor: str
    environment: Mapping[str, str] = {}

    @property
    def digest(self) -> str:
        """Name its folder."""
        return digests.sha256_of_bytes(msgspec.json.encode(self, order="sorted"))


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What entry.json holds: the identity, and each program's digest by its file's name."""

    identity: Identity
    programs: dict[str, str]


@dataclass(slots=True)
class Checkout:
    """A session's own folder of programs.

    Attributes:
        folder: What the provider is told.
        is_warm: Whether programs were there.
        is_proven: Set by the caller when a session over the folder gave the golden answers: only then is it kept.
    """

    folder: Path
    is_warm: bool
    is_proven: bool = field(default=False)


class CompileCache:
    """A folder of compiled programs, for one user.

    Args:
        root: Made, for this user alone, if it is not there.

    Raises:
        CompileCacheInvalid: others may write into it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
        found = root.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise errors.CompileCacheInvalid(
                f"{stat.filemode(found.st_mode)} of user {found.st_uid}",
                expected=f"a folder that only user {os.getuid()} may open (0700): programs are code",
                where=str(root),
                fix="Name a folder of your own, or chmod 700 it.",
            )

    @contextmanager
    def check_out(self, identity: Identity, *, must_be_warm: bool = False) -> Iterator[Checkout]:
        """Give a private copy of an identity's programs, or an empty folder to compile them into.

        The identity is held meanwhile, so that others wait for what is compiled here and do not compile it too. When
        the block ends, new programs are kept if they were proven, and the private folder is removed. Where it ends in
        GoldenMismatch, those that were there are dropped: whoever comes next compiles them.

        Args:
            identity: What they must have been compiled from.
            must_be_warm: Refuse to compile.

        Raises:
            CompileCacheInvalid: `must_be_warm`, and there are none.
        """
        name = identity.digest
        with lock.hold(self._root / f"{name}.lock", WAIT_S):
            self._remove_leftovers(name)
            private = Path(tempfile.mkdtemp(prefix=f".private-{name}-", dir=self._root))
            try:
                programs = private / PROGRAMS
                programs.mkdir(PRIVATE_MODE)
                is_warm = self._copy_out(name, programs)
                if must_be_warm and not is_warm:
                    raise errors.CompileCacheInvalid(
                        f"no program for {identity.rows} rows of {identity.tokens} tokens on {identity.processor}",
                        expected="one that was compiled before (--require-compiled)",
                        where=str(self._root / name),
                        fix="Run `vela compile` with the same store, device and options.",
                    )
                checkout = Checkout(programs, is_warm)
                try:
                    yield checkout
                except errors.GoldenMismatch:
                    self._drop(name)
                    raise
                if checkout.is_proven and not is_warm:
                    self._keep(name, identity, programs)
            finally:
                self._remove(private)

    def _copy_out(self, name: str, programs: Path) -> bool:
        """Copy an entry's programs, each checked as it is copied; drop an entry that is not whole."""
        try:
            entry = self._read(name)
            for file, expected in entry.programs.items():
                self._copy_checked(self._root / name / PROGRAMS / file, programs / file, expected)
        except (OSError, msgspec.MsgspecError, ValueError):  # torn, edited, or from another version
            durable.empty_folder(programs)
            self._drop(name)
            return False
        return bool(entry.programs)

    def _read(self, name: str) -> _Entry:
        with (self._root / name / ENTRY).open("rb") as stream:
            content = stream.read(ENTRY_LIMIT_BYTES + 1)
        if len(content) > ENTRY_LIMIT_BYTES:
            raise ValueError("an entry that is too long")
        entry = msgspec.json.decode(content, type=_Entry)
        there = {path.name for path in (self._root / name / PROGRAMS).iterdir()}
        if entry.identity.digest != name or there != entry.programs.keys():
            raise ValueError("an entry of other programs")
        return entry

    @staticmethod
    def _copy_checked(source: Path, target: Path, expected: str) -> None:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            if durable.copy_file(descriptor, target) != expected:
                raise ValueError("a program of another digest")
        finally:
            os.close(descriptor)

    def _keep(self, name: str, identity: Identity, programs: Path) -> None:
        """Put new programs in their place, in one step."""
        found = sorted(path for path in programs.rglob("*") if path.is_file() and not path.is_symlink())
        if not found or any(path.parent != programs for path in found):
            return  # a provider that keeps nothing, or not where it was told: whoever comes next compiles again
        staged = Path(tempfile.mkdtemp(prefix=f".private-{name}-", dir=self._root))
        try:
            (staged / PROGRAMS).mkdir(PRIVATE_MODE)
            kept = {}
            for path in found:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    kept[path.name] = durable.copy_file(descriptor, staged / PROGRAMS / path.name)
                finally:
                    os.close(descriptor)
            durable.sync_folder(staged / PROGRAMS)
            durable.write_file(staged / ENTRY, msgspec.json.encode(_Entry(identity, kept), order="sorted"))
            durable.sync_folder(staged)
            self._drop(name)
            durable.rename(staged, self._root / name)
        finally:
            self._remove(staged)

    def _drop(self, name: str) -> None:
        """Remove an entry: first out of its place, so that a crash leaves none that is half there."""
        if (self._root / name).exists():
            gone = Path(tempfile.mkdtemp(prefix=f".private-{name}-", dir=self._root))
            durable.rename(self._root / name, gone / "dropped")
            self._remove(gone)

    def _remove_leftovers(self, name: str) -> None:
        """Remove what a process left that died while it held this identity."""
        for path in self._root.glob(f".private-{name}-*"):
            self._remove(path)

    @staticmethod
    def _remove(path: Path) -> None:
        if path.exists():
            durable.empty_folder(path)
            path.rmdir()
