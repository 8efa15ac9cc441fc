"""Records as JUnit XML: a suite for each graph, a case for each check, for whatever shows the tests of a build."""

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from vela.graphs import record
from vela.verify import naming

_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(name: str, records: Sequence[record.Record]) -> str:
    """Give records as one XML document.

    Args:
        name: The bundle or file.
        records: In the order of its graphs.
    """
    whole = ElementTree.Element("testsuites", {"name": name, **_counts(records)})
    for found in records:
        device = found.engine.device if found.engine else "no engine"
        facts = {"name": f"{found.graph_id} on {device}", "timestamp": found.created, **_counts([found])}
        suite = ElementTree.SubElement(whole, "testsuite", facts)
        for check in found.checks:
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"{name}.{found.graph_id}", name=check.name, time=f"{check.duration_s:.3f}"
            )
            if check.status == "failed":
                kind = {"type": cause} if (cause := naming.cause_of(check)) else {}
                ElementTree.SubElement(case, "failure", {"message": _plain(check.detail), **kind})
            elif check.status == "not_run":
                # a stage that did not run is no pass, and CI systems show a skipped case as one
                ElementTree.SubElement(case, "error", message=_plain(f"not compared: {check.detail}"))
            else:
                ElementTree.SubElement(case, "system-out").text = _plain(check.detail)
    ElementTree.indent(whole)
    return ElementTree.tostring(whole, encoding="unicode", xml_declaration=True) + "\n"


def write(target: Path, name: str, records: Sequence[record.Record]) -> None:
    """Write the document, its folder too where that is missing; a reader never sees a part of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = target.with_suffix(".partial")
    staging.write_text(to_junit(name, records), encoding="utf-8")
    staging.replace(target)


def _counts(records: Sequence[record.Record]) -> dict[str, str]:
    statuses = [check.status for found in records for check in found.checks]
    return {
        "tests": str(len(statuses)),
        "failures": str(statuses.count("failed")),
        "errors": str(statuses.count("not_run")),
        "time": f"{sum(found.duration_s for found in records):.3f}",
    }


def _plain(text: str) -> str:
    """Replace what XML 1.0 cannot hold; a message may quote any text."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
