"""Processes of this machine as Linux shows them: who listens on a port, since when, and how long its threads ran.

A server on this machine is known by its process, whatever it says of itself: another process on the port is a
restart. Where Linux does not say (another system, another user's process), the answer is "unknown" and never a guess.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

PROC = Path("/proc")
LISTENING = "0A"  # TCP_LISTEN in /proc/net/tcp. Source: linux/include/net/tcp_states.h
INODE_FIELD, STATE_FIELD, ADDRESS_FIELD = 9, 3, 1
# Of what follows the name in /proc/PID/stat. Source: proc_pid_stat(5), fields 4 and 22.
PARENT_FIELD, START_FIELD = 1, 19


@dataclass(frozen=True, slots=True)
class Process:
    """One process; two of equal numbers began at other times.

    Attributes:
        pid: Its number.
        start: Clock ticks from the machine's start to its own.
    """

    pid: int
    start: int

    @classmethod
    def from_pid(cls, pid: int, proc: Path = PROC) -> Self | None:
        """Look a process up; None where there is none."""
        fields = _stat(pid, proc)
        return cls(pid, int(fields[START_FIELD])) if fields else None

    @classmethod
    def from_port(cls, port: int, proc: Path = PROC) -> Self | None:
        """Find the process that listens on a TCP port of this machine; None where that is not to be seen.

        Of several that share a socket, such as a server's workers, it is the oldest.
        """
        sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port, proc)}
        if not sockets:
            return None
        owners = [cls.from_pid(pid, proc) for pid in _pids(proc) if _holds(pid, sockets, proc)]
        return min((one for one in owners if one), key=lambda one: (one.start, one.pid), default=None)


def runnable_s(roots: Iterable[Process], proc: Path = PROC) -> float:
    """Give the seconds that all threads of these processes and of their children ran or waited for a core.

    That is what they add to the load average. Threads that have ended are not in it.
    """
    return sum(_runnable_ns(pid, proc) for pid in _with_children({one.pid for one in roots}, proc)) / 1e9


def _with_children(roots: set[int], proc: Path) -> set[int]:
    parents = {pid: int(fields[PARENT_FIELD]) for pid in _pids(proc) for fields in [_stat(pid, proc)] if fields}
    found, added = set(roots), set(roots)
    while added:
        added = {pid for pid, parent in parents.items() if parent in added} - found
        found |= added
    return found


def _runnable_ns(pid: int, proc: Path) -> int:
    total = 0
    for task in _numbers(proc / str(pid) / "task"):
        try:
            fields = (proc / str(pid) / "task" / str(task) / "schedstat").read_text().split()
            total += int(fields[0]) + int(fields[1])  # on a core, and waiting for one
        except (OSError, ValueError, IndexError):
            continue
    return total


def _listening_inodes(port: int, proc: Path) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            is_ours = len(fields) > INODE_FIELD and fields[ADDRESS_FIELD].endswith(f":{port:04X}")
            if is_ours and fields[STATE_FIELD] == LISTENING:
                yield fields[INODE_FIELD]


def _holds(pid: int, sockets: set[str], proc: Path) -> bool:
    folder = proc / str(pid) / "fd"
    for descriptor in _numbers(folder):
        try:
            if os.readlink(folder / str(descriptor)) in sockets:
                return True
        except OSError:
            continue
    return False


def _stat(pid: int, proc: Path) -> list[str]:
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return []
    return fields if len(fields) > START_FIELD else []


def _pids(proc: Path) -> list[int]:
    return _numbers(proc)


def _numbers(folder: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return []
