"""How each model is deployed: where it runs, what it takes by default; read from a file or made by options.

The file has the shape of the router's AMD guide, so that a recipe moves between CPU and GPU by editing `use_cpu` or a
`device` and nothing else:

    use_cpu: false              # true: every deployment runs on the CPU, whatever its device
    deployments:
      - model: domain           # a name in the store
        device: migraphx:0
        input: {max_tokens: 8192, overflow: reject}
      - model: guard
        device: rocm:0
        input: {overflow: window}
        window: {tokens: 512, overlap: 64}
        memory_gb: 4            # of weights on a GPU: as many graphs as that holds
        profile: batching       # or max_speed: lets requests ask for it

Keys of the router's older recipes name files and folders that Vela does not take; each gets an error that says what
stands in its place.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
import yaml

from vela.graphs import errors, heads
from vela.serve import device as devices
from vela.serve import memory, policy

CONFIG_LIMIT_BYTES = 1 << 20

# Keys of older recipes, and what a user writes instead.
REPLACED: Mapping[str, str] = {
    "head": "graphs are part of the verified bundle, and the smallest that holds a text answers it: leave the key out",
    "graph": "graphs are part of the verified bundle, and the smallest that holds a text answers it: leave the key out",
    "path": "name the model as the store has it, under `model`",
    "model_path": "name the model as the store has it, under `model`",
    "compilation_cache_dir": "start the server with --compile-cache DIR, one for all deployments",
    "custom_op_library": "graphs of Vela need none: leave the key out",
    "provider": "write `device: migraphx:0`, `rocm:0`, `cuda:0` or `cpu`",
    "device_id": "write the number behind the device's name, as in `device: migraphx:1`",
    "max_length": "write `input: {max_tokens: N}`",
    "precision": "export with --reduced, and write `profile: max_speed`; the gate decides which copies may answer",
}


@dataclass(frozen=True, slots=True)
class Deployment:
    """What holds for one model of a server.

    Attributes:
        device: Where it runs.
        profile: Which profile requests may ask for besides `exact`.
        max_tokens: Longest input by default and at most; None leaves it to the head.
        overflow: What happens to longer ones by default; None leaves it to the head.
        window: Windows by default; None leaves them to the head.
        memory_bytes: What weights may take on a GPU; None loads every graph. The CPU loads one for each output.
    """

    device: devices.Device = devices.CPU
    profile: policy.Profile = "exact"
    max_tokens: int | None = None
    overflow: heads.Overflow | None = None
    window: heads.Window | None = None
    memory_bytes: int | None = None

    def limit(self, head: heads.Head) -> heads.Head:
        """Give a head as it is deployed.

        Raises:
            InvalidRequest: it does not take what was asked for.
        """
        max_tokens = head.max_tokens if self.max_tokens is None else self.max_tokens
        if max_tokens > head.max_tokens:
            raise errors.InvalidRequest(
                str(max_tokens),
                expected=f"at most {head.max_tokens}, which this model was verified for",
                where="input.max_tokens",
                fix="Write a smaller number, or leave it out.",
            )
        window, overflow = self.window or head.window, self.overflow or head.overflow
        if overflow == "window" and window is None:
            raise errors.InvalidRequest(
                "overflow window without a window",
                expected="window: {tokens, overlap}: this model has no windows of its own",
                where="window",
                fix="Write one, or another overflow.",
            )
        return msgspec.structs.replace(head, max_tokens=max_tokens, overflow=overflow, window=window)


class _Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max_tokens: Annotated[int, msgspec.Meta(ge=2)] | None = None
    overflow: heads.Overflow | None = None


class _Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tokens: Annotated[int, msgspec.Meta(ge=2)]
    overlap: Annotated[int, msgspec.Meta(ge=0)]


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: str
    device: str = "cpu"
    input: _Input = _Input()
    window: _Window | None = None
    profile: policy.Profile = "exact"
    memory_gb: float | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    deployments: Annotated[list[_Entry], msgspec.Meta(min_length=1)]
    use_cpu: bool = False


@dataclass(frozen=True, slots=True)
class Config:
    """What a config file says.

    Attributes:
        deployments: By model, in the file's order.
    """

    deployments: Mapping[str, Deployment]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a config file; no model is looked at.

        Raises:
            InvalidRequest: it is no such file; the message names the field.
            ProviderUnavailable: a device has no such name.
        """
        content = _load(path)
        for place, key in _keys(content):
            if key in REPLACED:
                raise _refused(path, place, f"the key {key!r}", "a key of this version", _sentence(REPLACED[key]))
        try:
            file = msgspec.convert(content, _File)
        except msgspec.ValidationError as cause:
            fix = "Mend that field; docs/serve.md shows them all."
            raise _refused(path, "", str(cause), "deployments with known fields", fix) from cause
        found: dict[str, Deployment] = {}
        for number, entry in enumerate(file.deployments):
            if entry.model in found:
                fix = "Keep one: a model runs in one place of a server."
                raise _refused(path, f"$.deployments[{number}]", f"{entry.model!r} twice", "each model once", fix)
            found[entry.model] = _deployment(entry, use_cpu=file.use_cpu)
        return cls(found)


def _deployment(entry: _Entry, *, use_cpu: bool) -> Deployment:
    asked = devices.Device.parse(entry.device)  # a wrong name is wrong on the CPU too
    window = None if entry.window is None else heads.Window(entry.window.tokens, entry.window.overlap)
    return Deployment(
        devices.CPU if use_cpu else asked,
        entry.profile,
        entry.input.max_tokens,
        entry.input.overflow,
        window,
        None if entry.memory_gb is None else memory.to_bytes(entry.memory_gb, f"memory_gb of {entry.model}"),
    )


def _load(path: Path) -> Any:
    with path.open("rb") as stream:
        content = stream.read(CONFIG_LIMIT_BYTES + 1)
    if len(content) > CONFIG_LIMIT_BYTES:
        raise _refused(path, "", f"more than {CONFIG_LIMIT_BYTES} bytes", "a config file", "Name another file.")
    try:
        return yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as cause:
        raise _refused(path, "", f"no YAML ({cause})", "a YAML file", "Mend its syntax.") from cause


def _keys(content: Any) -> Iterator[tuple[str, str]]:
    """Give the keys of the file and of its deployments, each with its place."""
    if not isinstance(content, dict):
        return
    yield from (("$", str(key)) for key in content)
    entries = content.get("deployments")
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        yield from ((f"$.deployments[{number}]", str(key)) for key in (entry if isinstance(entry, dict) else ()))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _refused(path: Path, place: str, found: str, expected: str, fix: str) -> errors.InvalidRequest:
    return errors.InvalidRequest(found, expected=expected, where=f"{path}{f' {place}' if place else ''}", fix=fix)
