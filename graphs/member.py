"""A file inside a folder that nobody vouches for: opened without following a link, so that it stays inside.

Bundles and stores come from elsewhere. A name that a manifest gives is walked folder by folder on descriptors, each
opened with `O_NOFOLLOW`, so no rename or link between a check and the use of a file can lead out of the folder. What
is read afterwards comes from the descriptor and not from the name again.
"""

import errno
import os
import stat
from pathlib import Path, PurePosixPath

from vela.graphs import digests

_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | _NO_LINK  # a FIFO must not block the opener; it is refused right after


def is_plain_name(name: str) -> bool:
    """Say whether `name` is a relative path in normal form that cannot climb out of a folder."""
    pure = PurePosixPath(name)
    if not name or "\\" in name or "\0" in name:
        return False
    return not pure.is_absolute() and ".." not in pure.parts and str(pure) == name


def open_member(root: Path, name: str) -> int:
    """Open a regular file inside `root` for reading; the caller closes the descriptor.

    Args:
        root: A folder; it may itself be reached through links, as the caller named it.
        name: A plain relative name in it, `/` between folders.

    Raises:
        OSError: there is no such file, it is no regular file, or a link is on the way; `describe` words it.
        ValueError: the name is not plain.
    """
    if not is_plain_name(name):
        raise ValueError(f"not a plain relative name: {name!r}")
    *folders, last = PurePosixPath(name).parts
    folder = os.open(root, _FOLDER)
    try:
        for part in folders:
            inner = os.open(part, _FOLDER | _NO_LINK, dir_fd=folder)
            os.close(folder)
            folder = inner
        descriptor = os.open(last, _FILE, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    return descriptor


def describe(cause: OSError, root: Path, name: str) -> str:
    """Say in words why `open_member` did not open a file."""
    parts = PurePosixPath(name).parts
    if any((root / Path(*parts[:count])).is_symlink() for count in range(1, len(parts) + 1)):
        return "a symbolic link"
    if cause.errno in (errno.ENOENT, errno.ENOTDIR):
        return "no such file"
    if cause.errno in (errno.EISDIR, errno.ENXIO):
        return "something that is no regular file"
    return f"a file that cannot be read ({cause.strerror})"


def read_member(root: Path, name: str, limit_bytes: int) -> bytes:
    """Read a whole file inside `root` that must not be larger than `limit_bytes`.

    Raises:
        OSError: as `open_member`; EFBIG where the file is larger.
    """
    with os.fdopen(open_member(root, name), "rb") as stream:
        content = stream.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise OSError(errno.EFBIG, f"more than {limit_bytes} bytes", name)
    return content


def sha256_of_member(root: Path, name: str) -> str:
    """Give the lower-case hexadecimal SHA-256 of a file inside `root`.

    Raises:
        OSError: as `open_member`.
    """
    with os.fdopen(open_member(root, name), "rb") as stream:
        return digests.sha256_of_stream(stream)


def list_members(root: Path) -> list[str]:
    """List the names of everything inside `root` that is no folder, links included, sorted.

    Raises:
        OSError: a folder cannot be read.
    """
    names = []
    pending = [root]
    while pending:
        folder = pending.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(Path(entry.path))
                else:
                    names.append(Path(entry.path).relative_to(root).as_posix())
    return sorted(names)
