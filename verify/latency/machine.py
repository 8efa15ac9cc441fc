"""The machine that measured, as a record states it; a server elsewhere has another."""

import importlib.metadata
import os
import platform
from collections.abc import Iterable
from pathlib import Path

from vela.serve import host

DISTRIBUTION = "vela-onnx"


def describe() -> dict[str, str]:
    """Describe this machine and this client."""
    return {
        "processor": _first_value(Path("/proc/cpuinfo"), "model name") or platform.machine(),
        "instruction_set": host.instruction_set(),
        "cores": str(core_count()),
        "cpuset": cpuset(os.sched_getaffinity(0)),
        "memory": _first_value(Path("/proc/meminfo"), "MemTotal"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "vela": _version(),
    }


def core_count() -> int:
    """Give the cores of the whole machine, which its load average is about."""
    return os.cpu_count() or 1


def cpuset(cores: Iterable[int]) -> str:
    """Write a set of cores as Linux does: `0-3,8`."""
    ranges: list[list[int]] = []
    for core in sorted(cores):
        if ranges and core == ranges[-1][1] + 1:
            ranges[-1][1] = core
        else:
            ranges.append([core, core])
    return ",".join(f"{first}-{last}" if first < last else str(first) for first, last in ranges)


def _first_value(path: Path, name: str) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def _version() -> str:
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return ""
