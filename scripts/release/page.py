"""The ledger as one HTML page, in the look of the verification reports that it leads to."""

from pathlib import Path

from vela.scripts.release import ledger
from vela.verify.report import page

TEMPLATES = Path(__file__).parent / "templates"
PAGE_FILE = "ledger.html"
STATES: dict[ledger.Outcome, str] = {
    "published": "passed",
    "failed": "failed",
    "not_compared": "not_compared",
    "running": "not_compared",
    "waiting": "not_compared",
}
OUTCOMES: dict[ledger.Outcome, str] = {
    "published": "Published",
    "failed": "Failed",
    "not_compared": "Not compared",
    "running": "Not finished",
    "waiting": "Not begun",
}


def render(found: ledger.Ledger) -> str:
    """Give the page for a ledger; equal ledgers give an equal page."""
    verdicts = [verdict for line in found.models for graph in line.graphs for verdict in graph.verdicts.values()]
    steps = dict.fromkeys(step.name for line in found.models for step in line.steps)
    return (
        page.environment(TEMPLATES)
        .get_template(PAGE_FILE)
        .render(
            lines=found.models,
            outcome=ledger.worst_of(found.models),
            published=sum(line.outcome == "published" for line in found.models),
            graph_count=sum(len(line.graphs) for line in found.models),
            verdict_count=len(verdicts),
            passed_count=sum(verdict.verdict == "passed" for verdict in verdicts),
            devices=found.devices,
            step_names=sorted(steps, key=_order),
            states=STATES,
            outcomes=OUTCOMES,
            updated=found.updated,
            runs=found.runs,
            seconds=found.seconds,
            table=found.table,
            style=page.style(),
            policy=page.POLICY,
        )
    )


def write(work: Path, found: ledger.Ledger) -> Path:
    """Write the page beside the ledger; a reader sees the old one or the new one."""
    return ledger.replace_file(work / PAGE_FILE, render(found).encode())


def _order(name: str) -> tuple[int, str]:
    """Sort steps as they are done; devices among themselves by name, the CPU first."""
    places = {"source": 0, "export": 1, "publish": 3}
    return places.get(name, 2), "" if name == "verify cpu" else name
