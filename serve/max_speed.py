"""Which graphs answer under the profile `max_speed`: at each length the fastest that the gate consented to.

A 16-bit copy answers only with a pass on this engine: its decisions are the checkpoint's, its FP32 graph is proven, and
it was faster when both were timed. Where no copy of a length has one, the FP32 graph answers, which is then the fastest
that is right. A model of which no copy has one is refused under this profile, with what was found; but not on the CPU,
for which copies are not made, so that a deployment moves there and back by its device alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vela.graphs import bundle as bundles
from vela.graphs import errors, manifest, record, verdicts
from vela.serve import device as devices
from vela.serve import memory
from vela.serve.buckets import Ladder

# Golden answers may be further from a copy's than any input of the gate was, by this factor, and never by more than
# this, in the units of the output: a copy that needs more is none that a wrong program could be told from.
GOLDEN_FACTOR, GOLDEN_WIDEST = 2.0, 0.5


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies that may answer on a device.

    Attributes:
        of: By the id of an FP32 graph, the fastest copy of it.
        bounds: By the id of a copy, how far a golden answer may be away, in the units of the output.
    """

    of: Mapping[str, manifest.Graph]
    bounds: Mapping[str, float]

    @classmethod
    def proven(
        cls, opened: bundles.Bundle, device: devices.Device, version: str, *, any_version: bool = False
    ) -> "Copies":
        """Collect the copies that passed on a device.

        Args:
            opened: The bundle.
            device: Where they would run.
            version: Of the ONNX Runtime that would run them.
            any_version: Whether a pass by another version counts too, where this one found no failure.

        Raises:
            NotVerified: there is none and it is no CPU; the message has the figures. Or a record does not agree with
                the bundle.
        """
        found = [item.record for item in verdicts.read_all_evidence(opened)]
        wanted = None if any_version else version
        passed = verdicts.passes_on(found, device.provider, device.kind, version=wanted)
        here = (device.provider, version)
        lost = {
            one.graph_id
            for one in found
            if one.verdict == "failed" and one.engine and (one.engine.provider, one.engine.version) == here
        }
        copies = [graph for graph in opened.manifest.graphs if graph.is_reduced]
        proven = [graph for graph in copies if graph.id in passed and graph.id not in lost]
        if not proven and device.kind != "cpu":
            raise _nothing_to_serve(opened, copies, found, device)
        best: dict[str, manifest.Graph] = {}
        for graph in sorted(proven, key=lambda graph: _ratio(passed[graph.id])):
            best.setdefault(opened.exact_of(graph).id, graph)
        bounds = {graph.id: min(GOLDEN_WIDEST, GOLDEN_FACTOR * _furthest(passed[graph.id])) for graph in best.values()}
        return cls(best, bounds)

    @classmethod
    def none(cls) -> "Copies":
        """Give no copies, for profiles without any."""
        return cls({}, {})

    def bytes_with_copy(self, opened: bundles.Bundle, graph: manifest.Graph) -> int:
        """Give the bytes of weights that a graph and its copy hold, where it has one."""
        both = [graph, *([self.of[graph.id]] if graph.id in self.of else [])]
        return sum(memory.bytes_of(opened, one) for one in both)

    def quicken_all(
        self, ladders: Mapping[str, Ladder], opened: bundles.Bundle, device: devices.Device
    ) -> dict[str, Ladder]:
        """Give all ladders with copies in the places of graphs that have one.

        Raises:
            NotVerified: no graph of them has, and it is no CPU.
        """
        found = {name: self.quicken(ladder) for name, ladder in ladders.items()}
        if device.kind != "cpu" and not any(graph.is_reduced for ladder in found.values() for graph in ladder.graphs):
            raise _refused(opened, f"no copy of the graphs that are loaded, but of {', '.join(self.of)}", device)
        return found

    def quicken(self, ladder: Ladder) -> Ladder:
        """Give a ladder with copies in the places of graphs that have one."""
        return Ladder(ladder.output, tuple(self.of.get(graph.id, graph) for graph in ladder.graphs))


def _ratio(found: record.Record) -> float:
    return found.speed.ratio if found.speed else 1.0


def _furthest(found: record.Record) -> float:
    return max(group.max_abs_logit for group in found.statistics)


def _nothing_to_serve(
    opened: bundles.Bundle, copies: Sequence[manifest.Graph], found: Sequence[record.Record], device: devices.Device
) -> errors.NotVerified:
    listed = {graph.id for graph in copies}
    said = [f"{one.graph_id} {verdicts.verdict_in_words(one)}" for one in found if one.graph_id in listed]
    return _refused(opened, "; ".join(said) or f"{len(copies)} 16-bit copies, none of them with a record", device)


def _refused(opened: bundles.Bundle, found: str, device: devices.Device) -> errors.NotVerified:
    return errors.NotVerified(
        found,
        expected=f"a copy with a pass on {device.kind} ({device.provider})",
        where=f"{opened.manifest.model.name}, profile max_speed",
        fix=f"Export with --reduced and run `vela verify-graph` with --device {device}, or serve it without max_speed.",
    )
