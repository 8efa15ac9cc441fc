"""Changes to a file system that survive a crash: the only calls through which a store is written.

Each function is one step whose effect is either there or not there once it returned; between two of them a process
may be killed. The order of the steps is the store's business. Every call that changes a file goes through this
module's `os` and `fcntl`, so that the fault injection in the tests can name and count all of them.
"""

import errno
import fcntl
import hashlib
import os
from pathlib import Path

from vela.graphs import digests

CHUNK_BYTES = 1 << 20  # hashing is the cost at this size, and a chunk stays in cache between read, hash and write
FILE_MODE = 0o444  # what is published is never edited, whatever the umask was
FOLDER_MODE = 0o755

# The ioctl that makes a file share another's blocks, copied when one of them changes.
# Source: linux/fs.h, `_IOW(0x94, 9, int)`.
FICLONE = 0x40049409
# What file systems without shared blocks answer, and what two file systems answer.
NO_CLONE_ERRNOS = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.EPERM, errno.ENOSYS, errno.ETXTBSY}


def make_folder(path: Path) -> None:
    """Make a folder; one that is there already is fine, and is given the mode of published folders."""
    try:
        os.mkdir(path, FOLDER_MODE)
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    os.chmod(path, FOLDER_MODE)  # mkdir's mode is cut by the umask


def make_folders(path: Path) -> None:
    """Make a folder and the parents that it lacks, each made durable in its own parent."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        make_folder(folder)
        sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Make a folder's entries durable: what was created in it, or renamed into it, stays."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes) -> None:
    """Write a new file and make its bytes durable; its name is durable once its folder is synced."""
    target = _create(path)
    try:
        _write_all(target, content)
        _finish(target)
    finally:
        os.close(target)


def copy_file(source: int, path: Path) -> str:
    """Copy an open file to a new one and make its bytes durable.

    The digest is of the bytes that the new file holds, taken while or after they got there: a source that changes
    under the copy shows as another digest and never as a checked file with other bytes.

    Args:
        source: Descriptor opened for reading, at its start.
        path: The file to make.

    Returns:
        Lower-case hexadecimal SHA-256 of the new file.
    """
    target = _create(path)
    try:
        sha256 = _hash(target) if _clone(source, target) else _copy_and_hash(source, target)
        _finish(target)
    finally:
        os.close(target)
    return sha256


def rename(source: Path, target: Path) -> None:
    """Move a file over another, or a folder to a free name, in one step, and make the move durable.

    Both names must lie on one file system.
    """
    os.rename(source, target)
    sync_folder(target.parent)


def empty_folder(path: Path) -> None:
    """Remove all that a folder holds; links are removed and never followed."""
    with os.scandir(path) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                empty_folder(Path(entry.path))
                os.rmdir(entry.path)
            else:
                os.unlink(entry.path)


def open_lock_file(path: Path) -> int:
    """Open a lock file for reading and writing, made if it is not there; the caller closes it."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)


def overwrite(descriptor: int, content: bytes) -> None:
    """Replace what an open file holds. Not durable and not atomic: for notes to people, such as a lock's holder."""
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    _write_all(descriptor, content)


def _create(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)


def _finish(target: int) -> None:
    os.fchmod(target, FILE_MODE)
    os.fsync(target)


def _write_all(target: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(target, left) :]


def _clone(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, FICLONE, source)
    except OSError as cause:
        if cause.errno in NO_CLONE_ERRNOS:
            return False
        raise
    return True


def _hash(target: int) -> str:
    with os.fdopen(os.dup(target), "rb") as stream:
        stream.seek(0)
        return digests.sha256_of_stream(stream)


def _copy_and_hash(source: int, target: int) -> str:
    state = hashlib.sha256()
    while chunk := os.read(source, CHUNK_BYTES):
        state.update(chunk)
        _write_all(target, chunk)
    return state.hexdigest()
