"""Sides as they are named, the requests they get, and servers that a command starts."""

import json
import os
import select
import sys

import pytest

from vela.graphs import errors
from vela.verify.latency import callers, corpus, identity, processes, side, starting

SERVER = """
import http.server, os, subprocess, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.send_header("content-length", "0")
        self.end_headers()
    def log_message(self, *arguments):
        pass
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[2], "w").write(f"{os.getpid()} {child.pid}")
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def body_of(message):
    return json.loads(message.partition(b"\r\n\r\n")[2])


def test_a_side_is_an_address_or_a_command():
    running, command = side.Asked.from_texts(
        ["old=http://10.0.0.1:8080/models/", "new = vela serve --port {port} --store 'a b'"], []
    )

    assert running.running().url == "http://10.0.0.1:8080/models"
    assert (running.is_command, command.is_command) == (False, True)
    assert command.words(81) == ["vela", "serve", "--port", "81", "--store", "a b"]
    assert command.at(81).url == "http://127.0.0.1:81"


def test_options_are_merged_into_those_of_the_request():
    (asked,) = side.Asked.from_texts(["a=http://h:1"], ['a={"profile": "batching"}'])
    requests = corpus.Corpus(
        (
            corpus.Request("1", "/v1/classify", {"input": "x", "options": {"profile": "exact", "max_tokens": 5}}),
            corpus.Request("2", "/v1/classify", {"input": "y"}),
        )
    )

    first, second = asked.running().messages(requests)

    assert body_of(first)["options"] == {"profile": "batching", "max_tokens": 5}
    assert body_of(second) == {"input": "y", "options": {"profile": "batching"}}
    assert requests.requests[0].body["options"]["profile"] == "exact"


def test_a_message_is_a_whole_request_with_the_prefix_and_the_key():
    asked = side.Side("a", callers.Address("::1", 81), "/p", headers=(("authorization", "Bearer k"),))

    (message,) = asked.messages(corpus.Corpus((corpus.Request("1", "/v1/x", {"input": "é"}),)))
    head, _, body = message.partition(b"\r\n\r\n")

    assert head.decode().splitlines() == [
        "POST /p/v1/x HTTP/1.1",
        "host: [::1]:81",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "authorization: Bearer k",
    ]


@pytest.mark.parametrize(
    ("sides", "options"),
    [
        (["http://h:1"], []),
        (["a="], []),
        (["=http://h:1"], []),
        (["a\n=http://h:1"], []),
        (["a=http://h:1", "a=http://h:2"], []),
        (["a=http://h:1"], ["b={}"]),
        (["a=http://h:1"], ["a=[]"]),
        (["a=http://h:1"], ["a={"]),
        (["a=http://h:1"], ["a={}", "a={}"]),
    ],
)
def test_what_names_no_side_is_refused(sides, options):
    with pytest.raises(errors.VerificationError):
        side.Asked.from_texts(sides, options)


@pytest.mark.parametrize(
    "url",
    [
        "https://h:1",
        "http://",
        "http://u:p@h:1",
        "http://h:1?x=1",
        "http://h:99999",
        "http://h:0",
        "http://h:1/a\r\nx:y",
        "ftp://h",
    ],
)
def test_an_address_that_cannot_be_asked_plainly_is_refused(url):
    with pytest.raises(errors.VerificationError, match="the address of a server"):
        side.parse_url(url)


@pytest.mark.parametrize("command", ["vela serve", "vela serve '{port}", "{port"])
def test_a_command_without_a_place_for_the_port_is_refused(command):
    with pytest.raises(errors.VerificationError, match=r"a command with \{port\}"):
        side.Asked("a", command).words(1)


def test_a_started_server_is_waited_for_and_ended_with_its_children(tmp_path):
    script, pids = tmp_path / "server.py", tmp_path / "pids"
    script.write_text(SERVER)
    asked = side.Asked("new", f"{sys.executable} {script} {{port}} {pids}")

    with starting.started([asked]) as (running,):
        found = identity.identify(running)
        alive = [int(pid) for pid in pids.read_text().split()]
        child = os.pidfd_open(alive[1])
        assert [processes.Process.from_pid(pid) is not None for pid in alive] == [True, True]

    assert found.process is not None
    assert found.process[0] == alive[0]
    assert not os.path.exists(f"/proc/{alive[0]}")
    with os.fdopen(child) as ended:
        assert select.select([ended], [], [], 5.0)[0]


def test_a_server_that_ends_is_said_with_its_last_words():
    asked = side.Asked("new", f"""{sys.executable} -c "raise SystemExit('no store at {{port}}')" """)

    with pytest.raises(errors.VerificationError, match=r"--side new.*ended with 1: no store at \d+"):
        starting.started([asked]).__enter__()


def test_a_command_that_is_not_there_is_said():
    with pytest.raises(errors.VerificationError, match="cannot be run"):
        starting.started([side.Asked("new", "/no/such/program {port}")]).__enter__()


def test_a_server_that_never_gets_ready_is_ended(tmp_path):
    pid = tmp_path / "pid"
    script = tmp_path / "server.py"
    script.write_text(
        "import os, sys, time\n"
        "open(sys.argv[1], 'w').write(str(os.getpid()))\n"
        "print('loading', flush=True)\n"
        "time.sleep(600)"
    )
    looks = []

    def look(seconds):
        os.sched_yield()
        looks.append(seconds)

    asked = side.Asked("new", f"{sys.executable} {script} {pid} {{port}}")
    with pytest.raises(errors.VerificationError, match="not ready in time"):
        starting.started([asked], timeout_s=0.3, sleep=look).__enter__()

    assert looks
    assert not os.path.exists(f"/proc/{pid.read_text()}")
