"""A model's place in the Hub's cache, laid out as huggingface_hub lays it out, so that either finds what the other has.

Contents lie by digest in `blobs`; a revision is a folder of links to them, named after its commit. A content is
gathered beside its final name and renamed when its digest is right, so nothing half-made ever bears a file's name.
Source: huggingface.co/docs/huggingface_hub/guides/manage-cache.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vela.graphs import digests, model_table

LOCK_MODE = 0o664  # as huggingface_hub's: a group may share a cache


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pinned model's files lie.

    Attributes:
        folder: The repository's.
        snapshot: The revision's.
    """

    folder: Path
    snapshot: Path

    @classmethod
    def of(cls, cache: Path, entry: model_table.ModelEntry) -> "Place":
        """Give the place of a pinned model in a cache."""
        folder = cache / f"models--{entry.repository.replace('/', '--')}"
        return cls(folder, folder / "snapshots" / entry.revision)

    def digest_of(self, name: str) -> str:
        """Give the digest of a file as the cache has it; empty where it has none."""
        path = self.snapshot / name
        return digests.sha256_of_file(path) if path.is_file() else ""

    def has(self, sha256: str) -> bool:
        """Say whether a content is there, under its name and right."""
        path = self._blob(sha256)
        return path.is_file() and digests.sha256_of_file(path) == sha256

    @contextmanager
    def held(self, sha256: str, waiting: Callable[[], None]) -> Iterator[Path]:
        """Give the file in which a content is gathered, to one process at a time.

        Args:
            sha256: The content's digest.
            waiting: Called once, if another process has it.
        """
        lock = self.folder.parent / ".locks" / self.folder.name / f"{sha256}.vela.lock"
        part = self._part(sha256)
        for path in (lock, part):
            path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, LOCK_MODE)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            part.touch()
            yield part
        finally:
            if part.exists() and part.stat().st_size == 0:
                part.unlink()
            os.close(descriptor)

    def keep(self, sha256: str) -> None:
        """Give a gathered content its final name; what bore it, if anything, was not that content."""
        os.replace(self._part(sha256), self._blob(sha256))

    def point(self, name: str, sha256: str) -> None:
        """Give a content its name in the snapshot, in one step."""
        link = self.snapshot / name
        link.parent.mkdir(parents=True, exist_ok=True)
        staged = link.with_name(f".{link.name}.{os.getpid()}")
        staged.unlink(missing_ok=True)
        staged.symlink_to(os.path.relpath(self._blob(sha256), link.parent))
        os.replace(staged, link)

    def _blob(self, sha256: str) -> Path:
        # Of a large file it is the very name that huggingface_hub gives it.
        return self.folder / "blobs" / sha256

    def _part(self, sha256: str) -> Path:
        # With the suffix by which `hf cache prune` knows what was left.
        return self.folder / "blobs" / f"{sha256}.vela.incomplete"
