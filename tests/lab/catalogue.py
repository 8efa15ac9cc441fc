"""All faults, and where each is tried."""

from collections.abc import Iterator
from dataclasses import dataclass

from lab import (
    attention_faults,
    engine_faults,
    export_faults,
    law_faults,
    layer_faults,
    packaging_faults,
    precision_faults,
    statement_faults,
    weight_faults,
)
from lab.fault import Fault

FAULTS: tuple[Fault, ...] = (
    *attention_faults.FAULTS,
    *layer_faults.FAULTS,
    *weight_faults.FAULTS,
    *precision_faults.FAULTS,
    *export_faults.FAULTS,
    *packaging_faults.FAULTS,
    *statement_faults.FAULTS,
    *law_faults.FAULTS,
    *engine_faults.FAULTS,
)


@dataclass(frozen=True, slots=True)
class Scene:
    """A graph of a sample's bundle, and the longest text that it is asked.

    Attributes:
        sample: Name of the checkpoint.
        graph_id: Of its bundle.
        max_tokens: Longest case on a dynamic graph.
        is_general: Whether faults that any checkpoint can have are tried here too, and not its own alone.
    """

    sample: str
    graph_id: str
    max_tokens: int = 64
    is_general: bool = True

    def __str__(self) -> str:
        return f"{self.sample} {self.graph_id}"


# Every form of graph, every form of head; beyond 256 tokens sliding layers go through in blocks.
SCENES = (
    Scene("tiny-intent", "portable-b1-s64"),
    Scene("tiny-intent", "model", max_tokens=320),
    Scene("tiny-guard", "cuda-b2-s64", is_general=False),
    Scene("tiny-pii", "model", is_general=False),
    Scene("tiny-reranker", "portable-l4-b1-s64", is_general=False),
    Scene("tiny-embedding", "model-l4", is_general=False),
    Scene("tiny-multilabel", "portable-b1-s128", is_general=False),
    Scene("tiny-grounded", "model", max_tokens=192, is_general=False),
)


def is_tried(fault: Fault, scene: Scene) -> bool:
    """Say whether a fault is tried in a scene; publishing depends on no graph's form, so one scene is enough."""
    if fault.is_published:
        return scene == SCENES[0]
    return scene.sample in fault.samples if fault.samples else scene.is_general


def all_trials(faults: tuple[Fault, ...] = FAULTS, scenes: tuple[Scene, ...] = SCENES) -> Iterator[tuple[Fault, Scene]]:
    """Give every fault with every scene that it is tried in."""
    for scene in scenes:
        for fault in faults:
            if is_tried(fault, scene):
                yield fault, scene
