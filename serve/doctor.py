"""What stands between this machine and an answer: the engine's build, its libraries, the device, the cores.

Every finding says what was found and, where it is wrong, how to mend it. Nothing is loaded from a store, and nothing
that is asked here makes a device do work.
"""

import ctypes
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from vela.graphs import errors
from vela.serve import device as devices
from vela.serve import host

# What each build is for; a build that is not among them is refused before this is asked.
OWN_DEVICE: dict[str, str] = {
    "onnxruntime": "cpu",
    "onnxruntime-gpu": "cuda:0",
    "onnxruntime-migraphx": "migraphx:0",
    "onnxruntime-rocm": "rocm:0",
}
# The driver's library and its function that counts devices; None where it wants a call before.
COUNTERS: dict[devices.DeviceKind, tuple[str, str, str | None]] = {
    "cuda": ("libcuda.so.1", "cuDeviceGetCount", "cuInit"),
    "rocm": ("libamdhip64.so", "hipGetDeviceCount", None),
    "migraphx": ("libamdhip64.so", "hipGetDeviceCount", None),
}
NODES: dict[devices.DeviceKind, str] = {"cuda": "/dev/nvidiactl", "rocm": "/dev/kfd", "migraphx": "/dev/kfd"}
DRIVERS: dict[devices.DeviceKind, str] = {
    "cuda": "Start the container with --gpus, on a host with NVIDIA's driver.",
    "rocm": "Start the container with --device /dev/kfd --device /dev/dri --group-add video --group-add render.",
    "migraphx": "Start the container with --device /dev/kfd --device /dev/dri --group-add video --group-add render.",
}


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at.

    Attributes:
        about: What.
        status: `wrong` keeps models from being served as asked; `note` is worth knowing.
        found: What was found.
        fix: What to do; empty unless something is wrong.
    """

    about: str
    status: Literal["fine", "note", "wrong"]
    found: str
    fix: str = ""


def examine(device: str | None = None) -> list[Finding]:
    """Look at everything that serving on a device needs.

    Args:
        device: As `--device` takes it; by default the one that the installed build is for.
    """
    found = [Finding("python", "fine", f"{platform.python_version()} on {platform.system()} {platform.machine()}")]
    found += _examine(_cores)
    try:
        from vela.serve import providers
        from vela.serve.runtime import installed_build, onnxruntime

        package, version = installed_build()
    except errors.ProviderUnavailable as refusal:
        return [*found, _wrong("engine", refusal)]
    except ImportError as missing:
        fix = "Install its package again: pip install --force-reinstall --no-deps, then what it needs."
        return [*found, Finding("engine", "wrong", f"ONNX Runtime that does not import ({missing})", fix)]
    offered = ", ".join(onnxruntime.get_available_providers())
    found.append(Finding("engine", "fine", f"{package} {version}, which offers {offered}"))
    try:
        asked = devices.Device.parse(device or OWN_DEVICE.get(package, "cpu"))
        found += _examine(lambda: _hardware(asked))
        providers.require_provider(asked)
        found.append(Finding("device", "fine", f"{asked}: {asked.provider} loads with all that it needs"))
    except errors.ProviderUnavailable as refusal:
        return [*found, _wrong("device", refusal)]
    recorded = providers.named(providers.RECORDED[asked.kind], os.environ)
    if recorded:
        told = ", ".join(f"{name}={os.environ[name]}" for name in recorded)
        found.append(Finding("environment", "note", f"{told}: part of what a verdict is about, and in every record"))
    return found


def is_well(findings: list[Finding]) -> bool:
    """Say whether nothing is wrong."""
    return all(finding.status != "wrong" for finding in findings)


def _examine(look: Callable[[], Iterator[Finding]]) -> list[Finding]:
    return list(look())


def _wrong(about: str, refusal: errors.VelaError) -> Finding:
    return Finding(about, "wrong", f"{refusal.found}; expected {refusal.expected}", refusal.fix)


def _cores() -> Iterator[Finding]:
    usable, there = host.available_cores(), os.cpu_count() or 1
    told = f"{usable} of {there} cores, {host.instruction_set()}"
    yield Finding("cores", "fine" if usable == there else "note", told)
    if platform.machine() == "x86_64" and "avx2" not in told:
        yield Finding("cores", "note", "no AVX2: forwards take several times as long as on other machines")


def _hardware(device: devices.Device) -> Iterator[Finding]:
    """Look for the device itself; the CPU is there."""
    if device.kind == "cpu":
        return
    node = Path(NODES[device.kind])
    if not node.exists():
        yield Finding("driver", "wrong", f"no {node}", DRIVERS[device.kind])
    elif not os.access(node, os.R_OK | os.W_OK):
        yield Finding("driver", "wrong", f"{node}, which this user may not open", DRIVERS[device.kind])
    count = _count(*COUNTERS[device.kind])
    if count is None:
        return  # its library is missing, which the provider's own says better
    hidden = {name: os.environ[name] for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES") if name in os.environ}
    told = f"{count} devices{''.join(f', {name}={value}' for name, value in hidden.items())}"
    if device.index < count:
        yield Finding("hardware", "fine", told)
    else:
        yield Finding("hardware", "wrong", told, f"Ask for a number below {count}, or make {device} visible.")


def _count(library: str, function: str, first: str | None) -> int | None:
    """Ask the driver how many devices there are; None where it is not installed."""
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return None
    number = ctypes.c_int(0)
    if first is not None and getattr(driver, first)(0):
        return 0
    return 0 if getattr(driver, function)(ctypes.byref(number)) else number.value
