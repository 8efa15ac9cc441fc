"""A model that answers: an opened bundle, its tokenizer, its loaded graphs, and the steps from text to answer.

The steps are apart (read, forwards, answer) because the server runs them in different threads; `classify` and `embed`
join them for the command line. Whoever holds a ServedModel holds proven graphs: digests and records were checked
before anything was loaded, unless the caller said otherwise by `Demand`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from vela.graphs import bundle as bundles
from vela.graphs import contract, errors, heads, verdicts
from vela.serve import answers, assembly, buckets, engine, policy
from vela.serve import device as devices
from vela.serve.forward import Forward
from vela.serve.reading import Item, Pair, Reading, read_items
from vela.serve.runtime import installed_build
from vela.serve.tokenization import Tokenizer

# What must be proven before a graph is loaded: that it passed on this very engine, that it passed on the CPU (what
# publish demands of every graph), or nothing, for bundles that are being judged or tried.
Demand = Literal["this_engine", "any_engine", "nothing"]

WARM_UP_TEXT = "warm-up"


@dataclass(frozen=True, slots=True)
class EmbedOptions:
    """What a caller of an embedder may choose; None leaves it to the model.

    Attributes:
        dimensions: One that the head lists.
        layer: One of its exits.
        overflow: `reject` or `truncate`.
        max_tokens: Longest input with special tokens.
    """

    dimensions: int | None = None
    layer: int | None = None
    overflow: heads.Overflow | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One head of one bundle, loaded on one device.

    Attributes:
        bundle: The opened bundle; every file of it matched its digest.
        head: The head that answers.
        tokenizer: The bundle's.
        device: Where its graphs run.
        demand: What was proven before loading.
        ladders: For each output that can be asked for, the graphs that give it.
        sessions: Loaded graphs by id.
    """

    bundle: bundles.Bundle
    head: heads.Head
    tokenizer: Tokenizer
    device: devices.Device
    demand: Demand
    ladders: Mapping[str, buckets.Ladder]
    sessions: Mapping[str, engine.Session]

    @classmethod
    def open(
        cls,
        folder: Path,
        device: devices.Device = devices.CPU,
        *,
        demand: Demand = "this_engine",
        session_options: engine.SessionOptions | None = None,
    ) -> Self:
        """Check a bundle and load it.

        Args:
            folder: A published bundle, or one that export wrote.
            device: Where its graphs must run.
            demand: What must be proven of each graph that will be used.
            session_options: Threads and optimisation.

        Raises:
            BundleError: a file, the manifest or the evidence is not as demanded.
            EngineError: a graph does not load there.
        """
        opened = bundles.Bundle.open(folder)
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
        return cls(opened, head, tokenizer, device, demand, ladders, sessions)

    @property
    def name(self) -> str:
        """The name it is served under."""
        return self.bundle.manifest.model.name

    @property
    def default_output(self) -> str:
        """The output that answers where a request names no layer: the whole model's."""
        return list(self.ladders)[-1]

    def warm_up(self) -> None:
        """Run every loaded graph once, so that no caller pays for first runs.

        Raises:
            ItemError: a graph gives no usable output.
        """
        ids = self.tokenizer.encode([WARM_UP_TEXT], with_offsets=False)[0].ids[:1]
        pairs = self.head.inputs != "text"
        row = self.tokenizer.frame_pair(ids, ids) if pairs else self.tokenizer.frame(ids)
        for session in self.sessions.values():
            for tensor in session.graph.outputs:
                Forward(session, row, tensor.name, self.tokenizer.facts.pad_id).run()

    def policy(self, options: policy.Options, output: str | None = None) -> policy.Policy:
        """Settle what holds for a request.

        Raises:
            InvalidRequest: an option does not suit this model.
        """
        ladder = self.ladders[output or self.default_output]
        pairs = self.head.inputs != "text"
        special_count = self.tokenizer.pair_special_count if pairs else self.tokenizer.special_count
        capacity = policy.Capacity(ladder.longest(self.head.max_tokens), special_count)
        return policy.resolve_policy(options, self.head, capacity)

    def embedding_choice(self, options: EmbedOptions) -> tuple[str, int]:
        """Give the output and the dimension that an embedding request asks for.

        Raises:
            UnsupportedSurface: this model is no embedder.
            InvalidRequest: it has no such layer or dimension.
        """
        decoder = self.head.decoder
        if not isinstance(decoder, heads.EmbeddingDecoder):
            raise unsupported(self, "embeddings")
        dimension = options.dimensions or decoder.dimensions[0]
        if dimension not in decoder.dimensions:
            raise _no_such("dimensions", dimension, decoder.dimensions)
        output = contract.embedding_output(options.layer or decoder.exits[-1])
        if output not in self.ladders:
            known = [layer for layer in decoder.exits if contract.embedding_output(layer) in self.ladders]
            raise _no_such("layer", options.layer, known)
        return output, dimension

    def read(self, items: Sequence[Item], rules: policy.Policy) -> list[Reading | errors.ItemError]:
        """Tokenise a request's inputs and settle how each is read; see `reading.read_items`."""
        return read_items(items, self.head, self.tokenizer, rules)

    def forwards(self, reading: Reading, output: str | None = None) -> list[Forward]:
        """Give the runs that a reading needs, one for each row."""
        name = output or self.default_output
        ladder, pad_id = self.ladders[name], self.tokenizer.facts.pad_id
        return [
            Forward(self.sessions[ladder.choose(len(row.ids)).id], row, name, pad_id) for row in reading.rows
        ]

    def classify(
        self, items: Sequence[Item], options: policy.Options | None = None
    ) -> list[answers.Classified | answers.FailedAnswer]:
        """Answer a request in this thread: one answer for each item, in order.

        Raises:
            UnsupportedSurface: this model does not classify.
            InvalidRequest: an option does not suit it.
        """
        require_classifier(self)
        rules = self.policy(options or policy.Options())
        results: list[answers.Classified | answers.FailedAnswer] = []
        for index, reading in enumerate(self.read(items, rules)):
            try:
                outputs = self._run(reading)
                results.append(assembly.classify(index, outputs[0], outputs[1], self.head, rules))
            except errors.ItemError as error:
                results.append(answers.FailedAnswer.from_error(index, error))
        return results

    def embed(
        self, texts: Sequence[str], options: EmbedOptions | None = None
    ) -> list[answers.EmbeddingAnswer | answers.FailedAnswer]:
        """Answer a request in this thread: one unit vector for each text, in order.

        Raises:
            UnsupportedSurface: this model is no embedder.
            InvalidRequest: an option does not suit it.
        """
        options = options or EmbedOptions()
        output, dimension = self.embedding_choice(options)
        rules = self.policy(policy.Options(overflow=options.overflow, max_tokens=options.max_tokens), output)
        results: list[answers.EmbeddingAnswer | answers.FailedAnswer] = []
        for index, reading in enumerate(self.read(texts, rules)):
            try:
                outputs = self._run(reading, output)
                results.append(assembly.embed(index, outputs[0], outputs[1], dimension))
            except errors.ItemError as error:
                results.append(answers.FailedAnswer.from_error(index, error))
        return results

    def _run(
        self, reading: Reading | errors.ItemError, output: str | None = None
    ) -> tuple[Reading, assembly.Outputs]:
        if isinstance(reading, errors.ItemError):
            raise reading
        return reading, [forward.run() for forward in self.forwards(reading, output)]
