"""Which words the gate may have for a fault, where it has any: a wrong name is worse than none.

A fault may rightly have several names, such as a graph that was cut short, which is no valid graph either. What is
wired otherwise, with every tensor in place, is "other computation", unless a closer word is right; for a fault of one
of the kinds that have a word of their own, "other computation" is wrong. For a fault that is not listed any name is.
"""

from collections.abc import Iterable

OTHER_WEIGHTS = ("other weights",)
COMPUTES = ("other computation",)
MANIFEST = ("manifest altered",)

# By the beginning of a fault's name.
NAMES: dict[str, tuple[str, ...]] = {
    # architecture
    "global and local rotations are exchanged": ("thetas exchanged",),
    "sliding layers have theta": ("local theta",),
    "full layers have theta": ("global theta",),
    "positions are interpolated": ("RoPE scaling",),
    "cosines carry an attention factor": ("RoPE scaling",),
    "rotations turn backwards": COMPUTES,
    "queries stand one position later": COMPUTES,
    "a rotation pairs neighbours": COMPUTES,
    "queries and keys of a layer": COMPUTES,
    "keys and values of a layer": COMPUTES,
    "scores are scaled": COMPUTES,
    "a layer has half its heads": COMPUTES,
    "windows are one token": ("window",),
    "windows reach less far": ("window",),
    "there is no window": ("window",),
    "one layer's window": ("window",),
    "padding is seen": ("padding mask",),
    "the mask was frozen to ones": ("padding mask", "other computation", "interface"),
    "the mask hides the last token": ("padding mask",),
    "unseen keys": ("padding mask",),
    "pads count in a mean": ("padding mask",),
    "pads are counted in the answer": ("padding mask", "other computation"),
    "every norm has an epsilon": ("norm epsilon",),
    "one norm has an epsilon": ("norm epsilon",),
    "every GELU is the tanh approximation": ("activation",),
    "one GELU is the tanh approximation": ("activation",),
    "a GELU is a": ("activation",),
    "a layer is skipped": COMPUTES,
    "a layer's": COMPUTES,
    "a residual is dropped": COMPUTES,
    "two layers are exchanged": COMPUTES,
    "two layers' norms": COMPUTES,
    "the final norm is not applied": COMPUTES,
    "the embeddings' norm is not applied": COMPUTES,
    "a square weight is read transposed": COMPUTES,
    "gate and value": COMPUTES,
    "the session approximates GELU": ("activation", "fusion"),
    "the final norm is gone with its weight": COMPUTES,
    "the classifier's bias is dropped": COMPUTES,
    "a mean is taken over by the": ("pooling",),
    "a mean is taken over by the maximum": ("pooling", "padding mask"),  # which is looked for among pads too
    "the first token is taken over by the": ("pooling",),
    "the first token is taken over by the mean": ("pooling", "other computation"),  # a mask beside attention
    # decoding
    "two labels change places behind the classifier": ("label order",),
    "two rows of the classifier are exchanged": ("label order", "other weights"),
    "the manifest exchanges two labels": MANIFEST,
    "the manifest has another threshold": MANIFEST,
    "the manifest compares thresholds otherwise": MANIFEST,
    "the manifest cuts long texts": MANIFEST,
    "the operating point has another threshold": ("config altered",),
    # weights
    "one number of one tensor": OTHER_WEIGHTS,
    "one tensor is off": OTHER_WEIGHTS,
    "one row is a sibling's": OTHER_WEIGHTS,
    "one tensor's sign is flipped": OTHER_WEIGHTS,
    "one layer is stale": ("stale layer",),
    "the graph holds a sibling's weights": OTHER_WEIGHTS,
    "a sibling's weights lie beside": OTHER_WEIGHTS,
    "the embedding of a rare word": OTHER_WEIGHTS,
    "a square matrix is held transposed": (*OTHER_WEIGHTS, *COMPUTES),  # as a graph holds one that it reads so
    "two tensors of one shape are exchanged": (*OTHER_WEIGHTS, *COMPUTES),  # each is there, and read for the other
    "a weight is": COMPUTES,
    "a reference": OTHER_WEIGHTS,
    "one number of the weight file": (*OTHER_WEIGHTS, "file altered"),
    # precision
    "weights rounded to": ("precision",),
    "all weights are rounded to": ("precision",),
    "one weight is": ("precision",),
    "a branch passes through": ("precision",),
    "a graph holds a number in float16": ("precision",),
    "a manifest says fp16": ("precision", "manifest altered"),
    # export
    "the length was folded": ("interface", "other computation", "engine refuses"),
    "the batch was frozen": ("interface", "engine refuses"),
    "dimensions have other names": ("interface",),
    "the opset is": ("operators", "invalid graph", "engine refuses"),
    "attention is guarded by IsNaN": ("operators",),
    "an operator is foreign": ("operators",),
    "an engine's own operator": ("engine refuses",),
    "every run ends in an error": ("engine refuses", "other computation"),
    "nodes are not in order": ("invalid graph",),
    "an inner value's shape is misstated": ("invalid graph", "interface"),
    "two outputs come in another order": ("interface",),
    "ids and mask change places": ("other computation", "interface"),
    "an exit is taken": COMPUTES,
    "two outputs answer for each other": COMPUTES,
    "every row gets the first one's answer": COMPUTES,
    "the manifest claims another exit": (*MANIFEST, "interface", "other computation"),
    "a token model is published": ("interface",),
    "the output has another name": ("interface",),
    "ids are clipped": (*COMPUTES, *OTHER_WEIGHTS),
    # packaging
    "the graph file is cut short": ("file altered", "invalid graph"),
    "the weight file is cut short": ("file altered", "other weights"),
    "the graph file was written again": ("file altered",),
    "references are written in another order": ("operators",),
    "references go through a link": ("invalid graph",),
    "references go to an unlisted copy": (*OTHER_WEIGHTS, "invalid graph"),
    "a file of the checkpoint is a link": ("file altered",),
    "another bucket's graph": ("file altered", "interface"),
    "a file is there that": ("config altered",),
    "a file that no graph needs": ("tokenizer", "config altered"),
    "config.json has": ("config altered",),
    "the tokenizer": ("tokenizer",),
    "the manifest has another digest for a file": ("file altered", *MANIFEST),
    "the manifest lists a file": ("file altered", *MANIFEST),
    "the manifest has other types of inputs": ("interface", *MANIFEST),
    "the manifest has another target": ("operators", *MANIFEST),
    "the manifest": MANIFEST,
    # laws and engine
    "ids under the mask are added": ("padding mask", "other computation"),
    "rows of a batch move each other": COMPUTES,
    "a random number is added": ("not repeatable", "operators"),
    "threads race": ("not repeatable",),
    "numbers overflow unless operators are fused": ("fusion",),
    "a rare token switches the answer": COMPUTES,
    "the gate's session fuses otherwise": ("not repeatable", "fusion"),
}


def names_of(fault: str) -> tuple[str, ...]:
    """Give the names that a fault may get, by the longest beginning that is listed; none where every name is wrong."""
    fitting = [start for start in NAMES if fault.startswith(start)]
    return NAMES[max(fitting, key=len)] if fitting else ()


def count(named: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Count how the gate named faults: rightly, wrongly, or not at all.

    Args:
        named: Each fault with its name, empty where it got none.
    """
    counted = {"right": 0, "wrong": 0, "unknown": 0}
    for fault, name in named:
        counted["unknown" if not name else "right" if name in names_of(fault) else "wrong"] += 1
    return counted
