"""Responses byte by byte, whole, chunked and broken."""

import pytest

from vela.verify.latency import response

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"


def read(*pieces: bytes) -> response.Response:
    arriving = response.Arriving()
    states = [arriving.feed(piece) for piece in pieces]
    assert states[-1]
    assert not any(states[:-1])
    return arriving.take()


@pytest.mark.parametrize("whole", [PLAIN, CHUNKED, CHUNKED[:-2] + b"x-trailer: 1\r\n\r\n"])
def test_an_answer_is_whole_at_its_last_byte_however_it_arrives(whole):
    at_once, by_bytes = read(whole), read(*(whole[place : place + 1] for place in range(len(whole))))

    assert at_once == by_bytes
    assert (at_once.status, at_once.body, at_once.keeps_alive) == (200, b"hello", True)


def test_names_of_headers_are_in_small_letters():
    assert read(PLAIN).headers == {"content-length": "5", "x-a": "b"}


def test_an_interim_response_is_passed_over():
    assert read(b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN).body == b"hello"
    assert read(b"HTTP/1.1 100 Continue\r\n\r\n", PLAIN).status == 200


def test_a_response_without_a_body_is_whole_at_once():
    assert read(b"HTTP/1.1 204 No Content\r\n\r\n").body == b""


def test_a_connection_that_says_so_takes_no_other_request():
    assert not read(b"HTTP/1.1 200 OK\r\nconnection: Close\r\ncontent-length: 0\r\n\r\n").keeps_alive
    assert not read(b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n").keeps_alive


def test_where_only_the_close_ends_a_body_the_close_does():
    arriving = response.Arriving()

    assert not arriving.feed(b"HTTP/1.1 200 OK\r\n\r\nhel")
    assert not arriving.feed(b"lo")
    assert arriving.finish()
    assert (arriving.take().body, arriving.take().keeps_alive) == (b"hello", False)


@pytest.mark.parametrize("whole", [PLAIN, CHUNKED])
def test_a_body_that_is_cut_is_not_whole_when_the_connection_closes(whole):
    for place in range(len(whole)):
        arriving = response.Arriving()
        assert not (arriving.feed(whole[:place]) if place else False)
        assert not arriving.finish()


@pytest.mark.parametrize(
    "broken",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffff\r\n",
        PLAIN + b"HTTP/1.1 200",
        b"a" * (response.HEAD_LIMIT_BYTES + 1),
    ],
)
def test_what_is_no_response_is_refused(broken):
    with pytest.raises(response.NotHttp):
        response.Arriving().feed(broken)
