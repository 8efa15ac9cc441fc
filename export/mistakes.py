"""Mistakes: what a mutant changes in a model for as long as it answers, and puts back whatever happens.

Windows and padding are masks of our own, laid over whatever Transformers computed, so that a window can be lopsided
and padding be seen in one place and hidden in another.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from vela.verify.architecture import rope

EVERYTHING = 1 << 30  # further than any row is long
STALE_SHARE = 0.02  # of a tensor's own spread: an earlier step of the same training


def encoder_of(model: nn.Module) -> Any:
    """Give the encoder of a model with or without a head."""
    prefix = getattr(model, "base_model_prefix", "")
    return getattr(model, prefix, model)


def layers_of(model: nn.Module) -> Sequence[Any]:
    """Give the layers of a model."""
    encoder = encoder_of(model)
    return list(encoder.layers if hasattr(encoder, "layers") else encoder.encoder.layer)


@contextlib.contextmanager
def exchanged(rotary: nn.Module, kinds: tuple[str, ...]) -> Iterator[None]:
    """Let two layer types turn by each other's angles."""
    names = [[f"{kind}_{what}" for what in ("inv_freq", "attention_scaling")] for kind in kinds]
    before = [[getattr(rotary, name) for name in of_kind] for of_kind in names]

    def place(values: Sequence[Sequence[Any]]) -> None:
        for of_kind, stored in zip(names, values, strict=True):
            for name, value in zip(of_kind, stored, strict=True):
                setattr(rotary, name, value)

    place(before[::-1])
    try:
        yield
    finally:
        place(before)


@contextlib.contextmanager
def turned(rotary: nn.Module, kind: str, used: rope.Rope, width: int) -> Iterator[None]:
    """Let one layer type turn by other angles."""
    names = (f"{kind}_inv_freq", f"{kind}_attention_scaling")
    before = [getattr(rotary, name) for name in names]
    setattr(rotary, names[0], nn.Buffer(torch.from_numpy(used.frequencies(width)), persistent=False))
    setattr(rotary, names[1], used.attention_scaling)
    try:
        yield
    finally:
        for name, value in zip(names, before, strict=True):
            setattr(rotary, name, value)


@contextlib.contextmanager
def seen_through(
    layers: Sequence[nn.Module], left: int, right: int, hidden: int = 0, hidden_first: int = 0
) -> Iterator[None]:
    """Let layers see so many keys to the left and right, and neither the last `hidden` ones nor the first."""

    def masked(_: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
        places = torch.arange(positional[0].shape[1])
        distance = places[None, :] - places[:, None]
        window = (distance >= -left) & (distance <= right)
        window &= (places < len(places) - hidden) & (places >= hidden_first)
        mask = window[None, None]
        if len(positional) > 1:  # BERT's layers get it by place
            return (positional[0], mask, *positional[2:]), named
        return positional, {**named, "attention_mask": mask}

    hooks = [layer.register_forward_pre_hook(masked, with_kwargs=True) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextlib.contextmanager
def seen_by_attention(
    layers: Sequence[Any], half: int | None, hidden: int = 0, hidden_first: int = 0
) -> Iterator[None]:
    """Let every layer see its own window of all but the last `hidden` keys and the first, whatever the mask says."""
    local = [layer for layer in layers if getattr(layer, "attention_type", "") == "sliding_attention"]
    others = [layer for layer in layers if layer not in local]
    reach = EVERYTHING if half is None else half
    unseen = {"hidden": hidden, "hidden_first": hidden_first}
    with seen_through(others, EVERYTHING, EVERYTHING, **unseen), seen_through(local, reach, reach, **unseen):
        yield


@contextlib.contextmanager
def given(encoder: nn.Module, change: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Change the last hidden state, (B, T, H), before it is pooled."""

    def changed(_: nn.Module, __: tuple[Any, ...], outputs: Any) -> Any:
        outputs["last_hidden_state"] = change(outputs["last_hidden_state"])
        return outputs

    hook = encoder.register_forward_hook(changed)
    try:
        yield
    finally:
        hook.remove()


@contextlib.contextmanager
def replaced_one(parameter: nn.Parameter, make: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Replace one tensor, and put the stored one back."""
    stored = parameter.data
    try:
        parameter.data = make(stored)
        yield
    finally:
        parameter.data = stored


@contextlib.contextmanager
def exchanged_tensors(pairs: Sequence[tuple[nn.Parameter, nn.Parameter]]) -> Iterator[None]:
    """Let tensors of each pair stand for each other."""

    def exchange() -> None:
        for one, other in pairs:
            one.data, other.data = other.data, one.data

    exchange()
    try:
        yield
    finally:
        exchange()


@contextlib.contextmanager
def left_out(part: nn.Module, *, adds: bool) -> Iterator[None]:
    """Leave out a part: one that adds to the state adds nothing then, another one gives what it takes."""

    def passed_on(_: nn.Module, positional: tuple[torch.Tensor, ...], outputs: Any) -> Any:
        (taken, *_) = positional
        given = torch.zeros_like(taken) if adds else taken
        return (given, *outputs[1:]) if isinstance(outputs, tuple) else given

    hook = part.register_forward_hook(passed_on)
    try:
        yield
    finally:
        hook.remove()


@contextlib.contextmanager
def replaced(module: nn.Module, make: Callable[[torch.Tensor], torch.Tensor], rank: int = 2) -> Iterator[None]:
    """Replace every tensor of at least a rank, and put the stored ones back; for a while both are held."""
    matrices = [parameter for parameter in module.parameters() if parameter.ndim >= rank]
    stored = [parameter.data for parameter in matrices]
    try:
        for parameter in matrices:
            parameter.data = make(parameter.data)
        yield
    finally:
        for parameter, value in zip(matrices, stored, strict=True):
            parameter.data = value


def earlier(weights: torch.Tensor) -> torch.Tensor:
    """Give weights as an earlier step of the same training might have had them."""
    noise = torch.randn(weights.shape, generator=torch.Generator().manual_seed(weights.numel()))
    return weights + STALE_SHARE * weights.std() * noise


def through(dtype: torch.dtype, weights: torch.Tensor) -> torch.Tensor:
    """Round weights to a type and back."""
    return weights.to(dtype).float()


def through_int8(weights: torch.Tensor) -> torch.Tensor:
    """Round to 8 bits with one scale for each row, as quantisers do for weights."""
    scale = weights.abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / 127.0
    return (weights / scale).round().clamp(-127, 127) * scale


@contextlib.contextmanager
def put(owner: Any, name: str, value: object) -> Iterator[None]:
    """Replace one attribute."""
    with put_all([owner], name, value):
        yield


@contextlib.contextmanager
def put_all(owners: Sequence[Any], name: str, value: object) -> Iterator[None]:
    """Replace an attribute of several objects."""
    before = [getattr(owner, name) for owner in owners]
    for owner in owners:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, stored in zip(owners, before, strict=True):
            setattr(owner, name, stored)
