"""Hand-made records, and a reader of pages that knows what a browser would show."""

from collections.abc import Callable
from html.parser import HTMLParser

import msgspec
import pytest

from vela.graphs import record
from vela.verify.report import page, reading

ENGINE = record.EngineFacts(
    "onnxruntime", "1.32.0", "onnxruntime", "CPUExecutionProvider", "cpu", "x86_64", {"threads": "2"}
)
VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})


def make_statistics(
    length_class: str = "1-16", padding_class: str = "none", **changes: object
) -> record.ClassStatistics:
    """Make statistics of a class of three agreeing inputs far below every bound."""
    calm = record.ClassStatistics(
        length_class=length_class,
        padding_class=padding_class,
        cases=3,
        values=6,
        max_abs_probability=2.5e-06,
        p99_abs_probability=2.25e-06,
        median_abs_probability=1.25e-07,
        max_abs_logit=1.5e-05,
        p99_abs_logit=1.25e-05,
        agreed=3,
        near_ties=0,
        decades=(0, 2, 3, 1, 0, 0, 0, 0, 0),
    )
    return msgspec.structs.replace(calm, **changes)


def make_run(case_id: str = "calm", tokens: int = 12, padding_class: str = "none", **changes: object) -> record.Run:
    """Make a run far below every bound."""
    return msgspec.structs.replace(record.Run(case_id, tokens, padding_class, 2.5e-06, 1.5e-05), **changes)


def make_record(graph_id: str = "model", **changes: object) -> record.Record:
    """Make a record that passed the strict bar on the CPU, with fields changed."""
    passed = record.Record(
        schema_version=record.SCHEMA_VERSION,
        verdict="passed",
        cause="",
        graph_id=graph_id,
        graph_sha256="a1" * 32,
        manifest_sha256="b2" * 32,
        checkpoint_sha256="c3" * 32,
        reference="torch 2.13.0, transformers 5.24.0, sdpa, float32",
        reference_noise=8.875e-06,
        engine=ENGINE,
        corpus_sha256="d4" * 32,
        planned=3,
        compared=3,
        bar="strict",
        bars=(record.BarResult("strict", "passed", ()), record.BarResult("cpu", "passed", ())),
        checks=(
            record.Check("weights.identity", "passed", "42 tensors found by content", 0.0625),
            record.Check("parity.strict", "passed", "within every bound", 0.0),
        ),
        form="sequence",
        estimate=record.Estimate(1.75, 3, 4, 2),
        runs=(make_run(),) * 3,
        statistics=(make_statistics(),),
        worst=(record.WorstInput("calm", 12, "Where is my card?", 2.5e-06, 1.5e-05, "card", "card"),),
        tools={"numpy": "2.4.0"},
        created="2026-11-30T02:00:00+00:00",
        duration_s=5.125,
    )
    return msgspec.structs.replace(passed, **changes)


def make_failed(graph_id: str = "model", **changes: object) -> record.Record:
    """Make a record that failed on one long input."""
    reason = "|Δp| 0.25 > 0.0005 on long (600 tokens, window padding), and on 1 of 4 runs in all"
    lost = make_run(
        "long", 600, "window", max_abs_probability=0.25, max_abs_logit=2.5, margin=0.75, actual="yes", expected="no"
    )
    far = make_statistics(
        "513-2048",
        "window",
        cases=1,
        values=2,
        max_abs_probability=0.25,
        p99_abs_probability=0.25,
        median_abs_probability=0.125,
        max_abs_logit=2.5,
        p99_abs_logit=2.5,
        agreed=0,
        decades=(0, 0, 0, 0, 0, 0, 0, 0, 2),
    )
    failed = make_record(
        graph_id,
        verdict="failed",
        cause=f"parity.strict: {reason}",
        planned=4,
        compared=4,
        bars=(record.BarResult("strict", "failed", (reason,)), record.BarResult("cpu", "failed", (reason,))),
        checks=(record.Check("parity.strict", "failed", reason, 0.0),),
        runs=(*(make_run(),) * 3, lost),
        statistics=(make_statistics(), far),
        worst=(record.WorstInput("long", 600, "A long text", 0.25, 2.5, "yes", "no"),),
    )
    return msgspec.structs.replace(failed, **changes)


def make_not_compared(graph_id: str = "model", **changes: object) -> record.Record:
    """Make a record whose graph was never run."""
    pending = make_record(
        graph_id,
        verdict="not_compared",
        cause="engine.placement: no session could be opened",
        engine=None,
        compared=0,
        bars=(record.BarResult("strict", "not_compared", ("0 of 3 planned runs compared",)),),
        checks=(record.Check("engine.placement", "not_run", "no session could be opened", 0.0),),
        runs=(),
        statistics=(),
        worst=(),
    )
    return msgspec.structs.replace(pending, **changes)


class Page(HTMLParser):
    """A page as parsed: its elements, its figures and what it says.

    Attributes:
        elements: Tag and attributes of each, in order.
        figures: Exact values of <data> elements.
        text: What is between tags, the style sheet left out.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.figures: list[float] = []
        self.text = ""
        self.outcome = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == [], f"elements that are never closed: {self._open}"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        self.elements.append((tag, dict(attributes)))
        if tag == "data":
            self.figures.append(float(dict(attributes)["value"] or "nan"))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """Give the attributes of every element of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="session")
def read_page() -> Callable[..., Page]:
    """Render records and parse the page: `read_page(record, …, unjudged=("model",))`."""

    def run(*records: record.Record, **collected: object) -> Page:
        return Page(page.render(reading.Collected("sample", records, **collected)))

    return run


@pytest.fixture(name="make_record", scope="session")
def record_maker() -> Callable[..., record.Record]:
    return make_record


@pytest.fixture(name="make_failed", scope="session")
def failed_maker() -> Callable[..., record.Record]:
    return make_failed


@pytest.fixture(name="make_not_compared", scope="session")
def not_compared_maker() -> Callable[..., record.Record]:
    return make_not_compared


@pytest.fixture(name="make_statistics", scope="session")
def statistics_maker() -> Callable[..., record.ClassStatistics]:
    return make_statistics


@pytest.fixture(name="make_run", scope="session")
def run_maker() -> Callable[..., record.Run]:
    return make_run
