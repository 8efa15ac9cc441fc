"""Who answers in a model's place when upstream's golden answers are checked, and which of the file's models that is.

A bundle answers through serve, as `vela predict` does; it needs no verdict, since this is a check of its own. A
checkpoint's answers need PyTorch, which lives in export/, so its loader is given. Either is known to be a revision
only where its files are those that the model table pins.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vela.graphs import bundle as bundles
from vela.graphs import errors, model_table
from vela.serve import device as devices
from vela.serve import prediction, registry
from vela.serve.deployment import Deployment
from vela.serve.model import ServedModel
from vela.serve.reading import Item
from vela.verify import checkpoint, upstream_check, upstream_golden

Ask = Callable[[Sequence[Item]], Sequence[upstream_check.Answer]]
Load = Callable[[checkpoint.Checkpoint], Ask]


@dataclass(frozen=True, slots=True)
class Loaded:
    """An answerer (`upstream_check.Answerer`).

    Attributes:
        revision: Of the pinned model whose files it has; else empty.
        ask: Answers inputs.
    """

    revision: str
    ask: Ask

    def answer(self, items: Sequence[Item]) -> Sequence[upstream_check.Answer]:
        """Answer each input, in order."""
        return self.ask(items)


@dataclass(frozen=True, slots=True)
class Side:
    """Which models are checked, and what opens them.

    Attributes:
        names: In the file.
        opening: Opens one.
    """

    names: tuple[str, ...]
    opening: upstream_check.Open


@dataclass(frozen=True, slots=True)
class Asking:
    """A file, and what is known of the models in it.

    Attributes:
        golden: The file.
        table: The pinned models.
        model: The only model that is asked for, by any of its names; None for all that can be.
    """

    golden: upstream_golden.UpstreamGolden
    table: model_table.ModelTable
    model: str | None = None

    def of_bundle(self, folder: Path, device: devices.Device) -> Side:
        """Let a bundle answer.

        Raises:
            BundleError: it cannot be opened.
            VerificationError: the file has no model of its name.
        """
        opened = bundles.Bundle.open(folder)
        return self._single(opened.manifest.model.name, lambda: self._load_bundle(opened, device))

    def of_store(self, path: Path, device: devices.Device) -> Side:
        """Let the models of a store answer, as far as the file knows them.

        Raises:
            StoreError: there is no store.
        """
        published = {source.name: source for source in registry.sources_from_store(path)}
        places = {upstream_check.find_name(self.golden, name, self.table): name for name in published}

        def opening(name: str) -> upstream_check.Answerer | str:
            if name not in places:
                return "no bundle of it in the store"
            return self._load_bundle(published[places[name]].find().open(), device)

        return Side(self._names(), opening)

    def of_checkpoint(self, folder: Path, load: Load) -> Side:
        """Let a checkpoint answer.

        Raises:
            VerificationError: the file has no model that is called like the folder, and none was named.
        """
        return self._single(folder.resolve().name, lambda: self._load_checkpoint(folder, load))

    def of_checkpoints(self, root: Path, load: Load) -> Side:
        """Let the checkpoints in `root/<name in small letters>` answer."""

        def opening(name: str) -> upstream_check.Answerer | str:
            folder = root / name.lower()
            return self._load_checkpoint(folder, load) if folder.is_dir() else f"no folder {folder.name} of it"

        return Side(self._names(), opening)

    def _load_bundle(self, opened: bundles.Bundle, device: devices.Device) -> Loaded:
        model = ServedModel.open(opened, Deployment(device), demand="nothing")
        listing = {name: file.sha256 for name, file in opened.manifest.sources.items()}
        return Loaded(self._revision(listing), lambda items: prediction.predict(model, items))

    def _load_checkpoint(self, folder: Path, load: Load) -> Loaded:
        source = checkpoint.Checkpoint.read(folder, table=self.table)
        return Loaded(self._revision(source.listing()), load(source))

    def _revision(self, listing: Mapping[str, str]) -> str:
        """Give the commit of the pinned model that has these files."""
        entries = (entry for entry in self.table.models if entry.files.items() <= listing.items())
        return next((entry.revision for entry in entries), "")

    def _names(self) -> tuple[str, ...]:
        return tuple(self.golden.cpu) if self.model is None else (self._find(self.model, "--model"),)

    def _single(self, own: str, load: Callable[[], upstream_check.Answerer]) -> Side:
        name = self._find(self.model or own, "--model" if self.model else own)
        return Side((name,), lambda _: load())

    def _find(self, wanted: str, where: str) -> str:
        found = upstream_check.find_name(self.golden, wanted, self.table)
        if found is None:
            raise errors.VerificationError(
                f"the model name {wanted!r}",
                expected=f"one of {', '.join(self.golden.cpu) or 'none'}, which the file has answers of",
                where=where,
                fix="Say with --model which of them it is.",
            )
        return found
