"""Which of a bundle's graphs runs a row: the one table of what each device takes, and no second choice.

The CPU runs one dynamic graph for each output, because sessions do not share packed weights there. Rows that share a
run there are of one length, so none is padded, and the graph is the one without a mask where the bundle has it; the
profile `batching` loads the one with a mask besides. Engines that compile
for a shape run the smallest fixed graph that holds the row.
Source: measured, 440 MB for each further session of a 307M checkpoint on the CPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vela.graphs import bundle, contract, errors, heads, manifest
from vela.serve import device as devices

TARGETS: dict[devices.DeviceKind, contract.Target] = {
    "cpu": "ort",
    "cuda": "ort",
    "migraphx": "portable",
    "rocm": "portable",
}
# What `vela export --for` calls them.
EXPORTED_FOR: dict[devices.DeviceKind, Literal["cpu", "cuda", "portable"]] = {
    "cpu": "cpu",
    "cuda": "cuda",
    "migraphx": "portable",
    "rocm": "portable",
}


@dataclass(frozen=True, slots=True)
class Ladder:
    """The graphs that give one output on one device, smallest first.

    Attributes:
        output: Name of the output that they all give.
        graphs: One dynamic graph, or fixed ones by sequence and then batch.
    """

    output: str
    graphs: tuple[manifest.Graph, ...]

    def longest(self, limit: int) -> int:
        """Give the most tokens that a row may have here; `limit` where any length goes."""
        sizes = [graph.sequence for graph in self.graphs]
        return min(limit, max(limit if size is None else size for size in sizes))

    def choose(self, tokens: int, rows: int = 1) -> manifest.Graph:
        """Give the smallest graph that holds the rows.

        Raises:
            ValueError: none does; lengths are checked against `longest` before.
        """
        for graph in self.graphs:
            if graph.fits(rows, tokens):
                return graph
        raise ValueError(f"no graph of {self.output} holds {rows} rows of {tokens} tokens")


def runs_on(graph: manifest.Graph, kind: devices.DeviceKind) -> bool:
    """Say whether a device of that kind is ever asked to run a graph."""
    is_dynamic = kind == "cpu"
    return (
        graph.target == TARGETS[kind] and (graph.sequence is None) == is_dynamic and (graph.batch is None) == is_dynamic
    )


def choose_judged(
    opened: bundle.Bundle, kind: devices.DeviceKind, graph_ids: Sequence[str] = ()
) -> list[manifest.Graph]:
    """Give the graphs that a verdict on a device is about.

    All FP32 graphs on the CPU, since publishing needs that; elsewhere those that are run there, 16-bit copies among
    them. Dynamic graphs would fail on engines that compile, and nobody would ever run them there.

    Args:
        opened: The bundle.
        kind: The device's.
        graph_ids: Graphs that were asked for by name, wherever they run.

    Raises:
        ManifestInvalid: the bundle has no graph of that name.
        NothingCompared: it has none for that device.
    """
    if graph_ids:
        # a 16-bit copy rests on the verdict of its FP32 graph, which is therefore asked first
        return sorted(map(opened.graph, graph_ids), key=lambda graph: graph.is_reduced)
    graphs = [*opened.exact_graphs()] if kind == "cpu" else opened.manifest.graphs
    graphs = [graph for graph in graphs if kind == "cpu" or runs_on(graph, kind)]
    if not graphs:
        raise errors.NothingCompared(
            f"no graph that runs on {kind}",
            expected=f"fixed graphs of target {TARGETS[kind]!r}",
            where=opened.folder.name,
            fix=f"Export the bundle again with `--for {EXPORTED_FOR[kind]}` besides.",
        )
    return graphs


def build_ladder(
    content: manifest.Manifest, head: heads.Head, output: str, device: devices.Device, *, for_padded: bool = False
) -> Ladder:
    """Collect the graphs that give `output` on `device`.

    Args:
        content: The bundle's manifest.
        head: The head.
        output: Name of the output.
        device: Where they run.
        for_padded: Whether rows of a dynamic graph will be padded, so that it must take a mask.

    Raises:
        ManifestInvalid: the bundle has none.
    """
    graphs = [
        graph
        for graph in content.graphs
        if graph.head == head.name
        and not graph.is_reduced  # max_speed.py puts those in their places
        and runs_on(graph, device.kind)
        and (graph.takes_mask or not for_padded)
        and output in {tensor.name for tensor in graph.outputs}
    ]
    if not graphs:
        raise errors.ManifestInvalid(
            f"no graph that gives {output} on {device}",
            expected=f"a {'dynamic' if device.kind == 'cpu' else 'fixed'} graph of target {TARGETS[device.kind]!r}",
            where=content.model.name,
            fix="Export the bundle with that target; serve runs no graph of another kind instead.",
        )
    graphs.sort(key=lambda graph: (graph.exit_layer, graph.sequence or 0, graph.batch or 0))
    # A deeper exit's graph may give a shallow output too; only the shallowest such graphs do no more than is needed.
    least = [graph for graph in graphs if graph.exit_layer == graphs[0].exit_layer]
    unpadded = [graph for graph in least if not graph.takes_mask]
    return Ladder(output, tuple(unpadded or least))


def outputs_of(head: heads.Head, content: manifest.Manifest) -> tuple[str, ...]:
    """Name the outputs that a head can be asked for; those of exits that no graph was exported for are left out.

    The whole model's output always is among them, so that a bundle without it is refused and not served in part.
    """
    match head.decoder:
        case heads.EmbeddingDecoder(exits=exits):
            wanted = [contract.embedding_output(layer) for layer in exits]
        case heads.RerankDecoder(exits=exits, dimensions=dimensions):
            wanted = [contract.score_output(layer, dimension) for layer in exits for dimension in reversed(dimensions)]
        case _:
            return (contract.LOGITS,)
    given = {tensor.name for graph in content.graphs for tensor in graph.outputs}
    return (*(name for name in wanted[:-1] if name in given), wanted[-1])


def graphs_in_use(ladders: Sequence[Ladder]) -> tuple[manifest.Graph, ...]:
    """Give every graph that the ladders can choose, each once."""
    return tuple({graph.id: graph for ladder in ladders for graph in ladder.graphs}.values())
