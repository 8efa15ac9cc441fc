"""Closed-loop callers against a real socket: order, time, and every way in which an answer can fail to come."""

import socket
import threading
from contextlib import ExitStack

import pytest
from answering_server import Clock, Reply, answer

from vela.verify.latency import callers


@pytest.fixture
def messages(make_subject, server):
    """Give the messages of six requests."""
    return make_subject(server).asked.messages(make_subject(server).requests)


def address_of(server):
    return callers.Address("127.0.0.1", server.port)


def test_every_request_is_answered_in_its_place_over_one_connection(server, messages):
    server.script = lambda asked: answer(label=asked.text)

    found = callers.replay(address_of(server), messages, 1)

    assert [f"text {number}".encode() in one.response.body for number, one in enumerate(found.exchanges)] == [True] * 6
    assert (found.connections, server.connections) == (1, 1)
    assert [asked.text for asked in server.asked] == [f"text {number}" for number in range(6)]


def test_callers_have_a_connection_each_and_share_the_requests(server, messages):
    together = threading.Barrier(3)

    def script(asked):
        together.wait(5)  # passes only when three requests are there at once
        return answer()

    server.script = script
    found = callers.replay(address_of(server), messages, 3)

    assert all(one.response for one in found.exchanges)
    assert found.connections == 3


def test_a_latency_is_from_just_before_sending_to_the_last_byte(server, messages):
    clock = Clock()

    def script(asked):
        clock.pass_ms(7.0 if asked.text == "text 2" else 2.0)
        return answer()

    server.script = script
    found = callers.replay(address_of(server), messages, 1, clock=clock)

    assert [one.latency_ns for one in found.exchanges] == [2_000_000, 2_000_000, 7_000_000, *[2_000_000] * 3]
    assert found.seconds == pytest.approx(0.017)


def test_a_dropped_connection_fails_one_request_and_the_next_gets_another(server, messages):
    server.script = lambda asked: Reply(None, drops=True) if asked.text == "text 1" else answer()

    found = callers.replay(address_of(server), messages, 1)

    assert [one.failure for one in found.exchanges] == ["", "connection dropped", "", "", "", ""]
    assert found.exchanges[1].latency_ns is None
    assert found.connections == 2


def test_an_answer_that_is_cut_is_a_dropped_connection(server, messages):
    server.script = lambda asked: Reply(b"{}", headers={"content-length": "9", "connection": "close"})

    found = callers.replay(address_of(server), messages[:1], 1)

    assert found.exchanges[0].failure


def test_connections_that_are_not_kept_are_opened_again_and_counted(server, messages):
    server.script = lambda asked: Reply({"results": [1]}, headers={"connection": "close"})

    found = callers.replay(address_of(server), messages, 2)

    assert all(one.response for one in found.exchanges)
    assert found.connections == 6


def test_no_server_is_said_once_for_each_request(messages):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        found = callers.replay(callers.Address(*unused.getsockname()), messages, 2)

    assert {one.failure for one in found.exchanges} == {"no connection (Connection refused)"}
    assert found.connections == 0


def test_a_server_that_fails_again_and_again_is_not_asked_everything(server, messages):
    server.script = lambda asked: Reply(None, drops=True)

    found = callers.replay(address_of(server), messages * 10, 1)

    assert len(server.asked) == callers.GIVE_UP_AFTER
    assert [one.failure for one in found.exchanges[callers.GIVE_UP_AFTER :]] == [callers.NOT_ASKED] * 40


def test_failures_that_are_not_in_a_row_do_not_end_it(server, messages):
    server.script = lambda asked: Reply(None, drops=True) if asked.times % 2 else answer()

    found = callers.replay(address_of(server), messages * 10, 1)

    assert sum(bool(one.failure) for one in found.exchanges) == 30


def test_a_server_that_hangs_fails_by_timeout(server, messages):
    ended = threading.Event()

    def script(asked):
        if asked.text == "text 0":
            ended.wait(5)
        return answer()

    server.script = script
    found = callers.replay(address_of(server), messages[:1], 1, timeout_s=0.02)
    ended.set()

    assert found.exchanges[0].failure == "timeout"


def test_what_is_no_http_is_said():
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"+PONG\r\n\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        found = callers.replay(callers.Address(*listening.getsockname()), [b"POST / HTTP/1.1\r\n\r\n"], 1)
        thread.join()

    assert found.exchanges[0].failure.startswith("no HTTP answer (a first line '+PONG")


def test_a_request_larger_than_a_socket_takes_at_once_is_sent_whole(server):
    body = b'{"input": "' + b"x" * (8 << 20) + b'"}'
    message = b"POST /v1/classify HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body

    found = callers.replay(address_of(server), [message, message], 2)

    assert [one.failure for one in found.exchanges] == ["", ""]
    assert {len(asked.text) for asked in server.asked} == {8 << 20}


def test_after_an_answer_to_half_a_request_the_connection_is_not_used_again():
    answered = []
    with ExitStack() as opened, socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # so that no request fits unread
        listening.settimeout(5.0)

        def serve():
            for _ in range(2):
                connection = opened.enter_context(listening.accept()[0])
                answered.append(connection.recv(4))
                connection.sendall(b"HTTP/1.1 413 x\r\ncontent-length: 2\r\n\r\n{}")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        message = b"POST / HTTP/1.1\r\ncontent-length: 20000000\r\n\r\n" + b"x" * 20_000_000
        found = callers.replay(callers.Address(*listening.getsockname()), [message, message], 1, timeout_s=2.0)
        thread.join()

    assert [one.failure or one.response.status for one in found.exchanges] == [413, 413]
    assert answered == [b"POST", b"POST"]
    assert found.connections == 2
