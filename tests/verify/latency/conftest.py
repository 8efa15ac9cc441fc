"""A scripted server, a corpus of few requests, and a side that asks the one the other."""

from collections.abc import Callable, Iterator

import answering_server
import pytest

from vela.verify.latency import callers, corpus, load, rounds, side, subject


@pytest.fixture
def server() -> Iterator[answering_server.AnsweringServer]:
    found = answering_server.AnsweringServer()
    yield found
    found.close()


@pytest.fixture
def other() -> Iterator[answering_server.AnsweringServer]:
    found = answering_server.AnsweringServer()
    yield found
    found.close()


@pytest.fixture
def requests() -> corpus.Corpus:
    """Six requests."""
    return corpus.Corpus(
        tuple(corpus.Request(f"c{number}", "/v1/classify", {"input": f"text {number}"}) for number in range(6))
    )


@pytest.fixture
def make_subject(requests: corpus.Corpus) -> Callable[..., subject.Subject]:
    """Make a subject that asks a server in two phases, without a warm-up unless told otherwise."""

    def make(
        server: answering_server.AnsweringServer,
        name: str = "a",
        concurrency: tuple[int, ...] = (1, 4),
        warm_up: int = 0,
        clock: callers.Clock = callers.default_clock,
        **options: object,
    ) -> subject.Subject:
        asked = side.Side(name, callers.Address("127.0.0.1", server.port), options=options)
        return subject.Subject(asked, requests, subject.Method(concurrency, warm_up), clock)

    return make


@pytest.fixture
def surroundings() -> Callable[..., rounds.Surroundings]:
    """Make surroundings in which load averages are as told, one for each look, and waiting takes no time."""

    def make(loads: list[float | None] | None = None, lines: list[str] | None = None) -> rounds.Surroundings:
        left = iter(loads or [])
        meter = load.Meter(lambda: next(left, 0.0), lambda processes: 0.0)
        said = lines if lines is not None else []
        return rounds.Surroundings(meter, sleep=lambda seconds: said.append(f"slept {seconds:g}"), report=said.append)

    return make
