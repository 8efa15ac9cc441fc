"""Trace encoders and heads to ONNX once, without weights; everything after is a pass over graphs.

A trace is dynamic in batch and sequence and runs on tensors that have no storage, so its cost does not depend on the
checkpoint's size and no weight can be folded into it. What is bound later (weights, RoPE bases, label counts) is no
part of a trace's key, so the twelve models of the family share one encoder trace.
"""

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir
import torch
from torch import nn
from transformers import AutoConfig, PreTrainedConfig

from vela.export import attention, forms
from vela.export.passes import simplify
from vela.graphs import contract, heads, scorers
from vela.verify import checkpoint

# A traced classifier has this many labels; passes/bind_weights.py gives it the checkpoint's count. 3 and not 2 or 1:
# the exporter may specialise on 1, and 2 could be confused with other dimensions when a graph is read by a person.
TRACED_LABELS = 3
EXAMPLE_BATCH = 2
EXAMPLE_SEQUENCE = 48
MAX_BATCH = 1024


@dataclass(frozen=True, slots=True)
class Trace:
    """A weightless graph.

    Attributes:
        model: Dynamic and simplified, so that fixing it to a bucket has little left to do. Its weights are graph
            inputs after the data inputs, named as in the checkpoint's state dictionary; RoPE tables likewise.
        weights: Names of the weight inputs.
    """

    model: ir.Model
    weights: tuple[str, ...]


@dataclass(slots=True)
class TraceCache:
    """Traces of one process by what they depend on."""

    traces: dict[str, Trace] = field(default_factory=dict)

    def encoder(self, source: checkpoint.Checkpoint) -> Trace:
        """Give the encoder trace for a checkpoint, attention symbolic; outputs are `hidden_l1` to `hidden_l<L>`."""
        key = ["encoder", source.max_positions, dict(source.architecture.encoder_facts)]
        return self._get(key, lambda: trace_encoder(source))

    def head(self, source: checkpoint.Checkpoint, exit_layer: int) -> Trace:
        """Give the head trace for a checkpoint's exit; its inputs are `hidden` and `attention_mask`."""
        facts: list[object] = [dict(source.architecture.head_facts)]
        decoder = source.head.decoder
        kind = f"{type(decoder).__name__} of {forms.model_class(source.head, source.model_type).__name__}"
        if not isinstance(decoder, heads.RerankDecoder):
            return self._get([kind, *facts], lambda: trace_head(source, is_early=False))
        is_early = exit_layer < decoder.exits[-1]
        facts += [is_early, decoder.dimensions]
        return _at_exit(self._get([kind, *facts], lambda: trace_head(source, is_early=is_early)), exit_layer)

    def _get(self, key: object, make: Callable[[], Trace]) -> Trace:
        name = json.dumps(key, sort_keys=True)
        if name not in self.traces:
            self.traces[name] = make()
        return self.traces[name]


def hidden_output(layer: int) -> str:
    """Name the encoder output after `layer` layers."""
    return f"hidden_l{layer}"


def trace_encoder(source: checkpoint.Checkpoint) -> Trace:
    """Trace a checkpoint's encoder at the contract's opset, with attention left symbolic."""
    ids = torch.zeros((EXAMPLE_BATCH, EXAMPLE_SEQUENCE), dtype=torch.int64, device="meta")
    example = {contract.INPUT_IDS: ids, contract.ATTENTION_MASK: torch.ones_like(ids)}
    outputs = [hidden_output(layer + 1) for layer in range(source.architecture.layers)]
    encoder = forms.build_encoder(tracing_config(source))
    trace = _trace(encoder, example, outputs, source.max_positions, prefix="model.")
    simplify.simplify_trace(trace.model)
    return trace


def trace_head(source: checkpoint.Checkpoint, *, is_early: bool) -> Trace:
    """Trace a checkpoint's head, at its last exit or at any early one."""
    config = tracing_config(source)
    config.num_hidden_layers = 1
    if hasattr(config, "layer_types"):
        config.layer_types = ["full_attention"]
    shape = (EXAMPLE_BATCH, EXAMPLE_SEQUENCE)
    example = {
        forms.HIDDEN: torch.zeros((*shape, source.architecture.hidden_size), device="meta"),
        contract.ATTENTION_MASK: torch.ones(shape, dtype=torch.int64, device="meta"),
    }
    form, outputs = forms.build_head(config, source.head, is_early=is_early)
    trace = _trace(form, example, outputs, source.max_positions, prefix="")
    simplify.simplify_trace(trace.model)
    return trace


def _at_exit(traced: Trace, exit_layer: int) -> Trace:
    """Give a trace of scorers the weights of one exit: the exits differ in nothing else."""
    model = traced.model.clone()
    for value in model.graph.inputs:
        value.name = scorers.at_exit(value.name, exit_layer)
    return Trace(model, tuple(scorers.at_exit(name, exit_layer) for name in traced.weights))


def tracing_config(source: checkpoint.Checkpoint) -> PreTrainedConfig:
    """Read the checkpoint's config for tracing: Vela's attention, the traced label count."""
    attention.register()
    with _quiet():
        config = AutoConfig.from_pretrained(source.folder)
    config._attn_implementation = attention.SYMBOLIC
    config.num_labels = TRACED_LABELS
    return config


def _trace(
    form: nn.Module, example: Mapping[str, torch.Tensor], outputs: Sequence[str], max_tokens: int, *, prefix: str
) -> Trace:
    batch = torch.export.Dim(contract.BATCH, min=1, max=MAX_BATCH)
    sequence = torch.export.Dim(contract.SEQUENCE, min=2, max=max_tokens)
    dimensions: dict[str, Any] = {name: {0: batch, 1: sequence} for name in example}
    parameters = {name for name, _ in (*form.named_parameters(), *form.named_buffers())}
    with _quiet():
        program = torch.export.export(form, (), kwargs=dict(example), dynamic_shapes=dimensions, strict=False)
        exported = torch.onnx.export(
            program,
            dynamo=True,
            opset_version=contract.OPSET_VERSION,
            input_names=list(example),
            output_names=list(outputs),
            optimize=False,
            verbose=False,
        )
        if exported is None:
            raise RuntimeError("torch.onnx.export returned nothing")
        weights = _weights_as_inputs(exported.model, parameters, prefix)
    return Trace(exported.model, weights)


def _weights_as_inputs(model: ir.Model, parameters: set[str], prefix: str) -> tuple[str, ...]:
    """Turn the traced, storage-less initializers into graph inputs named as in the checkpoint.

    Passes then cannot fold, merge or drop a weight: to them it is just an input.
    """
    names = []
    for value in list(model.graph.initializers.values()):
        if value.name not in parameters:
            continue
        model.graph.initializers.pop(value.name)
        value.const_value = None
        value.name = value.name.removeprefix(prefix)
        model.graph.inputs.append(value)
        names.append(value.name)
    return tuple(names)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence what torch and Transformers print while tracing; errors still raise."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "transformers", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
