"""Devices by name: `cpu`, `migraphx:0`, `rocm:0`, `cuda:0`, and the provider that each one means.

Who asks for a device gets it or gets an error; nothing in Vela picks another one.
"""

from dataclasses import dataclass
from typing import Literal, Self

from vela.graphs import errors

DeviceKind = Literal["cpu", "migraphx", "rocm", "cuda"]

PROVIDERS: dict[DeviceKind, str] = {
    "cpu": "CPUExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "cuda": "CUDAExecutionProvider",
}


@dataclass(frozen=True, slots=True)
class Device:
    """A place where a graph runs.

    Attributes:
        kind: Which provider.
        index: Which one of several; 0 for the CPU.
    """

    kind: DeviceKind
    index: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `cpu` or `<kind>:<index>`.

        Raises:
            ProviderUnavailable: no device is called that.
        """
        kind, _, index = text.partition(":")
        if kind not in PROVIDERS or (kind == "cpu" and index) or (index and not index.isdecimal()):
            raise errors.ProviderUnavailable(
                f"the device {text!r}",
                expected="cpu, migraphx:N, rocm:N or cuda:N",
                where="--device",
                fix="Name one of these.",
            )
        return cls(kind, int(index or 0))

    def __str__(self) -> str:
        return "cpu" if self.kind == "cpu" else f"{self.kind}:{self.index}"

    @property
    def provider(self) -> str:
        """ONNX Runtime's name of the execution provider."""
        return PROVIDERS[self.kind]


CPU = Device("cpu")
