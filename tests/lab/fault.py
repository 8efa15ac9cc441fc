"""What a fault is: a sentence, where it lies, and how to plant it in a finished bundle."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from lab.workbench import Bench

Family = Literal[
    "architecture", "weights", "precision", "export", "packaging", "tokenizer", "decoding", "engine", "laws"
]
Plant = Callable[[Bench], str]
TEXT_SAMPLE = "tiny-intent"


@dataclass(frozen=True, slots=True)
class Fault:
    """One way in which a graph or a bundle is not the checkpoint's.

    Attributes:
        name: A sentence's beginning, unique.
        family: Which part of the way from checkpoint to answer it lies on.
        plant: Alters the bundle, manifest included, and says what was drawn.
        samples: Checkpoints that can have it; all where empty.
        only: The check that is meant to be alone in seeing it; empty where several are.
        beyond: Why the gate lets it through; empty where it must not.
        provenance: The real case that it comes from.
        session: Entries that a session is configured with, beside the graph.
        threads: Of the session.
        is_published: Whether publishing, and not the gate, is what must refuse it.
    """

    name: str
    family: Family
    plant: Plant
    samples: tuple[str, ...] = ()
    only: str = ""
    beyond: str = ""
    provenance: str = ""
    session: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1
    is_published: bool = False
