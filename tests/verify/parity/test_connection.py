"""Connections to a server: kept alive, opened again if they were closed while idle, given up where it is gone."""

import pytest

from vela.graphs import errors
from vela.verify.parity import connection, inputs, jobs

JOB = jobs.Job("j", "shield", "", "sequence", jobs.Options(512, "truncate"), ("a",))


def ask(system):
    return system.open(JOB).ask(inputs.Given("a", text="x")).read()


def test_more_bytes_than_a_reader_takes_end_the_run(fake, system, monkeypatch):
    monkeypatch.setattr(connection.recording, "LINE_LIMIT_BYTES", 300)
    fake.models = (200, b"[]")
    fake.say(b" " * 301)

    with pytest.raises(errors.EngineError, match="more than 300 bytes"):
        ask(system)


def test_connections_are_kept_and_one_that_was_closed_while_idle_is_opened_again(fake, system):
    for _ in range(3):
        ask(system)
    kept = fake.connections
    fake.closes_after_each = True
    for _ in range(3):
        ask(system)

    assert kept == 1
    assert fake.connections > kept
    assert len(fake.asked) == 6


def test_a_server_that_hangs_up_instead_of_answering_ends_the_run(fake, system):
    ask(system)
    fake.answer = lambda: None

    with pytest.raises(errors.EngineError, match="no answer"):
        ask(system)

    assert len(fake.asked) == 3  # once on the connection that may have been idle for too long, once on a new one


def test_a_server_that_is_gone_ends_the_run():
    gone = connection.Server("http://127.0.0.1:1", {}, timeout_s=5.0)

    with pytest.raises(errors.EngineError, match="no answer"):
        gone.send("GET", "/v1/models")


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8080", "ftp://a", "http://user:secret@a", "http://a?b", "http://a:b", "http://[", "http://"]
)
def test_what_is_no_address_of_a_server_is_refused(url):
    with pytest.raises(errors.VerificationError, match="--url"):
        connection.Server(url, {})
