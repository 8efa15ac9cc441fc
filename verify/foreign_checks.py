"""The static checks of a foreign graph, cheapest first; none runs it.

They are those of a bundle's graph as far as a single file can be asked: there is no manifest to agree with, and no
target whose operators it promised to keep to, since serve's engine says which it takes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from vela.graphs import contract, errors, record
from vela.verify import checkpoint, foreign, graph_file
from vela.verify.static import census, contract_check, dataflow, graph_constants, identity, rotary, tables, weights
from vela.verify.static.graph_constants import Constant
from vela.verify.static_checks import run_check

# A graph that fails one of these cannot be run, or would only be seen to answer as the other model that it is.
DECISIVE = frozenset({"graph.parse", "graph.contract", "weights.identity"})
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Found:
    """What the static checks of a graph found.

    Attributes:
        checks: In the order in which they ran.
        interface: How to feed and read it; None where it cannot be read so.
        precision: What its weights were rounded to; None where they are not the checkpoint's.
        has_all_weights: Whether every tensor of the checkpoint is in it, whatever else is.
    """

    checks: tuple[record.Check, ...]
    interface: foreign.Foreign | None = None
    precision: contract.WeightPrecision | None = None
    has_all_weights: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether any check failed."""
        return any(check.status == "failed" for check in self.checks)

    @property
    def is_decided(self) -> bool:
        """Whether inference would add nothing to the verdict: of the checkpoint's own weights it tells the cause."""
        telling = {"weights.identity"} if self.has_all_weights else set[str]()
        return any(check.status == "failed" and check.name in DECISIVE - telling for check in self.checks)


def check_foreign(path: Path, source: checkpoint.Checkpoint) -> Found:
    """Make all static checks of a graph file.

    Args:
        path: The file.
        source: The reference checkpoint.
    """
    parse, parsed = _attempt("graph.parse", lambda: _Parsed(graph_file.GraphFile.read(path)))
    if parsed is None:
        return Found((parse,))
    graph = parsed.graph
    read, interface = _attempt("graph.contract", lambda: foreign.read_foreign(graph, source))
    outputs = [spec.name for spec in interface.entry.outputs] if interface else [spec.name for spec in graph.outputs]
    exit_layer = interface.entry.exit_layer if interface else source.architecture.layers
    constants = graph_constants.constants_behind(graph, outputs)
    checks = [
        parse,
        read,
        run_check("graph.checker", lambda: contract_check.check_proto(graph)),
        run_check("graph.types", lambda: census.check_census(constants, path.name)),
        run_check("graph.dataflow", lambda: dataflow.check_dataflow(graph, None)),
        run_check("graph.rotary", lambda: _check_rotary(graph, constants, source, exit_layer)),
    ]
    beside: list[errors.ForeignTables] = []

    def identify() -> identity.Identity:
        try:
            return _identify(constants, source, exit_layer, path.name)
        except errors.ForeignTables as cause:
            beside.append(cause)
            raise

    same, found = _attempt("weights.identity", identify)
    return Found((*checks, same), interface, found.precision if found else None, bool(found or beside))


@dataclass(frozen=True, slots=True)
class _Parsed:
    graph: graph_file.GraphFile

    def __str__(self) -> str:
        made_by = f"{self.graph.model.producer_name} {self.graph.model.producer_version or ''}".strip() or "nobody"
        return f"opset {self.graph.opset}, written by {made_by}, {sum(1 for _ in self.graph.model.graph)} nodes"


def _attempt(name: str, make: Callable[[], Made]) -> tuple[record.Check, Made | None]:
    """Run a check that makes something whose text is its detail."""
    made: list[Made] = []

    def run() -> str:
        made.append(make())
        return str(made[0])

    return run_check(name, run), made[0] if made else None


def _check_rotary(
    graph: graph_file.GraphFile, constants: Sequence[Constant], source: checkpoint.Checkpoint, exit_layer: int
) -> str:
    """Check rotary positions, those whose cosines and sines were computed at export among them."""
    ahead = [turn for constant in constants for turn in tables.find_turns(constant.content, source.architecture)]
    return rotary.check_rotary(graph, source.architecture, exit_layer, ahead)


def _identify(
    constants: Sequence[Constant], source: checkpoint.Checkpoint, exit_layer: int, file_name: str
) -> identity.Identity:
    reading, decoder = source.architecture, source.head.decoder
    tensors = source.read_tensors()
    used = [name for name in tensors if reading.uses(name, decoder)]
    wanted = weights.needed_weights(used, decoder, exit_layer, reading.layers)
    return identity.identify_weights(constants, tensors, wanted, reading, file_name)
