"""A private copy of a finished bundle that a fault is planted in, with what a fault needs to be planted well.

Resealing is what a careful forger would do after every change: refresh the digests that the manifest names, so that
the first line of defence, which compares bytes, is not what catches the fault.
"""

import hashlib
import json
import shutil
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from lab.description import describe_graph
from lab.sketch import NotApplicable, Sketch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from vela.graphs import digests, manifest

WEIGHTS = "model.safetensors"
SIBLING_SEED = 5
SIBLING_STEP = 0.02  # how far another training run's weights lie, in their own units
Item = TypeVar("Item")
Tensors = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Bench:
    """A copy of a bundle, one of its graphs, and dice.

    Attributes:
        folder: The copy.
        graph_id: The graph that will be judged.
        checkpoint: What the bundle was exported from; read only.
        rng: Where layers, tensors and sizes are drawn from.
    """

    folder: Path
    graph_id: str
    checkpoint: Path
    rng: np.random.Generator

    @classmethod
    def of(cls, bundle: Path, graph_id: str, checkpoint: Path, to: Path, dice: "Dice") -> "Bench":
        """Copy a bundle."""
        shutil.copytree(bundle, to)
        return cls(to, graph_id, checkpoint, dice.roll())

    @property
    def entry(self) -> dict[str, Any]:
        """What the manifest says of the graph."""
        return next(graph for graph in self.read_manifest()["graphs"] if graph["id"] == self.graph_id)

    @property
    def path(self) -> Path:
        return self.folder / self.entry["file"]

    @property
    def is_dynamic(self) -> bool:
        return isinstance(self.entry["inputs"][0]["shape"][1], str)

    def sketch(self) -> Sketch:
        return Sketch(self.path)

    def read_manifest(self) -> dict[str, Any]:
        return json.loads((self.folder / "manifest.json").read_bytes())

    def reseal(self, change: Callable[[dict[str, Any]], None] = lambda content: None) -> None:
        """Refresh all that the manifest says of the graph and of files, apply a change, and seal again."""
        content = self.read_manifest()
        for graph in content["graphs"]:
            if (self.folder / graph["file"]).is_file():
                graph["sha256"] = sha256(self.folder / graph["file"])
                graph["size_bytes"] = (self.folder / graph["file"]).stat().st_size
        for name, source in content["sources"].items():
            if (self.folder / name).is_file():
                source["sha256"] = sha256(self.folder / name)
                source["size_bytes"] = (self.folder / name).stat().st_size
        content["tokenizer"]["sha256"] = content["sources"][content["tokenizer"]["file"]]["sha256"]
        if not content["model"]["repository"]:
            listing = {name: source["sha256"] for name, source in content["sources"].items()}
            content["model"]["model_sha256"] = digests.digest_of_listing(listing)
        self._refresh_weights(content)
        content["graphs"] = [
            describe_graph(self.path, graph, content["weights"]) if graph["id"] == self.graph_id else graph
            for graph in content["graphs"]
        ]
        change(content)
        sealed = manifest.msgspec.convert(content, manifest.Manifest).sealed()
        (self.folder / "manifest.json").write_bytes(manifest.encode_manifest(sealed))

    def change_entry(self, **facts: Any) -> None:
        """Let the manifest say something else of the graph, and seal again."""

        def change(content: dict[str, Any]) -> None:
            next(graph for graph in content["graphs"] if graph["id"] == self.graph_id).update(facts)

        self.reseal(change)

    def weights(self) -> Tensors:
        """Give the checkpoint's tensors, those of every file."""
        found: Tensors = {}
        for path in sorted(self.checkpoint.glob("*.safetensors")):
            found |= load_file(path)
        return found

    def sibling_weights(self) -> Tensors:
        """Give another training run's tensors: the same names and shapes."""
        rng = np.random.default_rng(SIBLING_SEED)
        return {
            name: (value + rng.normal(0, SIBLING_STEP, value.shape)).astype(np.float32)
            for name, value in self.weights().items()
        }

    def write_weights(self, tensors: Tensors, file: str = WEIGHTS) -> None:
        """Replace the bundle's own weight file."""
        own = load_file(self.folder / file)
        (self.folder / file).unlink()
        save_file({name: tensors[name] for name in own}, self.folder / file, metadata={"format": "pt"})

    def edit_json(self, name: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Change a JSON file of the bundle; the manifest is left as it is."""
        path = self.folder / name
        if not path.is_file():
            raise NotApplicable(f"no {name}")
        content = json.loads(path.read_bytes())
        change(content)
        path.unlink()
        path.write_text(json.dumps(content, ensure_ascii=False))

    def other_graph(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Give the manifest's entry of another graph."""
        for graph in self.read_manifest()["graphs"]:
            if graph["id"] != self.graph_id and wanted(graph):
                return graph
        raise NotApplicable("no such other graph")

    def pick(self, items: Sequence[Item]) -> Item:
        if not items:
            raise NotApplicable("nothing to choose from")
        return items[int(self.rng.integers(len(items)))]

    def _refresh_weights(self, content: dict[str, Any]) -> None:
        for tensor in content["weights"]:
            path = self.folder / tensor["file"]
            if path.is_file():
                with path.open("rb") as stream:
                    stream.seek(tensor["offset"])
                    tensor["sha256"] = hashlib.sha256(stream.read(tensor["length"])).hexdigest()


@dataclass(frozen=True, slots=True)
class Dice:
    """Where every drawn layer, size and token comes from: the run's seed, and what it is drawn for."""

    seed: int
    purpose: str

    def roll(self) -> np.random.Generator:
        return np.random.default_rng([self.seed, zlib.crc32(self.purpose.encode())])


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
