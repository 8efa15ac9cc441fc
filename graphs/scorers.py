"""Pair scorers: what a reranker's heads file holds, by tensor name and shape.

A scorer is Linear(D, D/2), exact GELU, Linear(D/2, 1) on the first token's hidden state after the final norm, cut to
D; there is one for each exit depth and dimension. Export names its traced heads by these names, and reading a
checkpoint compares the file with them, so that a heads file of another layout is refused before anything is traced.
Source: reference/vela-family.md §1.3. The names are those of the shipped sample; upstream's own file was not seen.
"""

import re
from collections.abc import Mapping

from vela.graphs import errors, heads, task

SCORER_PATTERN = re.compile(r"heads\.layer_(\d+)_dim_\d+\.")
NAMED = 4  # tensors that a message names


def scorer_name(layer: int, dimension: int) -> str:
    """Name a scorer within the file; `heads.` before it and `.dense.weight` and the like after it name a tensor."""
    return f"layer_{layer}_dim_{dimension}"


def scorer_shapes(decoder: heads.RerankDecoder) -> dict[str, tuple[int, ...]]:
    """Give the shape of every tensor that the heads file of a decoder holds, by name."""
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in decoder.exits:
        for dimension in decoder.dimensions:
            prefix, half = f"heads.{scorer_name(layer, dimension)}", dimension // 2
            shapes[f"{prefix}.dense.weight"] = (half, dimension)
            shapes[f"{prefix}.dense.bias"] = (half,)
            shapes[f"{prefix}.out.weight"] = (1, half)
            shapes[f"{prefix}.out.bias"] = (1,)
    return shapes


def is_of_another_exit(tensor_name: str, exit_layer: int) -> bool:
    """Say whether a tensor belongs to a scorer of another exit than this one."""
    match = SCORER_PATTERN.match(tensor_name)
    return match is not None and int(match.group(1)) != exit_layer


def at_exit(tensor_name: str, exit_layer: int) -> str:
    """Give the name that a scorer's tensor has at another exit; other names stay."""
    match = SCORER_PATTERN.match(tensor_name)
    return tensor_name if match is None else f"heads.layer_{exit_layer}{tensor_name[match.end(1) :]}"


def check_scorers(found: Mapping[str, tuple[int, ...]], decoder: heads.RerankDecoder) -> None:
    """Compare the tensors of a heads file with what the decoder needs.

    Args:
        found: Shapes by tensor name.
        decoder: Its exits and dimensions.

    Raises:
        CheckpointError: a tensor is missing, left over or of another shape; some of each are named.
    """
    expected = scorer_shapes(decoder)
    odd = [dimension for dimension in decoder.dimensions if dimension % 2]
    if found == expected and not odd:
        return
    missing = [f"{name} {shape}" for name, shape in expected.items() if found.get(name) != shape]
    surplus = [f"{name} {shape}" for name, shape in found.items() if expected.get(name) != shape]
    scorers = f"{len(decoder.exits)} exits {decoder.exits} and {len(decoder.dimensions)} dimensions"
    raise errors.CheckpointError(
        f"{len(found)} tensors, of which {len(surplus)} are not a scorer's{_listed(surplus)}"
        + (f", and the odd dimensions {odd}" if odd else ""),
        expected=f"the scorers of {scorers} {decoder.dimensions}: {len(expected)} tensors, "
        f"of which {len(missing)} are not there{_listed(missing)}",
        where=task.RERANK_HEADS_FILE,
        fix="This heads file has another layout than Vela reads; its scorers would be guessed, so it is refused.",
    )


def _listed(names: list[str]) -> str:
    return f" ({', '.join(names[:NAMED])}{', …' if len(names) > NAMED else ''})" if names else ""
