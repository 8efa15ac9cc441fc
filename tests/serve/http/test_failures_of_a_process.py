"""Failures that only a server of its own shows: its memory, its cores, and what comes over a connection.

Their numbers are in test_failure_catalogue.py.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest

from vela.graphs import heads, store
from vela.serve.http import schema

PATIENCE_S = 60
START = "import sys\nsys.argv = ['vela', *sys.argv[1:]]\n{before}\nfrom vela.scripts import cli\n\ncli.main()\n"
WITHOUT_SHRINKING = "from vela.serve import engine\n\nengine.SHRINK_ABOVE_TOKENS = 1 << 30"
ON_ONE_CORE = "import os\n\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"

LONGEST, WIDTH = 32_768, 512
ACTIVATION_BYTES = 4 * LONGEST * WIDTH  # the longest text's largest arrays in `wide`, of which there are two
PADDED_BYTES = 2 * 8 * LONGEST * schema.MAX_ITEMS  # ids and mask, were a whole request padded to the longest text
REQUESTS, LEAK_BYTES = 3_000, 1_000  # a request that leaks less than this is not seen
FLOOD_BYTES, PIECE = 48 << 20, b"a" * (64 << 10)  # more than sockets hold on their way
IDLE_S, IDLE_SHARE = 3.0, 0.01  # of one core


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is ready."""

    process: subprocess.Popen[str]
    url: str

    def post(self, body: object, route: str = "/v1/classify") -> httpx.Response:
        return httpx.post(f"{self.url}{route}", json=body, timeout=PATIENCE_S)

    def send(self, *pieces: bytes) -> bytes:
        """Send bytes over a connection of their own; give what comes back until the server closes it."""
        with socket.create_connection(("127.0.0.1", httpx.URL(self.url).port), PATIENCE_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in pieces:
                connection.sendall(piece)
            with connection.makefile("rb") as answer:
                return answer.read()

    def flood(self, start: bytes) -> int:
        """Send a start and then one letter over and over; give how many bytes of these the server let through."""
        with socket.create_connection(("127.0.0.1", httpx.URL(self.url).port), PATIENCE_S) as connection:
            connection.sendall(start)
            for sent in range(0, FLOOD_BYTES, len(PIECE)):
                try:
                    connection.sendall(PIECE)
                except OSError:
                    return sent
        return FLOOD_BYTES

    def memory_bytes(self, field: str) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))

    def processor_s(self) -> float:
        """Give the seconds that its threads have run."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(path: Path, before: str = "") -> Iterator[Server]:
    """Serve a store, in a process that runs some lines before anything else."""
    command = [sys.executable, "-c", START.format(before=before), "serve", "--store", str(path), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("ready: "), line + process.stderr.read()
            yield Server(process, line.rsplit(" ", 1)[-1].strip())
        finally:
            process.kill()


@pytest.fixture(scope="module")
def published(make_bundle: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two models of long documents: `long` classifies, `wide` embeds in many dimensions."""
    path = tmp_path_factory.mktemp("published") / "store"
    decoders = {
        "long": (heads.SequenceDecoder(("a", "b", "c")), 3),
        "wide": (heads.EmbeddingDecoder((2,), (WIDTH,)), WIDTH),
    }
    opened = store.Store.create_or_open(path)
    for name, (decoder, columns) in decoders.items():
        table = np.random.default_rng(columns).normal(0, 1, (259, columns)).astype(np.float32)
        opened.publish(make_bundle(name, heads.Head("default", "text", decoder, LONGEST, "reject"), table))
    return path


@pytest.fixture(scope="module")
def server(published: Path) -> Iterator[Server]:
    with serving(published) as made:
        yield made


def test_one_long_text_among_many_pads_no_other(server: Server) -> None:
    texts = ["short"] * (schema.MAX_ITEMS - 1) + ["x" * (LONGEST - 2)]
    assert server.post({"model": "long", "input": texts[:100]}).status_code == 200
    before = server.memory_bytes("VmHWM")

    answer = server.post({"model": "long", "input": texts})
    grown = server.memory_bytes("VmHWM") - before

    results = answer.json()["results"]
    assert [result["input"]["tokens"] for result in results] == [7] * (schema.MAX_ITEMS - 1) + [LONGEST]
    assert grown < PADDED_BYTES / 8
    assert server.post({"model": "long", "input": ["short"] * 5_000}).status_code == 400


@pytest.mark.parametrize(
    ("before", "comes_back"), [("", True), (WITHOUT_SHRINKING, False)], ids=["as it is", "without"]
)
def test_memory_comes_back_after_a_long_text_only_where_it_is_asked_for(
    published: Path, before: str, comes_back: bool
) -> None:
    def embed(text: str) -> int:
        body = {"model": "wide", "input": text, "encoding_format": "base64"}
        return server.post(body, "/v1/embeddings").status_code

    with serving(published, before) as server:
        short = [embed("short") for _ in range(20)]
        at_rest = server.memory_bytes("VmRSS")
        long = [embed("x" * (LONGEST - 2)) for _ in range(3)]
        short += [embed("short") for _ in range(20)]
        grown = server.memory_bytes("VmRSS") - at_rest

    assert {*short, *long} == {200}
    assert (grown < ACTIVATION_BYTES) is comes_back


def test_thousands_of_requests_leave_memory_where_it_was(server: Server) -> None:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:

        def ask(count: int) -> set[int]:
            bodies = ({"model": "long", "input": f"text {number}"} for number in range(count))
            return {client.post("/v1/classify", json=body).status_code for body in bodies}

        statuses = ask(REQUESTS // 2)
        before = server.memory_bytes("VmRSS")
        statuses |= ask(REQUESTS)
        grown = server.memory_bytes("VmRSS") - before

    assert statuses == {200}
    assert grown < REQUESTS * LEAK_BYTES


def test_an_idle_server_rests(server: Server) -> None:
    assert server.post({"model": "long", "input": "x" * 5_000}).status_code == 200
    before = server.processor_s()

    threading.Event().wait(IDLE_S)

    assert server.processor_s() - before <= IDLE_SHARE * IDLE_S


def test_on_one_core_it_serves_and_says_nothing(published: Path) -> None:
    with serving(published, ON_ONE_CORE) as server:
        answer = server.post({"model": "long", "input": "hello"})
        server.process.send_signal(signal.SIGTERM)
        _, said = server.process.communicate(timeout=PATIENCE_S)

    assert answer.status_code == 200
    assert (server.process.returncode, said) == (0, "")


HEAD = b"POST /v1/classify HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
# What Java's HttpClient sends by default.
UPGRADE = {"Connection": "Upgrade, HTTP2-Settings", "HTTP2-Settings": "AAEAAEAAAAIAAAABAAMAAABk", "Upgrade": "h2c"}
UPGRADING = HEAD + b"".join(b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in UPGRADE.items())
NO_REQUESTS = {
    "bytes": bytes(range(256)) * 4 + b"\r\n\r\n",
    "no version": b"POST /v1/classify\r\n\r\n",
    "a path that is no text": b"POST /\xff\xfe HTTP/1.1\r\nconnection: close\r\n\r\n",
    "a nul in a header": HEAD + b"x: a\x00b\r\n\r\n",
    "a header without a name": HEAD + b": a\r\n\r\n",
    "a negative length": HEAD + b"content-length: -1\r\n\r\n",
    "a length in words": HEAD + b"content-length: ten\r\n\r\n",
    "a length of thousands of digits": HEAD + b"content-length: " + b"9" * 5_000 + b"\r\n\r\n",
    "two lengths": HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "a length and chunks": HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "a chunk without a size": HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
    "a chunk that is too large for a number": HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n{}",
    "a negative length and an upgrade": UPGRADING + b"content-length: -1\r\n\r\n",
    "a tunnel": b"CONNECT x:80 HTTP/1.1\r\nupgrade: h2c\r\nconnection: close, upgrade\r\n\r\n",
    "a gigabyte": HEAD + b"content-length: 1073741824\r\n\r\n{}",
}


@pytest.mark.parametrize("name", NO_REQUESTS)
def test_what_is_no_request_is_refused_and_the_next_one_is_answered(server: Server, name: str) -> None:
    refused = server.send(NO_REQUESTS[name])
    after = server.post({"model": "long", "input": "x"})

    assert 400 <= int(refused.split(b" ", 2)[1]) < 500
    assert after.status_code == 200


@pytest.mark.parametrize(
    "start",
    [
        b"POST /",
        *(head + b"x-a: " for head in (HEAD, UPGRADING)),
        *(head + CHUNKED + b"\r\n2\r\n{}\r\n0\r\nx-a: " for head in (HEAD, UPGRADING)),
    ],
    ids=["a path", "a header", "a header of an upgrade", "a trailer", "a trailer of an upgrade"],
)
def test_a_head_without_end_is_cut_off(server: Server, start: bytes) -> None:
    before = server.memory_bytes("VmRSS")

    sent = server.flood(start)
    grown = server.memory_bytes("VmRSS") - before
    after = server.post({"model": "long", "input": "x"})

    assert sent < FLOOD_BYTES
    assert grown < FLOOD_BYTES / 4
    assert after.status_code == 200


def test_a_body_may_be_longer_than_a_head(server: Server) -> None:
    body = json.dumps({"model": "long", "input": "x"}).encode() + b" " * (1 << 20)
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:9], body[9:])) + b"0\r\n\r\n"

    whole = server.send(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
    in_chunks = server.send(HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunks)

    assert [answer.split(b" ", 2)[1] for answer in (whole, in_chunks)] == [b"200", b"200"]


def test_a_body_of_chunks_of_one_byte_is_answered(server: Server) -> None:
    body = json.dumps({"model": "long", "input": "x" * 1_000})
    chunks = b"".join(b"1\r\n%c\r\n" % letter for letter in body.encode())

    answer = server.send(HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"tokens":1002' in answer


def statuses_and_tokens(answers: bytes) -> list[tuple[bytes, bytes]]:
    return re.findall(rb'HTTP/1.1 (\d+) .*?\r\n\r\n.*?"tokens":(\d+)', answers, re.DOTALL)


def framed(text: str, spaces: int = 0) -> list[bytes]:
    """Give a request's headers of its length and its body, once as a whole and once in chunks."""
    body = json.dumps({"model": "long", "input": text}).encode() + b" " * spaces
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:9], body[9:]))
    return [b"content-length: %d\r\n\r\n" % len(body) + body, CHUNKED + b"\r\n" + chunks + b"0\r\n\r\n"]


@pytest.mark.parametrize("spaces", [0, 1 << 20], ids=["short", "long"])
def test_a_request_for_an_upgrade_is_answered_without_it(server: Server, spaces: int) -> None:
    answers = [server.send(UPGRADING + rest) for rest in framed("hello", spaces)]

    assert [statuses_and_tokens(answer) for answer in answers] == [[(b"200", b"7")]] * 2


def test_requests_for_an_upgrade_come_one_behind_the_other(server: Server) -> None:
    staying, texts = UPGRADING.replace(b"connection: close\r\n", b""), ["x" * count for count in range(1, 20)]

    answers = server.send(b"".join(staying + rest for text in texts for rest in framed(text)) + HEAD + framed("y")[0])

    counts = [count for text in texts for count in 2 * [len(text) + 2]] + [3]
    assert statuses_and_tokens(answers) == [(b"200", b"%d" % count) for count in counts]


def test_a_request_for_an_upgrade_may_come_in_single_bytes(server: Server) -> None:
    answers = [server.send(*(b"%c" % byte for byte in UPGRADING + rest)) for rest in framed("hello")]

    assert [statuses_and_tokens(answer) for answer in answers] == [[(b"200", b"7")]] * 2


def test_a_connection_stays_open_after_a_request_for_an_upgrade(server: Server) -> None:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:
        answers = [
            client.post("/v1/classify", json={"model": "long", "input": "x" * length}, headers=headers)
            for length, headers in [(1, UPGRADE), (30_000, UPGRADE), (20, {}), (30, UPGRADE)]
        ]
        ports = {answer.extensions["network_stream"].get_extra_info("client_addr") for answer in answers}

    assert [answer.json()["results"][0]["input"]["tokens"] for answer in answers] == [3, 30_002, 22, 32]
    assert len(ports) == 1
