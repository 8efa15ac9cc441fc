"""What a manifest says of one graph's tensors, against what the graph's file holds.

Export writes where each tensor comes from; a reader of the manifest alone (an inspector, a tool that shares weights
between graphs) believes it. So the gate derives it again, from the file and the places in the weight files.
"""

from collections.abc import Mapping

from vela.graphs import contract, errors, manifest
from vela.verify import graph_file
from vela.verify.static import weights


def check_graph_facts(graph: graph_file.GraphFile, entry: manifest.Graph, stored: weights.StoredWeights) -> str:
    """Compare a graph's entry in the manifest with its file.

    Args:
        graph: The parsed graph.
        entry: What the manifest says of it.
        stored: What lies beside it, as it is now.

    Raises:
        ManifestInvalid: naming each fact that differs.
    """
    pairs: dict[str, tuple[object, object]] = {
        "size": (entry.size_bytes, graph.path.stat().st_size),
        "constants": (entry.inline, graph.inline_entries()),
        "references": (entry.external, _references(graph, stored)),
        "storage": (entry.storage, "embedded" if entry.storage == "embedded" and not graph.external else "reference"),
    }
    differing = [name for name, (actual, expected) in pairs.items() if actual != expected]
    if differing:
        raise errors.ManifestInvalid(
            f"other {', '.join(differing)} than {entry.file} has",
            expected="what export wrote of the graph's tensors",
            where=f"{contract.MANIFEST_FILE}, graph {entry.id}",
            fix="The manifest was altered, or the graph is another: export the bundle again.",
        )
    return f"{len(pairs)} facts of {len(graph.external)} references and {len(graph.inline)} constants derived again"


def _references(graph: graph_file.GraphFile, stored: weights.StoredWeights) -> Mapping[str, str]:
    """Give the stored tensor that each external one is, or is rows of; empty names where it is neither."""
    located = {name: stored.locate(external) for name, external in graph.external.items()}
    return {name: found[0].name if found else "" for name, found in located.items()}
