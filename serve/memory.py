"""Which graphs of a ladder a device has memory for: the longest always, then those that save most for their size.

Every session on a GPU holds weights of its own, so ten buckets of a 307M model take 12 GB, and twelve such models more
than a GPU has. A bucket less costs time and no answer: texts go to the next longer graph, which was proven for them.
Activations are not counted; a budget leaves room for them.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from vela.graphs import bundle as bundles
from vela.graphs import costs, errors, heads, manifest
from vela.serve import buckets

GIGABYTE = 1_000_000_000
SHORTEST = 2  # tokens: a text has special tokens around it

Graphs = tuple[manifest.Graph, ...]
Ids = tuple[str, ...]  # of a ladder's graphs: ladders of one exit share them
SizeOf = Callable[[manifest.Graph], int]


def trim(ladder: buckets.Ladder, head: heads.Head, *, alone: bool) -> buckets.Ladder:
    """Leave out graphs that nothing would run.

    Args:
        ladder: Smallest graphs first.
        head: As it is deployed: what is longer than its longest row needs is left out.
        alone: Whether every row runs alone, so that of one length the smallest batch is enough.
    """
    if alone:
        smallest = {_reach(graph): graph for graph in reversed(ladder.graphs)}
        kept = tuple(one for one in ladder.graphs if one.sequence is None or smallest[_reach(one)] is one)
        ladder = buckets.Ladder(ladder.output, kept)
    enough = min((_reach(graph) for graph in ladder.graphs if _reach(graph) >= head.max_tokens), default=None)
    if enough is None:
        return ladder
    return buckets.Ladder(ladder.output, tuple(graph for graph in ladder.graphs if _reach(graph) <= enough))


def to_bytes(gigabytes: float, where: str) -> int:
    """Give a budget in bytes.

    Raises:
        InvalidRequest: it is no number above 0.
    """
    if not (math.isfinite(gigabytes) and gigabytes > 0):
        raise errors.InvalidRequest(
            str(gigabytes), expected="a number of GB above 0", where=where, fix="Write one, or leave it out."
        )
    return int(gigabytes * GIGABYTE)


def bytes_of(opened: bundles.Bundle, graph: manifest.Graph) -> int:
    """Give the bytes of weights that a session of a graph holds.

    A 16-bit copy holds its largest tensor, which words are looked up in, as it is, and half of all others.
    """
    if not graph.external:
        return graph.size_bytes
    lengths = [opened.manifest.weight(name).length for name in set(graph.external.values())]
    return max(lengths) + (sum(lengths) - max(lengths)) // 2 if graph.is_reduced else sum(lengths)


def choose(
    ladders: Mapping[str, buckets.Ladder], size_of: SizeOf, budget: int, model: str
) -> dict[str, buckets.Ladder]:
    """Keep of every ladder what a budget has room for.

    Args:
        ladders: By output; those of one exit may share graphs.
        size_of: Bytes that a graph would take, with its 16-bit copy where that is loaded too.
        budget: Bytes for all of them.
        model: Its name, for the message.

    Returns:
        The ladders with their longest graphs, and of the others those that save most of the time that a text takes for
        the bytes that they need. Lengths are taken to be spread evenly over doublings, so that short texts count.

    Raises:
        InvalidRequest: the longest graphs alone take more.
    """
    rungs = {_ids(ladder): ladder.graphs for ladder in ladders.values()}
    kept = {ids: {_reach(graphs[-1])} for ids, graphs in rungs.items()}
    spent = sum(_bytes_at(graphs, _reach(graphs[-1]), size_of) for graphs in rungs.values())
    if spent > budget:
        raise errors.InvalidRequest(
            f"{budget / GIGABYTE:.2f} GB",
            expected=f"{spent / GIGABYTE:.2f} GB, which the longest graph of each output takes",
            where=f"memory budget of {model}",
            fix="Give it more, serve fewer models on that device, or write a smaller input.max_tokens.",
        )
    while (best := _best(rungs, kept, size_of, budget - spent)) is not None:
        ids, tokens = best
        kept[ids].add(tokens)
        spent += _bytes_at(rungs[ids], tokens, size_of)
    return {
        name: buckets.Ladder(ladder.output, tuple(one for one in ladder.graphs if _reach(one) in kept[_ids(ladder)]))
        for name, ladder in ladders.items()
    }


def _best(
    rungs: Mapping[Ids, Graphs], kept: Mapping[Ids, set[int]], size_of: SizeOf, left: int
) -> tuple[Ids, int] | None:
    """Give the length that saves most for its bytes, of those that still fit; None where none does."""
    found: list[tuple[float, int, Ids]] = []
    for ids, graphs in rungs.items():
        for tokens in {_reach(graph) for graph in graphs} - kept[ids]:
            size = _bytes_at(graphs, tokens, size_of)
            if size <= left:
                saved = _expected(kept[ids]) - _expected(kept[ids] | {tokens})
                found.append((saved / max(1, size), tokens, ids))
    _, tokens, ids = max(found, default=(0.0, 0, ()))
    return (ids, tokens) if found else None


def _expected(sizes: set[int]) -> float:
    """Reckon what a text takes on these lengths, in one unit for all, for texts spread evenly over doublings."""
    model, shorter, total = costs.ModelCosts(), SHORTEST, 0.0
    for tokens in sorted(sizes):
        total += math.log2(tokens / shorter) * model.cost_of(tokens)
        shorter = tokens
    return total


def _bytes_at(graphs: Sequence[manifest.Graph], tokens: int, size_of: SizeOf) -> int:
    """Give the bytes of all graphs of one length: those of larger batches go with it."""
    return sum(size_of(graph) for graph in graphs if _reach(graph) == tokens)


def _ids(ladder: buckets.Ladder) -> Ids:
    return tuple(graph.id for graph in ladder.graphs)


def _reach(graph: manifest.Graph) -> int:
    return graph.sequence or 0
