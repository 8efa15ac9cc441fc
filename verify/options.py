"""How the gate is told to judge: what the command line's options come to."""

from dataclasses import dataclass, field
from pathlib import Path

from vela.graphs import model_table
from vela.serve import device as devices
from vela.serve import engine

# Longest case by default: 2,048 tokens cross every window of the family many times, and cost 15 s a run on 2 cores
# for a 307M model; fixed graphs are always judged up to their own length.
DEFAULT_MAX_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class GateOptions:
    """How to judge.

    Attributes:
        device: Where graphs run.
        bar: Name of the deciding bar.
        max_tokens: Longest case on dynamic graphs.
        corpus: A user's texts, judged as well.
        session: Threads and optimisation.
        budget_s: Seconds that the whole may take; None for no limit.
        is_fresh: Drop what an interrupted run left.
        graph_ids: Graphs to judge; where empty, all on the CPU, and elsewhere those that serve would run there.
        is_fail_fast: Skip inference on a graph whose static checks failed.
        table: The pinned models that a bundle may say it is.
    """

    device: devices.Device = devices.CPU
    bar: str = "auto"
    max_tokens: int = DEFAULT_MAX_TOKENS
    corpus: Path | None = None
    session: engine.SessionOptions = field(default_factory=engine.SessionOptions)
    budget_s: float | None = None
    is_fresh: bool = False
    graph_ids: tuple[str, ...] = ()
    is_fail_fast: bool = False
    table: model_table.ModelTable = field(default_factory=model_table.load_table)
