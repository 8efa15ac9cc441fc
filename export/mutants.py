"""Mutants of a checkpoint: its own weights in a model with one mistake, as exporters and readers of configs make them.

They are made from the checkpoint's own config, so a checkpoint whose thetas are equal has no mutant that swaps them.
One FP32 model holds them all: a mutant changes it for as long as it answers (mistakes.py).
Source: which mistakes are made, reference/verification.md §4.1; a theta of 10,000 is what readers fall back to that do
not know the keys of Transformers 5.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import nn

from vela.export import mistakes
from vela.export import reference as references
from vela.graphs import causes, heads
from vela.verify import checkpoint, mutants, reference
from vela.verify.architecture import rope
from vela.verify.architecture.bert import Bert
from vela.verify.architecture.modernbert import ModernBert

KNOWN_THETA = 10_000.0  # what readers take where they find no theta
WIDE_EPSILON = 1e-3
LAYER_NAMES: dict[str, str] = {"full_attention": "global", "sliding_attention": "local"}
CAUSES: dict[str, causes.Cause] = {"full_attention": "global theta", "sliding_attention": "local theta"}

Change = Callable[[], AbstractContextManager[None]]
Padding = Literal["everywhere", "in attention", "in pooling"]  # where pads are taken for tokens
_same: Change = contextlib.nullcontext


@dataclass(frozen=True, slots=True)
class PyTorchMutant:
    """One mutant; see `verify.mutants.Mutant`.

    Attributes:
        facts: What it is.
        asked: The reference that is changed while it answers.
        change: Makes the mistake, and takes it back.
        permuted: Places of the labels in its answers; None leaves them.
        padding: Where padding is seen as tokens; None asks rows without any.
        pad_id: What rows are padded with.
        max_positions: Longest row that the model takes, pads included.
    """

    facts: mutants.Facts
    asked: references.PyTorchReference
    change: Change = _same
    permuted: tuple[int, ...] | None = None
    padding: Padding | None = None
    pad_id: int = 0
    max_positions: int = 0

    def answer(self, rows: Sequence[tuple[int, ...]], *, pads: int = 0) -> list[reference.Answer]:
        """Answer each row; see `verify.mutants.Mutant.answer`."""
        if self.padding is not None:
            room = [max(0, min(pads, self.max_positions - len(row))) for row in rows]
            padded: dict[int, reference.Answer] = {}
            for count in dict.fromkeys(room):
                places = [place for place, free in enumerate(room) if free == count]
                alike = self._answer_padded(self.padding, [rows[place] for place in places], count)
                padded |= zip(places, alike, strict=True)
            return [padded[place] for place in range(len(rows))]
        with self.change():
            answers = self.asked.answer(rows)
        if self.permuted is not None:
            order = np.array(self.permuted)
            answers = [{name: values[..., order] for name, values in answer.items()} for answer in answers]
        return answers

    def _answer_padded(self, padding: "Padding", rows: Sequence[tuple[int, ...]], pads: int) -> list[reference.Answer]:
        filled = [(*row, *(self.pad_id,) * pads) for row in rows]
        with contextlib.ExitStack() as stack:
            if padding != "everywhere":
                half = getattr(self.asked.model.config, "sliding_window", None)
                hidden = pads if padding == "in pooling" else 0
                stack.enter_context(mistakes.seen_by_attention(mistakes.layers_of(self.asked.model), half, hidden))
            if padding == "in attention":
                stack.enter_context(self.asked.unseen(pads))
            answers = self.asked.answer(filled)
        return [
            {name: values[: len(row)] if values.ndim == 2 else values for name, values in answer.items()}
            for row, answer in zip(rows, answers, strict=True)
        ]


def make_mutants(source: checkpoint.Checkpoint, asked: references.PyTorchReference) -> tuple[PyTorchMutant, ...]:
    """Make every mutant of a checkpoint.

    Args:
        source: The checkpoint.
        asked: Its FP32 reference, which mutants change while they answer.
    """
    make = functools.partial(
        PyTorchMutant, asked=asked, pad_id=int(source.config["pad_token_id"]), max_positions=source.max_positions
    )
    model, reading = asked.model, source.architecture
    found: list[PyTorchMutant] = []
    if isinstance(reading, ModernBert):
        found += [make(facts, change=change) for facts, change in _rotations(model, reading)]
        found += [make(facts, change=change) for facts, change in _windows(model, reading)]
    found += [make(facts, padding=where) for facts, where in _paddings(source)]
    found += [make(facts, change=change) for facts, change in _poolings(asked, source.head, reading)]
    found += [make(facts, change=change) for facts, change in _modules(model, reading)]
    found += [make(facts, permuted=places) for facts, places in _label_orders(source.head, reading)]
    found += [make(facts, change=change) for facts, change in _weights(model)]
    return tuple(found)


def _paddings(source: checkpoint.Checkpoint) -> Iterator[tuple[mutants.Facts, Padding]]:
    """Give mutants that take pads for tokens; without a mean, attention alone can."""
    places: dict[Padding, str] = {"everywhere": "the padding mask ignored"}
    if source.architecture.pools_by_mask(source.head.decoder):
        places |= {"in attention": "padding seen by attention", "in pooling": "padding counted in the mean"}
    for where, statement in places.items():
        yield mutants.Facts(statement, "padding mask", needs_pads=True), where


def _rotations(model: nn.Module, reading: ModernBert) -> Iterator[tuple[mutants.Facts, Change]]:
    """Give mutants that turn queries and keys by other angles."""
    rotary, width = mistakes.encoder_of(model).rotary_emb, reading.head_width
    ropes = dict(reading.rotations(reading.layers))
    if len({str(used) for used in ropes.values()}) == 2:
        facts = mutants.Facts("global and local RoPE exchanged", "thetas exchanged", "graph.rotary")
        yield facts, functools.partial(mistakes.exchanged, rotary, tuple(ropes))
    for kind, used in ropes.items():
        name, cause = LAYER_NAMES[kind], CAUSES[kind]
        thetas = {KNOWN_THETA: "that readers fall back to"}
        for other in ropes:
            if other != kind:
                thetas.setdefault(ropes[other].theta, f"of {LAYER_NAMES[other]} layers")
        for theta, what in thetas.items():
            if theta == used.theta:
                yield (
                    mutants.Facts(f"the {name} RoPE theta {what}", cause, equal_because=f"it is {theta:,.0f} here"),
                    _same,
                )
                continue
            facts = mutants.Facts(f"{name} RoPE theta {theta:,.0f} instead of {used.theta:,.0f}", cause, "graph.rotary")
            yield facts, functools.partial(mistakes.turned, rotary, kind, rope.PlainRope(theta), width)
        if not isinstance(used, rope.PlainRope):
            facts = mutants.Facts(f"{name} RoPE without its {used}", "RoPE scaling", "graph.rotary")
            yield facts, functools.partial(mistakes.turned, rotary, kind, rope.PlainRope(used.theta), width)


def _windows(model: nn.Module, reading: ModernBert) -> Iterator[tuple[mutants.Facts, Change]]:
    """Give mutants whose local layers see other keys."""
    local = [layer for layer in mistakes.encoder_of(model).layers if layer.attention_type == "sliding_attention"]
    if not local:
        return
    half = reading.half_window
    seen = {
        f"a half-window of {half - 1} instead of {half}": (half - 1, half - 1),
        f"a half-window of {half + 1} instead of {half}": (half + 1, half + 1),
        f"a window of {half - 1} to the left and {half} to the right instead of {half}": (half - 1, half),
        f"a window of {half} to the left and {half - 1} to the right instead of {half}": (half, half - 1),
        "no window: local layers see every token": (mistakes.EVERYTHING, mistakes.EVERYTHING),
    }
    for statement, (left, right) in seen.items():
        yield mutants.Facts(statement, "window"), functools.partial(mistakes.seen_through, local, left, right)


def _poolings(
    asked: references.PyTorchReference, head: heads.Head, reading: object
) -> Iterator[tuple[mutants.Facts, Change]]:
    """Give the mutant that pools the other way, for heads that pool in a way that can be mistaken."""
    if isinstance(head.decoder, heads.EmbeddingDecoder):
        yield mutants.Facts("the first token instead of the mean", "pooling"), asked.pooled_otherwise
    elif isinstance(head.decoder, heads.RerankDecoder):
        yield mutants.Facts("the mean instead of the first token", "pooling"), asked.pooled_otherwise
    elif isinstance(reading, ModernBert) and reading.pooling is not None:
        other = {"cls": "mean", "mean": "cls"}[reading.pooling]
        facts = mutants.Facts(f"{other} pooling instead of {reading.pooling}", "pooling")
        yield facts, functools.partial(mistakes.put, asked.model.config, "classifier_pooling", other)


def _modules(model: nn.Module, reading: ModernBert | Bert | object) -> Iterator[tuple[mutants.Facts, Change]]:
    """Give mutants whose feed-forward layers or norms compute otherwise."""
    layers = mistakes.layers_of(model)
    name = "act" if isinstance(reading, ModernBert) else "intermediate_act_fn"
    owners = [part for layer in layers for part in layer.modules() if isinstance(getattr(part, name, None), nn.Module)]
    activation = str(getattr(reading, "activation", ""))
    equal = "" if activation == "gelu" else f"config.json states {activation}"
    yield (
        mutants.Facts("tanh GELU instead of the exact one in every layer", "activation", equal_because=equal),
        functools.partial(mistakes.put_all, owners, name, nn.GELU("tanh")),
    )
    head = getattr(model, "head", None)
    if isinstance(getattr(head, "act", None), nn.Module) and not equal:
        yield (
            mutants.Facts("tanh GELU instead of the exact one in layers and head", "activation"),
            functools.partial(mistakes.put_all, [*owners, head], name, nn.GELU("tanh")),
        )
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    epsilon = norms[0].eps
    facts = mutants.Facts(f"a norm epsilon of {WIDE_EPSILON:g} instead of {epsilon:g}", "norm epsilon", "graph.norms")
    yield facts, functools.partial(mistakes.put_all, norms, "eps", WIDE_EPSILON)


def _label_orders(head: heads.Head, reading: object) -> Iterator[tuple[mutants.Facts, tuple[int, ...]]]:
    """Give mutants whose labels stand in another order."""
    count = int(getattr(reading, "label_count", 0))
    if count < 2 or isinstance(head.decoder, heads.EmbeddingDecoder | heads.RerankDecoder):
        return
    orders = {
        "the first two labels swapped": (1, 0, *range(2, count)),
        "labels in reverse order": tuple(reversed(range(count))),
        "labels moved by one": (*range(1, count), 0),
    }
    for places in dict.fromkeys(orders.values()):
        statement = next(said for said, order in orders.items() if order == places)
        yield mutants.Facts(statement, "label order"), places


def _weights(model: nn.Module) -> Iterator[tuple[mutants.Facts, Change]]:
    """Give mutants with other weights: one layer of an earlier step, or all of them rounded."""
    layers = mistakes.layers_of(model)
    middle = len(layers) // 2
    yield (
        mutants.Facts(f"layer {middle} of an earlier step", "stale layer", "weights.identity"),
        functools.partial(mistakes.replaced, layers[middle], mistakes.earlier),
    )
    for name, rounded, rank in (
        ("float16", functools.partial(mistakes.through, torch.float16), 1),
        ("bfloat16", functools.partial(mistakes.through, torch.bfloat16), 1),
        ("int8", mistakes.through_int8, 2),  # quantisers leave vectors alone
    ):
        facts = mutants.Facts(f"weights rounded to {name}", "precision", "weights.identity")
        yield facts, functools.partial(mistakes.replaced, model, rounded, rank)
