"""Suspects: mutants with a mistake in one place, made where a graph that failed was seen to differ.

There are too many places to ask a mutant of each about every graph. Once the layers that answer otherwise to the
checkpoint's own states are known, a mistake in just those, or in what follows the layers, is a hypothesis like any
other (export/mutants.py).
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from transformers.activations import QuickGELUActivation

from vela.export import mistakes
from vela.export import mutants as making
from vela.export import reference as references
from vela.graphs import heads
from vela.verify import checkpoint, mutants
from vela.verify.architecture.modernbert import ModernBert

Found = Iterator[tuple[mutants.Facts, making.Change]]
ACTIVATIONS: dict[str, nn.Module] = {
    "tanh GELU": nn.GELU("tanh"),
    "the sigmoid's GELU": QuickGELUActivation(),
    "ReLU": nn.ReLU(),
    "SiLU": nn.SiLU(),
}
ROUNDINGS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "float16": functools.partial(mistakes.through, torch.float16),
    "bfloat16": functools.partial(mistakes.through, torch.bfloat16),
    "int8": mistakes.through_int8,
}
OWNERS_OF_ACTIVATION = ("act", "intermediate_act_fn")
EXCHANGED = 2  # layers at fault where two read tensors for each other
SUBLAYERS = ("attn", "mlp")
# Parts that one product gives, in their order, and which of them could be taken for each other.
ORDERS: dict[str, dict[str, tuple[int, ...]]] = {
    "Wqkv": {"queries and keys": (1, 0, 2), "keys and values": (0, 2, 1), "queries and values": (2, 1, 0)},
    "Wi": {"what is activated and what is multiplied": (1, 0)},
}


def make_suspects(
    source: checkpoint.Checkpoint, asked: references.PyTorchReference, layers: Sequence[int], exit_layer: int
) -> tuple[making.PyTorchMutant, ...]:
    """Make the mutants of a place.

    Args:
        source: The checkpoint.
        asked: Its FP32 reference, which mutants change while they answer.
        layers: Those that are at fault, from 1 on, in order; none where it is what lies around them.
        exit_layer: The last one that the graph runs.
    """
    model, reading = asked.model, source.architecture
    every = mistakes.layers_of(model)
    made: list[tuple[mutants.Facts, making.Change]] = []
    for numbers in dict.fromkeys((tuple(layers[:1]), tuple(layers))):
        if numbers:
            some = [every[number - 1] for number in numbers]
            where = f"in layer {numbers[0]}" if len(numbers) == 1 else "in each of these layers"
            made += [*_activations(some, where), *_views(some, where, reading)]
    for number in layers[:1]:
        layer, where = every[number - 1], f"in layer {number}"
        made += _roundings(dict(layer.named_parameters()), where)
        made += _wirings({name: part for name, part in layer.named_modules() if name}, where)
        made.append((_computing(f"layer {number} left out"), functools.partial(mistakes.left_out, layer, adds=False)))
    if len(layers) == EXCHANGED:
        first, second = (every[number - 1] for number in layers)
        made += _exchanges(first, second, layers)
    if not layers or layers[0] == 1 or layers[-1] == exit_layer:
        made += [*_around(model, every), *_poolings(source, asked)]
    return tuple(making.PyTorchMutant(facts, asked, change) for facts, change in made)


def _activations(owners: Sequence[nn.Module], where: str) -> Found:
    """Give mutants with another activation."""
    parts = [part for owner in owners for part in owner.modules()]
    for name in OWNERS_OF_ACTIVATION:
        holders = [part for part in parts if isinstance(getattr(part, name, None), nn.Module)]
        for kind, activation in ACTIVATIONS.items() if holders else ():
            facts = mutants.Facts(f"{kind} {where}", "activation")
            yield facts, functools.partial(mistakes.put_all, holders, name, activation)


def _views(layers: Sequence[Any], where: str, reading: object) -> Found:
    """Give mutants whose layers see other keys: through another window, or not all tokens."""
    is_local = [getattr(layer, "attention_type", "") == "sliding_attention" for layer in layers]
    far = mistakes.EVERYTHING
    half = reading.half_window if isinstance(reading, ModernBert) else far
    if all(is_local):
        seen = {
            f"a half-window of {half - 1}": (half - 1, half - 1),
            f"a half-window of {half + 1}": (half + 1, half + 1),
            f"a window of {half - 1} to the left": (half - 1, half),
            f"a window of {half - 1} to the right": (half, half - 1),
            "no window": (far, far),
        }
    else:
        seen = {} if any(is_local) or half == far else {f"a half-window of {half}": (half, half)}
    for said, (left, right) in seen.items():
        yield mutants.Facts(f"{said} {where}", "window"), functools.partial(mistakes.seen_through, layers, left, right)
    for said, hidden in (("the last token", {"hidden": 1}), ("the first token", {"hidden_first": 1})):
        facts = mutants.Facts(f"{said} hidden {where}", "padding mask")
        yield facts, functools.partial(_hidden_from, layers, half, **hidden)


def _hidden_from(layers: Sequence[Any], half: int, **hidden: int) -> AbstractContextManager[None]:
    """Hide tokens from layers that keep their windows."""
    return mistakes.seen_by_attention(layers, half, **hidden)


def _roundings(parameters: dict[str, nn.Parameter], where: str) -> Found:
    """Give mutants with one tensor in a narrower type."""
    for name, parameter in parameters.items():
        for kind, rounded in ROUNDINGS.items():
            if kind != "int8" or parameter.ndim > 1:
                facts = mutants.Facts(f"{name} {where} rounded to {kind}", "precision")
                yield facts, functools.partial(mistakes.replaced_one, parameter, rounded)


def _around(model: nn.Module, layers: Sequence[nn.Module]) -> Found:
    """Give mutants of what lies before the layers and behind them."""
    inside = {id(parameter) for layer in layers for parameter in layer.parameters()}
    outside = {name: value for name, value in model.named_parameters() if id(value) not in inside}
    yield from _roundings(outside, "outside the layers")
    layered = {id(part) for layer in layers for part in layer.modules()}
    parts = {name: part for name, part in model.named_modules() if name and id(part) not in layered}
    yield from _wirings(parts, "outside the layers")
    head = getattr(model, "head", None)
    if head is not None:
        yield from _activations([head], "in the head")


def _poolings(source: checkpoint.Checkpoint, asked: references.PyTorchReference) -> Found:
    """Give mutants that pool other tokens, for heads that answer for a whole text."""
    decoder, encoder = source.head.decoder, mistakes.encoder_of(asked.model)
    if isinstance(decoder, heads.RerankDecoder):
        for said, token in (("second", 1), ("last", -1)):
            facts = mutants.Facts(f"pooling of the {said} token instead of the first", "pooling")
            yield facts, functools.partial(asked.pooled_from, token)
    elif isinstance(decoder, heads.SequenceDecoder | heads.ScoresDecoder):
        pooled = {
            "the second token instead of the first": lambda state: state.roll(-1, 1),
            "the last token instead of the first": lambda state: state.roll(1, 1),
            "the maximum of all tokens": lambda state: state.amax(1, keepdim=True).expand_as(state),
        }
        for said, change in pooled.items():
            facts = mutants.Facts(f"pooling of {said}", "pooling")
            yield facts, functools.partial(mistakes.given, encoder, change)


def _wirings(parts: Mapping[str, nn.Module], where: str) -> Found:
    """Give mutants that read a right tensor wrongly, or leave out a part.

    Args:
        parts: By name, within the place.
        where: The place, for people.
    """
    for name, part in parts.items():
        if isinstance(part, nn.LayerNorm) or name in SUBLAYERS:
            adds = name in SUBLAYERS
            yield _computing(f"{name} {where} left out"), functools.partial(mistakes.left_out, part, adds=adds)
        weight = getattr(part, "weight", None)
        if not isinstance(part, nn.Linear) or not isinstance(weight, nn.Parameter):
            continue
        if weight.shape[0] == weight.shape[1]:
            yield (
                _computing(f"{name} {where} read transposed"),
                functools.partial(mistakes.replaced_one, weight, torch.t),
            )
        for said, order in ORDERS.get(name.rpartition(".")[2], {}).items():
            reorder = functools.partial(_in_order, order)
            yield _computing(f"{said} {where} exchanged"), functools.partial(mistakes.replaced_one, weight, reorder)


def _exchanges(first: nn.Module, second: nn.Module, numbers: Sequence[int]) -> Found:
    """Give mutants of two layers that read tensors for each other: one of each, or all."""
    ours, theirs = dict(first.named_parameters()), dict(second.named_parameters())
    common = [name for name in ours if name in theirs and ours[name].shape == theirs[name].shape]
    where = f"of layers {numbers[0]} and {numbers[1]} exchanged"
    for said, names in {"all tensors": common, **{name: [name] for name in common}}.items():
        pairs = [(ours[name], theirs[name]) for name in names]
        yield _computing(f"{said} {where}"), functools.partial(mistakes.exchanged_tensors, pairs)


def _in_order(order: Sequence[int], weight: torch.Tensor) -> torch.Tensor:
    """Give a tensor whose rows, cut into as many parts, stand in another order."""
    parts = weight.chunk(len(order))
    return torch.cat([parts[place] for place in order])


def _computing(statement: str) -> mutants.Facts:
    return mutants.Facts(statement, "other computation")
