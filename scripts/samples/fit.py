"""The training loop that all samples share: AdamW, cosine schedule, averaged weights."""

import copy
import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from packed import Batch

Model = TypeVar("Model", bound=torch.nn.Module)
LOGGER = logging.getLogger(__name__)
_WARMUP_STEPS = 200
_LOG_EVERY = 500


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how fast to train."""

    steps: int
    learning_rate: float
    weight_decay: float = 0.02
    # Decay of the running mean of the weights that is kept as the result.
    averaging: float = 0.998


def _rate(step: int, schedule: Schedule) -> float:
    warmup = min(1.0, (step + 1) / _WARMUP_STEPS)
    return schedule.learning_rate * warmup * 0.5 * (1 + math.cos(math.pi * step / schedule.steps))


def fit(
    model: Model,
    batches: Iterator[Batch],
    loss_of: Callable[[Model, Batch], torch.Tensor],
    schedule: Schedule,
    name: str,
) -> Model:
    """Train a model and return a copy with averaged weights, ready for inference."""
    model.train()
    averaged = copy.deepcopy(model).eval()
    mean, live = list(averaged.parameters()), list(model.parameters())
    decayed = [p for p in live if p.ndim > 1]
    plain = [p for p in live if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": schedule.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    fused = live[0].device.type == "cuda"
    optimizer = torch.optim.AdamW(groups, lr=schedule.learning_rate, betas=(0.9, 0.98), fused=fused)
    started = time.monotonic()
    for step in range(schedule.steps):
        for group in optimizer.param_groups:
            group["lr"] = _rate(step, schedule)
        loss = loss_of(model, next(batches))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(live, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        decay = min(schedule.averaging, (step + 1) / (step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(mean, live, 1 - decay)
        if step % _LOG_EVERY == 0 or step == schedule.steps - 1:
            LOGGER.info("%s step %d loss %.4f %.0f s", name, step, loss.item(), time.monotonic() - started)
    return averaged
