"""What a compiled program was made from, on this machine: its identity, and the cache's part in loading a bundle.

Only providers that compile whole graphs keep programs. Versions are those of the libraries that this process has
loaded, by their bytes: after an upgrade of the system, MIGraphX's own cache would answer with the old compiler's.
Source: reference/onnxruntime.md §1.5; the kernel's topology names a GPU's instruction set.
"""

import functools
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vela.graphs import bundle as bundles
from vela.graphs import digests, errors, manifest
from vela.serve import device as devices
from vela.serve import providers
from vela.serve.compile_cache import CompileCache, Identity
from vela.serve.runtime import installed_build

COMPILED: frozenset[devices.DeviceKind] = frozenset({"migraphx"})
# Libraries whose bytes decide what is compiled.
COMPILERS = re.compile(r"lib(migraphx\w*|amdhip64|hipblaslt|rocblas|MIOpen|hiprtc)\.so[.\d]*$")
TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")


@dataclass(frozen=True, slots=True)
class Compiling:
    """Where programs are kept, and whether new ones may be made.

    Attributes:
        cache: The cache.
        must_be_warm: Whether a start that would compile is refused.
    """

    cache: CompileCache
    must_be_warm: bool = False


def identity_of(
    opened: bundles.Bundle,
    graph: manifest.Graph,
    device: devices.Device,
    environment: Mapping[str, str] = os.environ,
) -> Identity:
    """Say what a graph's program on a device is made from.

    Args:
        opened: Its bundle; every file of it matched its digest.
        graph: A fixed graph.
        device: One that compiles.
        environment: Of this process.

    Raises:
        ValueError: the graph is dynamic.
    """
    if graph.batch is None or graph.sequence is None:
        raise ValueError(f"{graph.id} has no fixed shape")
    stored = {tensor.name: tensor.file for tensor in opened.manifest.weights}
    files = {stored[name] for name in graph.external.values()}
    package, version = installed_build()
    return Identity(
        graph=graph.sha256,
        weights={name: opened.manifest.sources[name].sha256 for name in sorted(files)},
        rows=graph.batch,
        tokens=graph.sequence,
        precision=graph.precision,
        options=providers.provider_options(device),
        versions={package: version, **_libraries(_loaded_files())},
        processor=processor_of(device),
        environment={name: environment[name] for name in providers.named(providers.RECORDED[device.kind], environment)},
    )


def processor_of(device: devices.Device, topology: Path = TOPOLOGY) -> str:
    """Name the instruction set of an AMD GPU, such as `gfx942`, as the kernel has it.

    Raises:
        ProviderUnavailable: there is no such GPU.
    """
    found = []
    for node in sorted(topology.glob("*/properties"), key=lambda path: int(path.parent.name)):
        facts = dict(line.split() for line in node.read_text().splitlines() if len(line.split()) == 2)
        if version := int(facts.get("gfx_target_version", "0")):  # 0 is a CPU
            major, minor, step = version // 10_000, version // 100 % 100, version % 100
            found.append(f"gfx{major}{minor:x}{step:x}")
    if device.index >= len(found):
        raise errors.ProviderUnavailable(
            f"{len(found)} AMD GPUs",
            expected=f"one of the number {device.index}",
            where=f"--device {device}",
            fix="Run `vela doctor --device` with it.",
        )
    return found[device.index]


def _loaded_files(maps: Path = Path("/proc/self/maps")) -> set[Path]:
    """Give the files that this process has mapped."""
    lines = (line.split(maxsplit=5) for line in maps.read_text().splitlines())
    return {Path(parts[5]) for parts in lines if len(parts) == 6 and parts[5].startswith("/")}


def _libraries(files: Iterable[Path]) -> dict[str, str]:
    """Give the digest of each library that compiles."""
    return {path.name: _digest_of(path) for path in sorted(files) if COMPILERS.search(path.name)}


@functools.cache
def _digest_of(path: Path) -> str:
    return digests.sha256_of_file(path)
