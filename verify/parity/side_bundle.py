"""A side of bundles: models as `vela predict` loads them, from a folder of bundles or from a store."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from vela.graphs import bundle as bundles
from vela.graphs import model_table
from vela.serve import device as devices
from vela.serve import host, question, registry
from vela.serve.deployment import Deployment
from vela.serve.model import Demand, ServedModel
from vela.serve.runtime import installed_build
from vela.verify.parity import jobs, side

Opening = Callable[[], bundles.Bundle]


@dataclass(slots=True)
class BundleSide:
    """Bundles of one place on one device; one model is loaded at a time.

    Attributes:
        places: Opens a bundle, by name.
        where: Names the place in errors.
        table: The pinned models.
        device: Where graphs run.
        demand: What must be proven of them.
    """

    places: Mapping[str, Opening]
    where: str
    table: model_table.ModelTable
    device: devices.Device
    demand: Demand
    context: dict[str, str] = field(default_factory=dict)
    _loaded: tuple[str, ServedModel] | None = None

    @classmethod
    def of_folder(cls, root: Path, table: model_table.ModelTable, device: devices.Device, demand: Demand) -> Self:
        """Take the bundles that lie in a folder, each under its model's name."""
        folders = {path.parent.name: path.parent for path in sorted(root.glob("*/manifest.json"))}
        places = {name: lambda folder=folder: bundles.Bundle.open(folder) for name, folder in folders.items()}
        return cls(places, str(root), table, device, demand)

    @classmethod
    def of_store(cls, path: Path, table: model_table.ModelTable, device: devices.Device, demand: Demand) -> Self:
        """Take the models of a store.

        Raises:
            StoreError: there is none.
        """
        sources = registry.sources_from_store(path)
        places = {source.name: lambda found=source: found.find().open() for source in sources}
        return cls(places, str(path), table, device, demand)

    @property
    def name(self) -> str:
        """The engine."""
        return f"bundle {' '.join(installed_build())}"

    def state(self, job: jobs.Job) -> jobs.Job:
        """State what the bundle's manifest says; see `side.Side.state`.

        Raises:
            VerificationError: there is no bundle of the job's model, or of another kind.
            BundleError: it cannot be opened.
        """
        name = side.choose(job, self.table, self.places, self.where)
        opened = self.places[name]()
        listing = {file: source.sha256 for file, source in opened.manifest.sources.items()}
        self.context |= {
            "device": str(self.device),
            "threads": str(host.available_cores()),
            f"model {name}": f"manifest {opened.manifest_sha256}",
        }
        revision = side.revision_of(listing, side.find_entry(self.table, job.model))
        return side.state_head(job, opened.manifest.head(), revision)

    def open(self, job: jobs.Job) -> side.LocalAnswerer:
        """Load the job's bundle.

        Raises:
            BundleError, EngineError: as `ServedModel.open`.
            InvalidRequest: the model is not asked in that way.
        """
        model = self._load(side.choose(job, self.table, self.places, self.where))
        options, whole = side.options_of(job), question.Exit()
        match job.kind:
            case "embedding":
                embedding = question.embed(model, options, whole)
                return side.LocalAnswerer(job, lambda items: question.answer(embedding, items), threading.Lock())
            case "rerank":
                ranking = question.rank(model, options, whole)
                return side.LocalAnswerer(job, lambda items: question.answer(ranking, items), threading.Lock())
            case _:
                asked = question.classify(model, options)
                return side.LocalAnswerer(job, lambda items: question.answer(asked, items), threading.Lock())

    def close(self) -> None:
        """Let the loaded model go."""
        self._loaded = None

    def _load(self, name: str) -> ServedModel:
        if self._loaded is None or self._loaded[0] != name:
            self._loaded = None  # two models of a gigabyte each need not be there at once
            host.give_back_memory()
            opened = self.places[name]()
            self._loaded = name, ServedModel.open(opened, Deployment(self.device), demand=self.demand)
        return self._loaded[1]
