"""Ask a bundle's graphs all of its golden answers and say how far each is: what `vela golden check` calls.

Loading a model stops at the first answer that is wrong, and asks fixed graphs the first probes only, because callers
wait. Here nobody waits: every graph that a device would run is asked every probe that it takes. No verdict is asked
for, since an engine without one is what this is for; digests are compared as they always are.
"""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from vela.graphs import bundle as bundles
from vela.graphs import errors, golden, manifest
from vela.serve import engine, golden_check, providers, registry
from vela.serve.deployment import Deployment
from vela.serve.model import Choice

Verdict = Literal["passed", "failed", "not_compared"]
Subject = tuple[str, Callable[[], bundles.Bundle]]  # a model's name, and what opens its bundle


class GraphCheck(msgspec.Struct, frozen=True):
    """What a graph answered.

    Attributes:
        model: The bundle's model.
        graph: The graph's id; empty where the bundle as a whole could not be asked.
        device: Where it ran.
        verdict: `passed` if every number of every probe is within the bound.
        probes: How many it was asked.
        furthest: Largest |Δ| of any number; None where one is not finite, or none was compared.
        bound: Largest |Δ| that is allowed; None where there are no golden answers.
        worst: The probe that is furthest away.
        reason: Why it did not pass; else empty.
    """

    model: str
    graph: str
    device: str
    verdict: Verdict
    probes: int = 0
    furthest: float | None = None
    bound: float | None = None
    worst: str = ""
    reason: str = ""

    @property
    def name(self) -> str:
        """Model and graph."""
        return f"{self.model} {self.graph}".rstrip()


@dataclass(frozen=True, slots=True)
class _Asking:
    """Where graphs are loaded, and what holds there."""

    opened: bundles.Bundle
    expected: golden.Golden
    deployment: Deployment
    session_options: engine.SessionOptions | None


def check_models(
    subjects: Iterable[Subject], deployment: Deployment, session_options: engine.SessionOptions | None = None
) -> list[GraphCheck]:
    """Check several models; one that cannot be loaded has failed, and the next one is checked.

    Raises:
        ProviderUnavailable: nothing runs on that device here.
    """
    providers.require_provider(deployment.device)
    found: list[GraphCheck] = []
    for name, opened in subjects:
        try:
            found += check_bundle(opened(), deployment, session_options)
        except errors.VelaError as problem:
            found.append(GraphCheck(name, "", str(deployment.device), "failed", reason=str(problem)))
    return found


def check_bundle(
    opened: bundles.Bundle, deployment: Deployment, session_options: engine.SessionOptions | None = None
) -> list[GraphCheck]:
    """Ask every graph that a deployment would load, one loaded at a time.

    Raises:
        BundleError: a file, the manifest or golden.json cannot be used.
        InvalidRequest: the deployment asks for what the model does not take.
    """
    expected = golden.read(opened)
    if expected is None:
        reason = (
            "the bundle has no golden answers; `vela verify-graph` writes them after a pass, or `vela golden write`"
        )
        return [GraphCheck(opened.manifest.model.name, "", str(deployment.device), "not_compared", reason=reason)]
    return check_answers(opened, expected, deployment, session_options)


def check_answers(
    opened: bundles.Bundle,
    expected: golden.Golden,
    deployment: Deployment,
    session_options: engine.SessionOptions | None = None,
) -> list[GraphCheck]:
    """Do the same with answers that need not lie in the bundle."""
    chosen = Choice.of(opened, deployment, "nothing")
    opened.check_files()
    asking = _Asking(opened, expected, deployment, session_options)
    usual, wider = golden_check.bound_on(expected, deployment.device), chosen.golden_bounds
    return [_check(asking, graph, max(usual, wider.get(graph.id, usual))) for graph in chosen.graphs]


def subjects_from_sources(sources: Iterable[registry.Source]) -> list[Subject]:
    """Name the models of a store; a bundle is opened when its turn comes."""
    return [(source.name, functools.partial(_open, source)) for source in sources]


def _open(source: registry.Source) -> bundles.Bundle:
    return source.find().open()


def require_matched(found: Sequence[GraphCheck]) -> None:
    """Refuse unless every graph gave its golden answers.

    Raises:
        GoldenMismatch: one did not.
        NothingCompared: one was not asked, or there is none.
    """
    failed, pending = ([one for one in found if one.verdict == verdict] for verdict in ("failed", "not_compared"))
    if failed:
        raise errors.GoldenMismatch(
            failed[0].reason,
            expected="the checkpoint's own answers from every graph",
            where=f"{failed[0].name} ({len(failed)} of {len(found)} failed)",
            fix="Serve nothing that answers otherwise; `vela verify-graph` on this device says why it does.",
        )
    if pending or not found:
        raise errors.NothingCompared(
            pending[0].reason if pending else "no model",
            expected="every graph asked at least one golden answer",
            where=pending[0].name if pending else "store",
            fix="What was not compared has not passed: write golden answers for it and check again.",
        )


def _check(asking: _Asking, graph: manifest.Graph, bound: float) -> GraphCheck:
    asked = golden_check.fitting(asking.expected, graph)
    name, device = asking.opened.manifest.model.name, asking.deployment.device
    if not asked:
        reason = f"none of {len(asking.expected.probes)} probes fits its {graph.sequence} tokens"
        return GraphCheck(name, graph.id, str(device), "not_compared", bound=bound, reason=reason)
    pad_id = asking.opened.manifest.tokenizer.pad_id
    try:
        session = engine.Session.open(asking.opened.path(graph.file), graph, device, asking.session_options)
        found = [(probe, golden_check.distances(session, probe, pad_id)) for probe in asked]
    except errors.VelaError as problem:
        return GraphCheck(name, graph.id, str(device), "failed", bound=bound, reason=str(problem))
    furthest, output, probe = max(
        ((distance, output, probe) for probe, each in found for output, distance in each.items()),
        key=lambda one: one[0] if math.isfinite(one[0]) else math.inf,
    )
    measured = furthest if math.isfinite(furthest) else None
    verdict: Verdict = "passed" if furthest <= bound else "failed"  # nan is no pass
    said = f"{furthest:.3g} away" if measured is not None else "not finite"
    at = f"{output} {said} on {probe.case_id} ({len(probe.ids)} tokens), at most {bound:.3g} allowed"
    reason = "" if verdict == "passed" else at
    return GraphCheck(name, graph.id, str(device), verdict, len(asked), measured, bound, probe.case_id, reason)
