"""A model that answers: an opened bundle, its tokenizer and its loaded graphs.

The steps from text to answer are apart (read, forwards, a question's finish) because the server runs them in
different threads; `answer` joins them for the command line. Whoever holds a ServedModel holds proven graphs: digests
and records were checked before anything was loaded, unless the caller said otherwise by `Demand`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from vela.graphs import bundle as bundles
from vela.graphs import errors, golden, heads, verdicts
from vela.serve import buckets, engine, golden_check, policy
from vela.serve import device as devices
from vela.serve.forward import Forward
from vela.serve.reading import Item, Reading, read_items
from vela.serve.runtime import installed_build
from vela.serve.tokenization import Tokenizer

# What must be proven before a graph is loaded: that it passed on this very engine, that it passed on the CPU (what
# publish demands of every graph), or nothing, for bundles that are being judged or tried.
Demand = Literal["this_engine", "any_engine", "nothing"]

WARM_UP_TEXT = "warm-up"


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
        sessions: Loaded graphs by id.
        golden_count: Golden answers that they gave; 0 where the bundle has none.
    """

    bundle: bundles.Bundle
    head: heads.Head
    tokenizer: Tokenizer
    device: devices.Device
    demand: Demand
    ladders: Mapping[str, buckets.Ladder]
    sessions: Mapping[str, engine.Session]
    golden_count: int = 0

    @classmethod
    def open(
        cls,
        opened: bundles.Bundle,
        device: devices.Device = devices.CPU,
        *,
        demand: Demand = "this_engine",
        session_options: engine.SessionOptions | None = None,
    ) -> Self:
        """Check a bundle and load it.

        Args:
            opened: A published bundle, or one that export wrote.
            device: Where its graphs must run.
            demand: What must be proven of each graph that will be used.
            session_options: Threads and optimisation.

        Raises:
            BundleError: a file, the manifest or the evidence is not as demanded.
            EngineError: a graph does not load there, or does not give the golden answers.
        """
        opened.check_files()
        head = opened.manifest.head()
        names = buckets.outputs_of(head, opened.manifest)
        ladders = {name: buckets.build_ladder(opened.manifest, head, name, device) for name in names}
        graphs = buckets.graphs_in_use(list(ladders.values()))
        _check_evidence(opened, [graph.id for graph in graphs], device, demand)
        tokenizer = Tokenizer.from_bundle(opened)
        sessions = {
            graph.id: engine.Session.open(opened.path(graph.file), graph, device, session_options) for graph in graphs
        }
        expected = golden.read(opened)
        count = golden_check.check_golden(expected, sessions, device, tokenizer.facts.pad_id) if expected else 0
        return cls(opened, head, tokenizer, device, demand, ladders, sessions, count)

    @property
    def name(self) -> str:
        """The name it is served under."""
        return self.bundle.manifest.model.name

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
        capacity = policy.Capacity(self.ladders[output].longest(self.head.max_tokens), self.special_count)
        return policy.resolve_policy(options, self.head, capacity)

    def read(self, items: Sequence[Item], rules: policy.Policy) -> list[Reading | errors.ItemError]:
        """Tokenise a request's inputs and settle how each is read; see `reading.read_items`."""
        return read_items(items, self.head, self.tokenizer, rules)

    def forwards(self, reading: Reading, output: str) -> list[Forward]:
        """Give the runs that a reading needs, one for each row."""
        ladder, pad_id = self.ladders[output], self.tokenizer.facts.pad_id
        return [Forward(self.sessions[ladder.choose(len(row.ids)).id], row, output, pad_id) for row in reading.rows]

    def warm_up(self) -> None:
        """Run every loaded graph once, so that no caller pays for first runs.

        Raises:
            ItemError: a graph gives no usable output.
        """
        ids = self.tokenizer.encode([WARM_UP_TEXT], with_offsets=False)[0].ids[:1]
        row = self.tokenizer.frame(ids) if self.head.inputs == "text" else self.tokenizer.frame_pair(ids, ids)
        for session in self.sessions.values():
            for tensor in session.graph.outputs:
                Forward(session, row, tensor.name, self.tokenizer.facts.pad_id).run()


def _check_evidence(opened: bundles.Bundle, graph_ids: Sequence[str], device: devices.Device, demand: Demand) -> None:
    match demand:
        case "this_engine":
            version = installed_build()[1]
            verdicts.require_verified(opened, graph_ids, device.provider, device.kind, version=version)
        case "any_engine":
            verdicts.require_verified(opened, graph_ids, devices.CPU.provider, devices.CPU.kind)
        case "nothing":
            pass
