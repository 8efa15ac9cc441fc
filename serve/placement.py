"""Where the nodes of a loaded graph run: a session's list of providers names such as run nothing.

ONNX Runtime says it itself from 1.24 on. Before, a profile of one run does: each node's event names its provider.
Source: microsoft/onnxruntime pull 26781; measured with 1.22.2 and 1.27.1 to 1.32.0.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vela.graphs import errors
from vela.serve import device as devices
from vela.serve.runtime import onnxruntime

Placed = Mapping[str, list[str]]  # operators by provider
SESSIONS_SAY_WHERE = hasattr(onnxruntime.InferenceSession, "get_provider_graph_assignment_info")  # since 1.24


@contextmanager
def observing(options: Any) -> Iterator[Callable[[Any, Callable[[], object]], Placed]]:
    """Give what finds out where the nodes of one session are, which is made of these options within the block.

    It takes the session and what runs it once, and runs it only where the session cannot say it itself.
    """
    if SESSIONS_SAY_WHERE:
        yield lambda session, _: _asked(session)
        return
    with tempfile.TemporaryDirectory(prefix="vela-placement-") as folder:
        options.enable_profiling, options.profile_file_prefix = True, str(Path(folder) / "run")
        yield _profiled


def _asked(session: Any) -> Placed:
    placed: dict[str, list[str]] = {}
    for part in session.get_provider_graph_assignment_info():  # many of a provider; on the CPU one for each node
        placed.setdefault(part.ep_name, []).extend(node.op_type for node in part.get_nodes())
    return placed


def _profiled(session: Any, run: Callable[[], object]) -> Placed:
    """Run once and read the session's profile, which ends with that."""
    run()
    placed: dict[str, list[str]] = {}
    for event in json.loads(Path(session.end_profiling()).read_text()):
        told = event.get("args", {})
        if event.get("cat") == "Node" and told.get("provider"):
            placed.setdefault(told["provider"], []).append(told.get("op_name", "?"))
    return placed


def require(placed: Placed, name: str, device: devices.Device) -> None:
    """Require every node on the device's provider.

    Raises:
        PlacementMismatch: a node is elsewhere, or none is there.
    """
    elsewhere = {provider: nodes for provider, nodes in placed.items() if provider != device.provider and nodes}
    if elsewhere or not placed.get(device.provider):
        counts = ", ".join(f"{len(nodes)} nodes on {provider}" for provider, nodes in placed.items())
        raise errors.PlacementMismatch(
            counts or "no nodes anywhere",
            expected=f"all nodes on {device.provider}",
            where=f"{name} on {device}",
            fix="This graph does not run on this device: serve it elsewhere, or export it for this target.",
        )
