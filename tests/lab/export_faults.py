"""Faults that an exporter makes: constructs an engine does not take, inputs frozen at the trace, outputs mislaid."""

from functools import partial
from typing import Any

import numpy as np
import onnx
from lab import landmarks
from lab.fault import TEXT_SAMPLE, Fault
from lab.sketch import MICROSOFT, NotApplicable, Sketch, set_attribute
from lab.workbench import Bench

RERANKER, EMBEDDER, TOKENS = "tiny-reranker", "tiny-embedding", "tiny-pii"
TRACED_TOKENS = 48
GUARDED = "microsoft/onnxscript pull 2479: masked attention exported with IsNaN and Where, which MIGraphX does not know"
FROZEN = "huggingface/transformers pull 30070: a mask dropped when a graph was traced"
MISLAID = "a token classifier published under a sequence classifier's contract"
EARLIER = "a published graph whose layers end before the exit it is named for"


def freeze_mask(bench: Bench) -> str:
    """Replace the mask by ones, as a trace of one unpadded row does."""
    sketch = bench.sketch()
    users = sketch.users("attention_mask")
    if not users:
        raise NotApplicable("no mask")
    ones = sketch.add("Add", [sketch.add("Mul", ["attention_mask", sketch.put(0, np.int64)]), sketch.put(1, np.int64)])
    for node, index in users:
        node.input[index] = ones
    return _done(bench, sketch, "the mask is ones")


def freeze_length(bench: Bench) -> str:
    """Divide a mean by the length of the traced example instead of the row's."""
    sketch = bench.sketch()
    division, _ = landmarks.mean_pooling(sketch)
    division.input[1] = sketch.put([[float(TRACED_TOKENS)]])
    return _done(bench, sketch, f"sums are divided by {TRACED_TOKENS}")


def freeze_batch(bench: Bench) -> str:
    """Declare one row where the manifest says any number."""
    sketch = bench.sketch()
    if not bench.is_dynamic:
        raise NotApplicable("a fixed graph")
    for value in (*sketch.graph.input, *sketch.graph.output):
        value.type.tensor_type.shape.dim[0].Clear()
        value.type.tensor_type.shape.dim[0].dim_value = 1
    return _done(bench, sketch, "inputs of one row")


def rename_dimensions(bench: Bench) -> str:
    """Name dynamic dimensions otherwise than loaders know them; engines take any name."""
    sketch = bench.sketch()
    if not bench.is_dynamic:
        raise NotApplicable("a fixed graph")
    for value in (*sketch.graph.input, *sketch.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    return _done(bench, sketch, "N for batch")


def answer_for_first_row(bench: Bench) -> str:
    """Give every row of a batch the first one's answer."""
    sketch = bench.sketch()
    if not bench.is_dynamic:
        raise NotApplicable("one row only")
    output = sketch.graph.output[0].name
    first = [sketch.put([number], np.int64) for number in (0, 1, 0)]

    def spread(value: str) -> str:
        alone = sketch.add("Slice", [value, *first])
        return sketch.add("Add", [sketch.add("Mul", [value, sketch.put(0.0)]), alone])

    sketch.interpose(output, spread)
    return _done(bench, sketch, output)


def change_opset(bench: Bench, version: int) -> str:
    sketch = bench.sketch()
    if bench.entry["target"] == "ort" and version > bench.entry["opset"]:
        raise NotApplicable("ONNX Runtime takes newer ones")
    next(entry for entry in sketch.proto.opset_import if not entry.domain).version = version
    sketch.save()
    bench.change_entry(opset=version)
    return f"opset {version}"


def guard_against_nan(bench: Bench) -> str:
    """Guard attention's output as an exporter of boolean masks does; answers stay the same."""
    sketch = bench.sketch()
    value = landmarks.branch_ends(sketch, int(bench.rng.integers(landmarks.layer_count(sketch))))["attn"]
    sketch.interpose(value, lambda name: sketch.add("Where", [sketch.add("IsNaN", [name]), sketch.put(0.0), name]))
    return _done(bench, sketch, value)


def use_unknown_operator(bench: Bench, kind: str, domain: str = "", **attributes: Any) -> str:
    """Put an operator that no engine of the target is known to take where it changes nothing."""
    sketch = bench.sketch()
    if domain and domain not in {entry.domain for entry in sketch.proto.opset_import}:
        sketch.proto.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    value = landmarks.branch_ends(sketch, 0)["attn"]
    sketch.interpose(value, lambda name: sketch.add(kind, [name], domain=domain, **attributes))
    return _done(bench, sketch, kind)


def break_operator(bench: Bench) -> str:
    """Misuse an operator of an engine's own domain, which ONNX's checker does not know."""
    sketch = bench.sketch()
    node = bench.pick([node for node in sketch.nodes() if node.domain == MICROSOFT and node.op_type != "Gelu"])
    set_attribute(node, "num_heads" if node.op_type != "SkipLayerNormalization" else "epsilon", "none")
    return _done(bench, sketch, f"{node.op_type} {node.output[0]} with an attribute of another type")


def miscount_at_run(bench: Bench) -> str:
    """Look up a place that is not there: the graph loads, and every run ends in an error."""
    sketch = bench.sketch()
    numbers = sketch.add("Reshape", ["input_ids", sketch.put([-1], np.int64)])
    past = sketch.add("Add", [sketch.add("Mul", [numbers, sketch.put(0, np.int64)]), sketch.put(1 << 40, np.int64)])
    found = sketch.add("Cast", [sketch.add("Gather", [sketch.put([1, 2], np.int64), past])], to=onnx.TensorProto.FLOAT)
    total = sketch.add("ReduceSum", [sketch.add("Mul", [found, sketch.put(0.0)])], keepdims=0)
    output = sketch.graph.output[0].name
    sketch.interpose(output, lambda name: sketch.add("Add", [name, total]))
    return _done(bench, sketch, output)


def unsort(bench: Bench) -> str:
    """Write nodes in an order in which ONNX does not allow them; engines sort them anyway."""
    sketch = bench.sketch()
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in sketch.graph.node]
    del sketch.graph.node[:]
    sketch.graph.node.extend([*nodes[1:], nodes[0]])
    sketch.save(is_sorted=False)
    bench.reseal()
    return f"{nodes[0].op_type} comes last"


def misstate_shape(bench: Bench) -> str:
    """Annotate an inner value with a shape that it does not have; engines ignore it."""
    sketch = bench.sketch()
    value = landmarks.norms(sketch)[0].output[0]
    made = onnx.helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, [3, 5])
    sketch.graph.value_info.append(made)
    return _done(bench, sketch, f"{value} is said to be 3 by 5")


def exchange_outputs(bench: Bench, *, by_name: bool) -> str:
    """Exchange the first two outputs: their order, or which answer goes by which name."""
    sketch = bench.sketch()
    if len(sketch.graph.output) < 2:
        raise NotApplicable("one output")
    first, second = (value.name for value in sketch.graph.output[:2])
    if by_name:
        names = {first: second, second: first}
        for node in sketch.graph.node:
            node.output[:] = [names.get(name, name) for name in node.output]
        return _done(bench, sketch, f"{first} and {second} answer for each other")
    copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in sketch.graph.output]
    del sketch.graph.output[:]
    sketch.graph.output.extend([copies[1], copies[0], *copies[2:]])
    sketch.save()
    outputs = bench.entry["outputs"]
    bench.change_entry(outputs=[outputs[1], outputs[0], *outputs[2:]])
    return f"{second} comes before {first}"


def exchange_inputs(bench: Bench) -> str:
    """Read ids as the mask and the mask as ids, as exporters did that took inputs by position."""
    sketch = bench.sketch()
    if not sketch.users("attention_mask"):
        raise NotApplicable("one input")
    names = {"input_ids": "attention_mask", "attention_mask": "input_ids"}
    for node in sketch.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    return _done(bench, sketch, "ids and mask change places")


def exit_elsewhere(bench: Bench) -> str:
    """Take the pooled state two layers before the exit that the output is named for."""
    sketch = bench.sketch()
    division, hidden = landmarks.mean_pooling(sketch)
    weighted = sketch.producer(sketch.producer(division.input[0]).input[0])
    layer = bench.entry["exit_layer"]
    earlier = next(iter([value for value in (f"hidden_l{layer - 2}",) if sketch.producer(value)]), "")
    if not earlier:
        raise NotApplicable("no earlier layer")
    weighted.input[1] = earlier
    return _done(bench, sketch, f"{earlier} for {hidden}")


def claim_another_exit(bench: Bench) -> str:
    layer = bench.entry["exit_layer"]
    bench.change_entry(exit_layer=layer - 1)
    return f"exit {layer - 1} for {layer}"


def publish_tokens_as_sequence(bench: Bench) -> str:
    """Cut a token classifier's answer to its first token, and let the manifest say so."""
    sketch = bench.sketch()
    output = sketch.graph.output[0]
    if len(output.type.tensor_type.shape.dim) != 3:
        raise NotApplicable("no token classifier")
    sketch.interpose("logits", lambda value: sketch.add("Gather", [value, sketch.put(0, np.int64)], axis=1))
    del output.type.tensor_type.shape.dim[1]
    sketch.save()
    (spec,) = bench.entry["outputs"]
    bench.change_entry(outputs=[spec | {"shape": [spec["shape"][0], spec["shape"][2]]}])
    return "logits of the first token alone"


def rename_output(bench: Bench) -> str:
    sketch = bench.sketch()
    old = sketch.graph.output[0].name
    for node in sketch.graph.node:
        node.output[:] = ["output_0" if name == old else name for name in node.output]
    sketch.graph.output[0].name = "output_0"
    sketch.save()
    outputs = bench.entry["outputs"]
    bench.change_entry(outputs=[outputs[0] | {"name": "output_0"}, *outputs[1:]])
    return f"output_0 for {old}"


def cut_vocabulary(bench: Bench) -> str:
    """Clip ids to a vocabulary that is smaller than the checkpoint's; rare words become one."""
    sketch = bench.sketch()
    words = int(sketch.initializer("embeddings.tok_embeddings.weight").dims[0])
    kept = words * 7 // 8
    last = sketch.put(kept - 1, np.int64)
    sketch.interpose("input_ids", lambda ids: sketch.add("Min", [ids, last]), _embedding_uses(sketch))
    return _done(bench, sketch, f"{kept} of {words} words")


def _embedding_uses(sketch: Sketch) -> list[tuple[onnx.NodeProto, int]]:
    return [(node, index) for node, index in sketch.users("input_ids") if node.op_type == "Gather"]


def _done(bench: Bench, sketch: Sketch, drawn: str) -> str:
    sketch.save()
    bench.reseal()
    return drawn


FAULTS = (
    Fault("the mask was frozen to ones", "export", freeze_mask, provenance=FROZEN),
    Fault("the length was folded into a constant", "export", freeze_length, (TEXT_SAMPLE, "tiny-multilabel", EMBEDDER)),
    Fault("the batch was frozen to one row", "export", freeze_batch),
    Fault("dimensions have other names", "export", rename_dimensions, only="graph.contract"),
    Fault(
        "every row gets the first one's answer",
        "export",
        answer_for_first_row,
        provenance="microsoft/onnxruntime issue 3004: a graph that works with batch 1 only",
    ),
    Fault("the opset is newer than its target knows", "export", partial(change_opset, version=21)),
    Fault("the opset is older than its operators", "export", partial(change_opset, version=12)),
    Fault("attention is guarded by IsNaN", "export", guard_against_nan, only="graph.lint", provenance=GUARDED),
    Fault("an operator is foreign to the target", "export", partial(use_unknown_operator, kind="Celu", alpha=1.0)),
    Fault("an engine's own operator is used wrongly", "export", break_operator, only="engine.placement"),
    Fault("every run ends in an error", "export", miscount_at_run),
    Fault("nodes are not in order", "export", unsort, only="graph.checker"),
    Fault("an inner value's shape is misstated", "export", misstate_shape),
    Fault(
        "two outputs come in another order",
        "export",
        partial(exchange_outputs, by_name=False),
        (RERANKER,),
        "graph.contract",
    ),
    Fault("two outputs answer for each other", "export", partial(exchange_outputs, by_name=True), (RERANKER,)),
    Fault(
        "ids and mask change places",
        "export",
        exchange_inputs,
        provenance="huggingface/setfit issue 338: inputs exchanged by position",
    ),
    Fault("an exit is taken two layers early", "export", exit_elsewhere, (EMBEDDER,), provenance=EARLIER),
    Fault("the manifest claims another exit", "export", claim_another_exit),
    Fault(
        "a token model is published as a sequence model",
        "export",
        publish_tokens_as_sequence,
        (TOKENS,),
        provenance=MISLAID,
    ),
    Fault("the output has another name", "export", rename_output),
    Fault("ids are clipped to a smaller vocabulary", "export", cut_vocabulary),
)
