"""Trace a form to ONNX once, without weights; everything after is a pass over the graph.

The trace is dynamic in batch and sequence and runs on tensors that have no storage, so its cost does not depend on
the checkpoint's size and no weight can be folded into the graph. Models that differ only in weights, RoPE bases or
label count share one trace: eight of the family's twelve do.
"""

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import onnx_ir as ir
import torch
from transformers import AutoConfig, ModernBertConfig

from vela.export import attention, forms
from vela.export.passes import simplify
from vela.graphs import contract, heads
from vela.verify import checkpoint

# A traced classifier has this many labels; passes/bind_weights.py gives it the checkpoint's count. 3 and not 2 or 1:
# the exporter may specialise on 1, and 2 could be confused with other dimensions when a graph is read by a person.
TRACED_LABELS = 3
EXAMPLE_BATCH = 2
EXAMPLE_SEQUENCE = 48
MAX_BATCH = 1024
WEIGHT_PREFIX = "model."  # forms wrap Transformers' model in an attribute of this name


@dataclass(frozen=True, slots=True)
class Trace:
    """A weightless graph.

    Attributes:
        model: Dynamic and simplified, so that fixing it to a bucket has little left to do. Its weights are graph
            inputs after `input_ids` and `attention_mask`, named as in the checkpoint's state dictionary; RoPE tables
            likewise.
        outputs: Names in graph order.
        weights: Names of the weight inputs.
    """

    model: ir.Model
    outputs: tuple[str, ...]
    weights: tuple[str, ...]


@dataclass(slots=True)
class TraceCache:
    """Traces of one process by what they depend on."""

    traces: dict[str, Trace] = field(default_factory=dict)

    def get(self, source: checkpoint.Checkpoint) -> Trace:
        """Give the trace for a checkpoint, tracing only where no equal one was made."""
        key = trace_key(source)
        if key not in self.traces:
            self.traces[key] = trace_form(source)
        return self.traces[key]


def trace_key(source: checkpoint.Checkpoint) -> str:
    """Name everything that a trace depends on; RoPE bases and label counts are bound later."""
    facts = asdict(source.architecture)
    facts["thetas"] = [layer_type for layer_type, _ in source.architecture.thetas]
    facts["label_count"] = bool(source.architecture.label_count)
    decoder = source.head.decoder
    exits = decoder.exits if isinstance(decoder, heads.EmbeddingDecoder) else ()
    return json.dumps([forms.model_class(source.head).__name__, exits, facts], sort_keys=True)


def trace_form(source: checkpoint.Checkpoint) -> Trace:
    """Trace a checkpoint's form with portable attention at the contract's opset."""
    attention.register()
    config = tracing_config(source)
    form = forms.build_weightless(config, source.head)
    ids = torch.zeros((EXAMPLE_BATCH, EXAMPLE_SEQUENCE), dtype=torch.int64, device="meta")
    example = {contract.INPUT_IDS: ids, contract.ATTENTION_MASK: torch.ones_like(ids)}
    batch = torch.export.Dim(contract.BATCH, min=1, max=MAX_BATCH)
    sequence = torch.export.Dim(contract.SEQUENCE, min=2, max=source.head.max_tokens)
    dimensions = {name: {0: batch, 1: sequence} for name in example}
    outputs = output_names(source.head)
    with _quiet():
        program = torch.export.export(form, (), kwargs=example, dynamic_shapes=dimensions, strict=False)
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
        weights = _weights_as_inputs(exported.model)
        simplify.simplify_trace(exported.model)
    return Trace(exported.model, outputs, weights)


def tracing_config(source: checkpoint.Checkpoint) -> ModernBertConfig:
    """Read the checkpoint's config for tracing: Vela's attention, the traced label count."""
    with _quiet():
        config = AutoConfig.from_pretrained(source.folder)
    config._attn_implementation = attention.PORTABLE
    if source.architecture.label_count:
        config.num_labels = TRACED_LABELS
    return config


def output_names(head: heads.Head) -> tuple[str, ...]:
    """Name a form's outputs in order."""
    if isinstance(head.decoder, heads.EmbeddingDecoder):
        return tuple(contract.embedding_output(layer) for layer in head.decoder.exits)
    return (contract.LOGITS,)


def _weights_as_inputs(model: ir.Model) -> tuple[str, ...]:
    """Turn the traced, storage-less initializers into graph inputs named as in the checkpoint.

    Passes then cannot fold, merge or drop a weight: to them it is just an input.
    """
    names = []
    for value in list(model.graph.initializers.values()):
        if not value.name.startswith(WEIGHT_PREFIX):
            continue
        model.graph.initializers.pop(value.name)
        value.const_value = None
        value.name = value.name.removeprefix(WEIGHT_PREFIX)
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
