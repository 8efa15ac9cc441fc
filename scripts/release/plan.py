"""What a release is asked to make: which models, in which shapes, proven on which devices, and where it all goes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from vela.export.shapes import Shapes
from vela.graphs import errors, model_table
from vela.serve.device import CPU, Device
from vela.verify.options import GateOptions

BYTES_PER_WEIGHT = 4
# What a worker takes before it reads weights (PyTorch, Transformers, ONNX Runtime), and how often it holds them: the
# gate has the reference in FP32 and FP64 and mutants of it beside the graph's own. Source: docs/release.md.
BASE_BYTES = 1 << 30
COPIES_HELD = 5


@dataclass(frozen=True, slots=True)
class Wanted:
    """One model of a release.

    Attributes:
        name: What it is served as: the table's name, or an unpinned folder's.
        folder: Where its checkpoint lies; None for the Hub's cache, and the Hub.
        is_pinned: Whether the table says which files it has.
        weight_bytes: Of its weights; what memory it needs is reckoned from that.
    """

    name: str
    folder: Path | None
    is_pinned: bool
    weight_bytes: int

    @classmethod
    def from_entry(cls, entry: model_table.ModelEntry, checkpoints: Path | None) -> Self:
        """Want a pinned model, from `checkpoints/<name>` in small letters or from the Hub."""
        folder = None if checkpoints is None else checkpoints / entry.name.lower()
        return cls(entry.name.lower(), folder, is_pinned=True, weight_bytes=BYTES_PER_WEIGHT * entry.parameters)

    @classmethod
    def from_folder(cls, folder: Path) -> Self:
        """Want a checkpoint that no table pins, named after its folder."""
        weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        return cls(folder.resolve().name, folder, is_pinned=False, weight_bytes=weights)

    @property
    def memory_bytes(self) -> int:
        """Memory that it is reckoned to need."""
        return BASE_BYTES + COPIES_HELD * self.weight_bytes


@dataclass(frozen=True, slots=True)
class ReleasePlan:
    """Everything that a release is asked for.

    Attributes:
        models: In order; no two of a name.
        shapes: The graphs of each.
        devices: Where graphs are proven, the CPU first: nothing is published without a pass there.
        gate: How they are judged, but for the device.
        work: Folder of the bundles and of the ledger.
        store: Where what passed is published.
        table: The pinned models.
        sign_key: PEM file that statements are signed with.
    """

    models: tuple[Wanted, ...]
    shapes: Shapes
    devices: tuple[Device, ...]
    gate: GateOptions
    work: Path
    store: Path
    table: model_table.ModelTable
    sign_key: Path | None = None

    def __post_init__(self) -> None:
        names = [wanted.name.casefold() for wanted in self.models]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated or not names:
            raise errors.ExportError(
                f"the models {', '.join(repeated)} more than once" if repeated else "no model",
                expected="each model once",
                where="MODEL",
                fix="Name each model once, or none for all that the table has.",
            )
        if not self.devices or self.devices[0] != CPU or len(set(self.devices)) != len(self.devices):
            raise ValueError(f"devices start with the CPU and do not repeat, got {self.devices}")

    def bundle(self, wanted: Wanted) -> Path:
        """Give the folder of a model's bundle."""
        return self.work / "bundles" / wanted.name

    def options(self, device: Device) -> GateOptions:
        """Give how a device's graphs are judged."""
        return replace(self.gate, device=device, table=self.table)


def choose_models(names: Sequence[str], table: model_table.ModelTable, checkpoints: Path | None) -> tuple[Wanted, ...]:
    """Choose what is released: names of the table or folders of checkpoints; all of the table where none is given.

    Raises:
        CheckpointError: a name is neither.
    """
    if not names:
        return tuple(Wanted.from_entry(entry, checkpoints) for entry in table.supported)
    chosen = []
    for name in names:
        folder = Path(name)
        if table.knows(name) or not (folder / "config.json").is_file():
            chosen.append(Wanted.from_entry(table.find(name), checkpoints))
            continue
        wanted = Wanted.from_folder(folder)
        # A pinned name stands for exact bytes: a folder that bears one has to have them.
        pinned = table.find(wanted.name) if table.knows(wanted.name) else None
        chosen.append(replace(Wanted.from_entry(pinned, None), folder=folder) if pinned else wanted)
    return tuple(chosen)
