"""The models of one process: which are asked for, what state each is in, and the lanes that run them.

Loading happens in whichever thread calls `load`, one by one, while the server answers its probes. A model that cannot
be loaded keeps its place with the reason; nothing else is served in its stead.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from vela.graphs import attestation, errors, store
from vela.graphs import bundle as bundles
from vela.serve import device as devices
from vela.serve import engine, host, policy
from vela.serve.compiling import Compiling
from vela.serve.deployment import Deployment
from vela.serve.lane import Lane
from vela.serve.model import Demand, ServedModel, Tokenizers
from vela.serve.warming import warm_up

Status = Literal["starting", "loading", "warming", "ready", "degraded", "failed"]
Golden = Literal["pending", "matched", "unverified", "failed"]  # `unverified`: the bundle has none


@dataclass(frozen=True, slots=True)
class Source:
    """A model to serve.

    Attributes:
        name: The name it is served under.
        find: Finds its bundle as it is published now; may raise StoreError.
        deployment: Where it runs and what it takes; None leaves both to the plan.
    """

    name: str
    find: Callable[[], store.PublishedBundle]
    deployment: Deployment | None = None


def sources_from_store(
    path: Path, names: Sequence[str] = (), deployments: Mapping[str, Deployment] | None = None
) -> tuple[Source, ...]:
    """Name the models of a store, or the ones asked for.

    Args:
        path: The store.
        names: Names in it; all of them where none is given.
        deployments: How they are deployed, by name.

    Raises:
        StoreError: there is no store, or it is empty.
        ModelNotFound: it does not hold a name.
    """
    published = store.Store.open(path).models()
    for name in names or [""] * (not published):
        if name not in published:
            raise errors.ModelNotFound(
                repr(name) if name else "an empty store",
                expected=f"one of {', '.join(published)}" if published else "published models",
                where=str(path),
                fix="`vela publish` puts verified bundles there.",
            )
    given = deployments or {}
    return tuple(Source(name, functools.partial(_find, path, name), given.get(name)) for name in names or published)


def _find(path: Path, name: str) -> store.PublishedBundle:
    published = store.Store.open(path).models()
    if name not in published:
        raise errors.StoreError(
            f"no bundle of {name!r} any more",
            expected="the models that were there at the start",
            where=str(path),
            fix="Publish it again, or start the server without it.",
        )
    return published[name]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a registry loads and how.

    Attributes:
        sources: The models, in the order in which they are loaded.
        device: Where those run whose deployment does not say it.
        demand: What must be proven of each graph.
        session_options: Threads and optimisation.
        public_key: Whose signature every bundle must carry; None asks for none.
        profile: Which profile requests to those may ask for besides `exact`.
        compiling: Where compiled programs are kept; None keeps none.
        memory_bytes: What weights may take on a GPU, in equal parts for those; None loads every graph.
    """

    sources: tuple[Source, ...]
    device: devices.Device = devices.CPU
    demand: Demand = "this_engine"
    session_options: engine.SessionOptions | None = None
    public_key: Path | None = None
    profile: policy.Profile = "exact"
    compiling: Compiling | None = None
    memory_bytes: int | None = None

    def deployment(self, source: Source) -> Deployment:
        """Say where a model runs and what it takes."""
        own = self.memory_bytes and self.memory_bytes // len(self.sources)
        return source.deployment or Deployment(self.device, self.profile, memory_bytes=own)


@dataclass(frozen=True, slots=True)
class Entry:
    """A model's state.

    Attributes:
        name: The name it is served under.
        status: Where it stands.
        reason: Why it is not plainly ready; empty otherwise.
        bundle: None until its manifest was read.
        model: None until it answers.
        golden: Whether its graphs gave the golden answers.
        digest: Of the bundle as it is published.
        refused: Digest of a newer one that cannot be served; it is not tried again.
    """

    name: str
    status: Status
    reason: str = ""
    bundle: bundles.Bundle | None = None
    model: ServedModel | None = None
    golden: Golden = "pending"
    digest: str = ""
    refused: str = ""


class Registry:
    """The models of this process and the lanes of their devices, one for each.

    Args:
        plan: What to load.
        on_lane_death: Called in a lane's thread when it dies.
    """

    def __init__(self, plan: Plan, on_lane_death: Callable[[], None] = lambda: None) -> None:
        self.plan = plan
        self._deployments = {source.name: plan.deployment(source) for source in plan.sources}
        used = {deployment.device for deployment in self._deployments.values()} or {plan.device}
        self.lanes = {device: Lane(str(device), on_death=on_lane_death) for device in sorted(used, key=str)}
        self._closing = False
        self._tokenizers: Tokenizers = {}
        # Replaced models of a GPU are let go by the thread that loads: to free memory breaks others' recordings.
        self._retired: list[ServedModel] = []
        # Replaced entry by entry, never mutated in place: readers in other threads see one state or the next.
        self._entries = {source.name: Entry(source.name, "starting") for source in plan.sources}

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Each model's state, by name."""
        return self._entries

    def device_of(self, name: str) -> devices.Device:
        """Say where a model runs."""
        return self._deployments[name].device

    def lane_of(self, name: str) -> Lane:
        """Give the lane that a model's forwards go through."""
        return self.lanes[self.device_of(name)]

    def load(self) -> Sequence[Entry]:
        """Load every model, until `close` is called; give the entries that failed."""
        for source in self.plan.sources:
            if self._closing:
                break
            try:
                self._load(source)
            except errors.VelaError as error:
                if self._closing:  # what is stopped has not failed
                    break
                golden: Golden = "failed" if isinstance(error, errors.GoldenMismatch) else "pending"
                bundle = self._entries[source.name].bundle
                self._put(Entry(source.name, "failed", str(error), bundle, golden=golden))
        return [entry for entry in self._entries.values() if entry.status == "failed"]

    def refresh(self) -> Sequence[Entry]:
        """Serve what was published since; give the entries that changed.

        The bundle that answers does so until the newer one is loaded, warm and has given its golden answers. A request
        is answered by one of the two throughout. A newer bundle that cannot be served leaves the older one at work.
        """
        changed = []
        self._retired.clear()
        for source in self.plan.sources:
            entry = self._entries[source.name]
            if self._closing or entry.model is None:
                continue
            try:
                found = source.find()
                if found.digest == entry.refused or (found.digest == entry.digest and entry.status == "ready"):
                    continue
                is_back = found.digest == entry.digest  # a newer one that could not be served was taken back
                entry = _ready(entry) if is_back else self._make(found, lambda _: None)
            except errors.VelaError as error:
                if self._closing:
                    break
                reason = f"the bundle published since cannot be served: {error}"
                if reason == entry.reason:
                    continue
                refused = entry.refused if isinstance(error, errors.StoreError) else found.digest
                entry = replace(entry, status="degraded", reason=reason, refused=refused)
            replaced = self._entries[source.name].model
            if replaced is not None and replaced.device.kind == "cuda":
                self._retired.append(replaced)
            self._put(entry)
            changed.append(entry)
        return changed

    def _load(self, source: Source) -> None:
        self._put(Entry(source.name, "loading"))
        self._put(self._make(source.find(), self._put))

    def _make(self, found: store.PublishedBundle, report: Callable[[Entry], None]) -> Entry:
        """Load a published bundle, and report how far it is."""
        opened, name = found.open(), found.name
        report(Entry(name, "loading", "", opened))
        if self.plan.public_key is not None:
            attestation.require_signed(opened, self.plan.public_key)
        model = ServedModel.open(
            opened,
            self._deployments[name],
            demand=self.plan.demand,
            session_options=self.plan.session_options,
            tokenizers=self._tokenizers,
            compiling=self.plan.compiling,
        )
        report(Entry(name, "warming", "", opened))
        warm_up(model, self.lane_of(name))
        host.give_back_memory()
        golden: Golden = "matched" if model.golden_count else "unverified"
        return _ready(Entry(name, "warming", "", opened, model, golden, found.digest))

    def _put(self, entry: Entry) -> None:
        self._entries[entry.name] = entry

    def problems(self) -> dict[str, str]:
        """Say for each model why it does not answer; empty when all of them do, be it from an older bundle."""
        found = {}
        for entry in self._entries.values():
            lane = self.lane_of(entry.name)
            if lane.death is not None:
                found[entry.name] = f"the lane of {lane.name} died: {lane.death}"
            elif entry.status not in ("ready", "degraded"):
                found[entry.name] = entry.reason or entry.status
        return found

    def find(self, name: str | None) -> ServedModel:
        """Give the model that a request names, or the only one.

        Raises:
            InvalidRequest: none is named and there are several.
            ModelNotFound: there is none of that name.
            NotReady: it does not answer yet, or no longer.
        """
        if name is None:
            if len(self._entries) != 1:
                raise errors.InvalidRequest(
                    "no name",
                    expected=f"one of {', '.join(self._entries)}",
                    where="model",
                    fix="Name a model: several are loaded.",
                )
            name = next(iter(self._entries))
        entry = self._entries.get(name)
        if entry is None:
            raise errors.ModelNotFound(
                repr(name),
                expected=f"one of {', '.join(self._entries)}",
                where="model",
                fix="GET /v1/models lists what is loaded.",
            )
        if entry.model is None or self.lane_of(name).death is not None:
            raise errors.NotReady(
                f"{name} {self.problems().get(name, entry.status)}",
                expected="a model that is ready",
                where="model",
                fix="GET /health says what is missing.",
            )
        return entry.model

    def close(self) -> None:
        """Stop loading after the model that is being loaded, and stop the lanes; what waits gets an error."""
        self._closing = True
        for lane in self.lanes.values():
            lane.close()


def _ready(entry: Entry) -> Entry:
    """Say that a model answers, and what is to be known of it."""
    is_proven = entry.model is None or entry.model.demand == "this_engine"
    reason = "" if is_proven else "served without a verdict for this engine, as asked"
    return replace(entry, status="ready", reason=reason, refused="")
