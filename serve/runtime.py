"""The one door to onnxruntime: telemetry off first, then exactly one build, then the module.

Everything else in Vela asks this module; ruff bans the import elsewhere. Three facts make it necessary: Linux wheels
since 1.29 send model names out and write into the home folder unless ORT_DISABLE_TELEMETRY is set before the import;
all builds (CPU, CUDA, ROCm, MIGraphX) install the same package and overwrite each other silently; and
`get_available_providers` names providers whose libraries are missing.
Source: microsoft/onnxruntime pull requests 27379 and 29843, issue 10685; measured with 1.22.2 to 1.32.0.
"""

import importlib.metadata
import os
from functools import cache

from vela.graphs import errors

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

BUILDS = (
    "onnxruntime", "onnxruntime-gpu", "onnxruntime-migraphx", "onnxruntime-rocm",
    "onnxruntime-directml", "onnxruntime-openvino", "onnxruntime-qnn", "ort-nightly", "ort-nightly-gpu",
)  # fmt: skip


def installed_build() -> tuple[str, str]:
    """Give the name and version of the one ONNX Runtime distribution that is installed.

    Raises:
        ProviderUnavailable: none or several are.
    """
    found = {}
    for name in BUILDS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if len(found) != 1:
        raise errors.ProviderUnavailable(
            ", ".join(f"{name} {version}" for name, version in found.items()) or "no ONNX Runtime",
            expected="exactly one ONNX Runtime build, because builds overwrite each other's files",
            where="installed packages",
            fix="pip uninstall all of them, then install one extra: vela-onnx[cpu], [cuda], [migraphx] or [rocm].",
        )
    return next(iter(found.items()))


@cache
def _checked_build() -> tuple[str, str]:
    return installed_build()


_checked_build()

import onnxruntime  # noqa: E402 - the environment variable and the check come first

__all__ = ["installed_build", "onnxruntime"]
