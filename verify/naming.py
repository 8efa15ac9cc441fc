"""Name what is wrong with a graph: in one word where that is known, and in the sentence that tells most.

A mutant that answers like the graph names its mistake best; then come the checks that saw one with their own eyes,
before those that saw its traces. What no check and no mutant explains is unknown, and said to be.
"""

from collections.abc import Mapping, Sequence

from vela.graphs import causes, mutation, record

IDENTITY = "weights.identity"
PARITY = "parity."  # what the check of the deciding bar is called, before the bar's name
# What a failed check says by its name alone, where it cannot say more closely. Laws and checks of the engine can fail
# for want of an answer, so they say it themselves.
SEEN_BY: Mapping[str, causes.Cause] = {
    "graph.parse": "invalid graph",
    "graph.checker": "invalid graph",
    "graph.contract": "interface",
    "graph.lint": "operators",
    "graph.types": "precision",
    "graph.reduction": "precision",
    "graph.dataflow": "other computation",
    "graph.norms": "norm epsilon",
    "graph.facts": "manifest altered",
    "manifest.facts": "manifest altered",
    "graph.digest": "file altered",
    "sources.digests": "file altered",
    "engine.placement": "engine refuses",
    "engine.faster": "no gain",
}
# Which cause explains the others, where several checks failed: another model fails all of them, an altered file only
# one. What is not listed explains least.
EXPLAINING: tuple[causes.Cause, ...] = (
    *("other weights", "stale layer", "precision"),
    *("thetas exchanged", "local theta", "global theta", "RoPE scaling", "norm epsilon"),
    *("config altered", "tokenizer", "interface", "invalid graph"),
    *("other computation", "operators", "engine fell back", "compile cache stale", "engine refuses"),
    *("not repeatable", "padding mask", "fusion", "manifest altered", "file altered", "no gain"),
)
# Which of several checks that saw one cause says more of it.
TELLING = (IDENTITY, "graph.rotary", "graph.norms", "sources.identity", "manifest.facts")


def cause_of(check: record.Check) -> causes.Cause | None:
    """Give what a failed check shows; None where it shows only that something is wrong."""
    return (check.cause or SEEN_BY.get(check.name)) if check.status == "failed" else None


def name(checks: Sequence[record.Check], diagnosis: mutation.Diagnosis | None = None) -> causes.Cause | None:
    """Name what is wrong in one word.

    Args:
        checks: All of them.
        diagnosis: What a graph that failed parity is nearest to.
    """
    if diagnosis is not None and diagnosis.cause is not None:
        return diagnosis.cause
    found = [cause for check in checks if (cause := cause_of(check)) is not None]
    if diagnosis is not None:  # without rewrites it was wrong too: they are not the mistake, they show it
        found = [cause for cause in found if cause != "fusion"]
    return min(found, key=_place, default=None)


def say(checks: Sequence[record.Check], diagnosis: mutation.Diagnosis | None = None) -> str:
    """Say in a sentence what is wrong, or what keeps a graph from a verdict; empty where nothing does.

    Args:
        checks: All of them.
        diagnosis: What a graph that failed parity is nearest to.
    """
    open_checks = [check for check in checks if check.status != "passed"]
    first = min(open_checks, key=_order, default=None)
    if first is None:
        return ""
    said = f"{first.name}: {first.detail}"
    if diagnosis is None:
        return said
    # A check that saw the cause itself says where. Otherwise what the answers are nearest to tells more than how far
    # they are apart, or what else is wrong.
    is_traced = first.name.startswith(PARITY) or diagnosis.cause not in (None, cause_of(first))
    return f"{diagnosis.statement} ({said})" if is_traced else f"{said.rstrip('.')}; {diagnosis.statement}"


def _order(check: record.Check) -> tuple[bool, int, int]:
    telling = TELLING.index(check.name) if check.name in TELLING else len(TELLING)
    return check.status != "failed", _place(cause_of(check)), telling


def _place(cause: causes.Cause | None) -> int:
    return EXPLAINING.index(cause) if cause in EXPLAINING else len(EXPLAINING)
