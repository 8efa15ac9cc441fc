"""A model that answers: an opened bundle, its tokenizer and its loaded graphs.

The steps from text to answer are apart (read, forwards, a question's finish) because the server runs them in
different threads; `answer` joins them for the command line. Whoever holds a ServedModel holds proven graphs: digests
and records were checked before anything was loaded, unless the caller said otherwise by `Demand`.
"""

import functools
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal, Self

from vela.graphs import bundle as bundles
from vela.graphs import errors, golden, heads, manifest, verdicts
from vela.serve import buckets, engine, golden_check, joining, memory, policy, providers
from vela.serve import device as devices
from vela.serve.batching import BatchedForward, Padding
from vela.serve.compile_cache import Checkout
from vela.serve.compiling import COMPILED, Compiling, identity_of
from vela.serve.costs import Costs
from vela.serve.deployment import Deployment
from vela.serve.forward import Forward, Loaded
from vela.serve.max_speed import Copies
from vela.serve.reading import Item, Reading, read_items
from vela.serve.runtime import installed_build
from vela.serve.tokenization import Framed, Ids, Tokenizer

# What must be proven before a graph is loaded: that it passed on this very engine, that it passed on the CPU (what
# publish demands of every graph), or nothing, for bundles that are being judged or tried.
Demand = Literal["this_engine", "any_engine", "nothing"]

Tokenizers = MutableMapping[manifest.TokenizerFacts, Tokenizer]

# Tokens of the rows that a graph of any length is warmed up with; what longer ones cost is learnt when they come.
WARM_UP_TOKENS = (16, 128, 512)
MOST_SETTLED = 64
ON_THE_CPU = Deployment()


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a bundle a deployment takes, settled before any of it is loaded.

    Attributes:
        head: The head, as it is deployed.
        ladders: For each output that can be asked for, the graphs that give it.
        padded: The same of graphs that take padded rows; empty without the profile `batching`.
        quick: The same with 16-bit copies where there are proven ones; empty without the profile `max_speed`.
        golden_bounds: How far golden answers may be from those copies', by graph id.
    """

    head: heads.Head
    ladders: Mapping[str, buckets.Ladder]
    padded: Mapping[str, buckets.Ladder] = field(default_factory=dict)
    quick: Mapping[str, buckets.Ladder] = field(default_factory=dict)
    golden_bounds: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, opened: bundles.Bundle, deployment: Deployment, demand: Demand) -> Self:
        """Choose the graphs that a deployment needs; files are not read, and digests are not checked.

        Raises:
            ProviderUnavailable: nothing runs on that device here.
            InvalidRequest: the deployment asks for what the model does not take, or has no memory for it.
            BundleError: there is no graph for that device, or no evidence as demanded.
        """
        device = deployment.device
        providers.require_provider(device)
        head = deployment.limit(opened.manifest.head())
        names = buckets.outputs_of(head, opened.manifest)
        copies = Copies.none()
        if deployment.profile == "max_speed":
            copies = Copies.proven(opened, device, installed_build()[1], any_version=demand == "any_engine")
        is_batching, is_quick = deployment.profile == "batching", deployment.profile == "max_speed"

        def choose(*, for_padded: bool = False) -> dict[str, buckets.Ladder]:
            built = [buckets.build_ladder(opened.manifest, head, name, device, for_padded=for_padded) for name in names]
            ladders = {ladder.output: memory.trim(ladder, head, alone=not is_batching) for ladder in built}
            if deployment.memory_bytes is None or device.kind == "cpu":
                return ladders
            size_of = functools.partial(copies.bytes_with_copy, opened)
            return memory.choose(ladders, size_of, deployment.memory_bytes, opened.manifest.model.name)

        ladders = choose()
        padded = choose(for_padded=True) if is_batching else {}
        quick = copies.quicken_all(ladders, opened, device) if is_quick else {}
        chosen = cls(head, ladders, padded, quick, copies.bounds)
        _check_evidence(opened, [graph.id for graph in chosen.graphs if not graph.is_reduced], device, demand)
        return chosen

    @property
    def graphs(self) -> tuple[manifest.Graph, ...]:
        """All graphs, each once."""
        return buckets.graphs_in_use([*self.ladders.values(), *self.padded.values(), *self.quick.values()])


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One head of one bundle, loaded on one device.

    Attributes:
        bundle: The opened bundle; every file of it matched its digest.
        head: The head that answers.
        tokenizer: The bundle's.
        device: Where its graphs run.
        demand: What was proven before loading.
        ladders: For each output that can be asked for, the graphs that give it; the whole model's output is last.
        loaded: Loaded graphs by id.
        golden_count: Golden answers that they gave; 0 where the bundle has none.
        padding: For each output, what runs rows of several lengths together; empty without the profile `batching`.
        quick: For each output, the graphs of the profile `max_speed`; empty without it.
        settled: What holds for the options that requests have named so far.
    """

    bundle: bundles.Bundle
    head: heads.Head
    tokenizer: Tokenizer
    device: devices.Device
    demand: Demand
    ladders: Mapping[str, buckets.Ladder]
    loaded: Mapping[str, Loaded]
    golden_count: int = 0
    padding: Mapping[str, Padding] = field(default_factory=dict)
    quick: Mapping[str, buckets.Ladder] = field(default_factory=dict)
    settled: dict[tuple[policy.Options, str], policy.Policy] = field(default_factory=dict, repr=False)

    @classmethod
    def open(
        cls,
        opened: bundles.Bundle,
        deployment: Deployment = ON_THE_CPU,
        *,
        demand: Demand = "this_engine",
        session_options: engine.SessionOptions | None = None,
        tokenizers: Tokenizers | None = None,
        compiling: Compiling | None = None,
    ) -> Self:
        """Check a bundle and load it.

        Args:
            opened: A published bundle, or one that export wrote.
            deployment: Where its graphs must run, and what it takes. With the profile `batching`, graphs that take
                padded rows are loaded too; with `max_speed`, 16-bit copies.
            demand: What must be proven of each graph that will be used.
            session_options: Threads and optimisation.
            tokenizers: Those that other models of this process have loaded; this one's is added.
            compiling: Where compiled programs are kept; without it they are compiled at every start.

        Raises:
            InvalidRequest: the deployment asks for what the model does not take.
            ProviderUnavailable: nothing runs on that device here.
            BundleError: a file, the manifest or the evidence is not as demanded.
            EngineError: a graph does not load there, does not give the golden answers, or would have to be compiled
                where that is refused.
        """
        device, chosen = deployment.device, Choice.of(opened, deployment, demand)  # before a gigabyte is read
        opened.check_files()
        tokenizer = _tokenizer(opened, {} if tokenizers is None else tokenizers)
        expected = golden.read(opened)
        with ExitStack() as stack:
            kept = {graph.id: _check_out(stack, opened, graph, device, compiling) for graph in chosen.graphs}
            sessions = {
                graph.id: engine.Session.open(
                    opened.path(graph.file), graph, device, session_options, found.folder if found else None
                )
                for graph in chosen.graphs
                for found in [kept[graph.id]]
            }
            count = 0
            if expected:
                pad_id, bounds = tokenizer.facts.pad_id, chosen.golden_bounds
                count = golden_check.check_golden(expected, sessions, device, pad_id, bounds)
            for found in kept.values():
                if found is not None:
                    found.is_proven = count > 0  # nothing is kept that no answer was seen of
        ids = tokenizer.encode([joining.TEXT], with_offsets=False)[0].ids
        loaded = {
            name: Loaded(session, Costs(), joining.proven_rows(session, ids, tokenizer.facts.pad_id))
            for name, session in sessions.items()
        }
        padding = {name: Padding(ladder, loaded) for name, ladder in chosen.padded.items()}
        return cls(opened, chosen.head, tokenizer, device, demand, chosen.ladders, loaded, count, padding, chosen.quick)

    @property
    def name(self) -> str:
        """The name it is served under."""
        return self.bundle.manifest.model.name

    @property
    def profiles(self) -> tuple[policy.Profile, ...]:
        """Profiles that requests may ask for."""
        more: tuple[policy.Profile, ...] = ("batching",) if self.padding else ("max_speed",) if self.quick else ()
        return "exact", *more

    @property
    def default_output(self) -> str:
        """The output that answers where a request names no other: the whole model's."""
        return list(self.ladders)[-1]

    @property
    def special_count(self) -> int:
        """Special tokens of one input."""
        return self.tokenizer.special_count if self.head.inputs == "text" else self.tokenizer.pair_special_count

    def settle(self, options: policy.Options, output: str) -> policy.Policy:
        """Settle what holds for a request.

        Raises:
            InvalidRequest: an option does not suit this model.
        """
        found = self.settled.get((options, output))
        if found is None:
            capacity = policy.Capacity(
                self.ladders[output].longest(self.head.max_tokens), self.special_count, self.profiles
            )
            found = policy.resolve_policy(options, self.head, capacity)
            if len(self.settled) < MOST_SETTLED:  # callers choose options: what they make up is not kept for ever
                self.settled[options, output] = found
        return found

    def read(self, items: Sequence[Item], rules: policy.Policy) -> list[Reading | errors.ItemError]:
        """Tokenise a request's inputs and settle how each is read; see `reading.read_items`."""
        return read_items(items, self.head, self.tokenizer, rules)

    def forwards(self, reading: Reading, output: str, profile: policy.Profile = "exact") -> list[Forward]:
        """Give the runs that a reading needs, one for each row."""
        ladders = self.quick if profile == "max_speed" else self.ladders
        ladder, pad_id = ladders[output], self.tokenizer.facts.pad_id
        return [Forward(self.loaded[ladder.choose(len(row.ids)).id], row, output, pad_id) for row in reading.rows]

    def works(self, reading: Reading, output: str, profile: policy.Profile) -> Sequence[Forward | BatchedForward]:
        """Give the same for a lane, where rows may share runs as the profile says."""
        forwards = self.forwards(reading, output, profile)
        if profile != "batching":
            return forwards
        return [BatchedForward.of(one, self.padding[output]) for one in forwards]

    def warm_up_runs(self) -> Iterator[Forward]:
        """Give runs of every loaded graph, after which no caller pays for first runs, and costs are known.

        They are for the thread that callers' forwards run in: CUDA records a graph's run for each thread.
        """
        ids = self.tokenizer.encode([joining.TEXT], with_offsets=False)[0].ids
        for loaded in self.loaded.values():
            graph = loaded.session.graph
            first, *others = [graph.sequence] if graph.sequence else WARM_UP_TOKENS
            runs = [(first, tensor.name) for tensor in graph.outputs]
            runs += [(tokens, graph.outputs[0].name) for tokens in others if tokens <= self.head.max_tokens]
            for tokens, output in runs * (2 if graph.sequence else 1):  # the second tells what a run costs
                yield Forward(loaded, self._row(ids, tokens), output, self.tokenizer.facts.pad_id)

    def _row(self, ids: Ids, tokens: int) -> Framed:
        """Frame so many of some ids, over and over, that a row has about so many tokens."""
        count = max(1, tokens - self.special_count)
        content = (ids * (count // len(ids) + 1))[:count]
        if self.head.inputs == "text":
            return self.tokenizer.frame(content)
        return self.tokenizer.frame_pair(content[:-1] or content, content[-1:])


def _tokenizer(opened: bundles.Bundle, known: Tokenizers) -> Tokenizer:
    """Give a bundle's tokenizer, loaded once for all models that have it; its file was checked all the same."""
    facts = opened.manifest.tokenizer
    if facts not in known:
        known[facts] = Tokenizer.from_bundle(opened)
    return known[facts]


def _check_out(
    stack: ExitStack, opened: bundles.Bundle, graph: manifest.Graph, device: devices.Device, compiling: Compiling | None
) -> Checkout | None:
    """Take a graph's programs out of the cache until the stack is left; None where there is nothing to keep."""
    if compiling is None or device.kind not in COMPILED:
        return None
    identity = identity_of(opened, graph, device)
    return stack.enter_context(compiling.cache.check_out(identity, must_be_warm=compiling.must_be_warm))


def _check_evidence(opened: bundles.Bundle, graph_ids: Sequence[str], device: devices.Device, demand: Demand) -> None:
    match demand:
        case "this_engine":
            version = installed_build()[1]
            verdicts.require_verified(opened, graph_ids, device.provider, device.kind, version=version)
        case "any_engine":
            verdicts.require_verified(opened, graph_ids, devices.CPU.provider, devices.CPU.kind)
        case "nothing":
            pass
