"""What a server touches besides its own socket and the folders that it was given: nothing.

The kernel is asked, through strace, because libraries in C open files and sockets that Python does not see.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

PATIENCE_S = 60
CALLS = (
    "trace=connect,sendto,sendmsg,openat,open,creat,mkdir,mkdirat,rename,renameat2,unlink,unlinkat,symlink,link,linkat"
)
ADDRESS = re.compile(r'inet_(?:addr|pton)\((?:AF_INET6, )?"([^"]+)"')
WRITING = re.compile(r'\bopen(?:at)?\([^"]*"([^"]+)", [^)]*O_(?:WRONLY|RDWR|CREAT|TRUNC)')
CHANGING = re.compile(r'\b(?:creat|mkdir|mkdirat|rename|renameat2|unlink|unlinkat|symlink|link|linkat)\([^"]*"([^"]+)"')


def written_by(lines: list[str]) -> set[str]:
    return {match[1] for line in lines for match in (*WRITING.finditer(line), *CHANGING.finditer(line))}


@pytest.fixture(scope="module")
def traced(bag_store: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a server asked of the kernel from its start, through some requests, to its end."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    folder = tmp_path_factory.mktemp("quiet")
    log = folder / "calls"
    start = "import sys; sys.argv = ['vela', *sys.argv[1:]]; from vela.scripts import cli; cli.main()"
    command = ["strace", "-f", "-qq", "-y", "-s", "300", "-e", CALLS, "-o", str(log), sys.executable, "-c", start]
    command += ["serve", "--store", str(bag_store), "--port", "0", "--reload", "0.2", "--access-log"]
    home = folder / "home"
    home.mkdir()
    environment = {**os.environ, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=home, env=environment) as process:
        ready = next(line for line in process.stderr if line.startswith("ready"))
        url = ready.split()[-1]
        for model in ("mood", "names", "topics"):
            body = json.dumps({"model": model, "input": "hello"}).encode()
            with urllib.request.urlopen(f"{url}/v1/classify", body, timeout=PATIENCE_S) as answer:
                assert answer.status == 200
        for path in ("health", "metrics", "docs", "openapi.json", "v1/models"):
            urllib.request.urlopen(f"{url}/{path}", timeout=PATIENCE_S).close()
        child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
        os.kill(child, signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert list(home.iterdir()) == []
    return log.read_text().splitlines()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('12 openat(AT_FDCWD</a>, "x/y", O_WRONLY|O_CREAT|O_CLOEXEC, 0666) = 3</a/x/y>', {"x/y"}),
        ('12 open("x", O_RDWR) = 3', {"x"}),
        ('12 openat(AT_FDCWD</a>, "x", O_RDONLY|O_CLOEXEC) = 3</a/x>', set()),
        ('12 mkdir("x", 0700) = 0', {"x"}),
        ('12 unlinkat(AT_FDCWD</a>, "x", 0) = 0', {"x"}),
    ],
)
def test_what_writes_is_told_from_what_reads(line: str, found: set[str]) -> None:
    assert written_by([line]) == found


def test_the_trace_holds_what_it_should(traced: list[str]) -> None:
    assert any("model.onnx" in line and "openat" in line for line in traced)
    assert any("sendto" in line or "sendmsg" in line or "connect" in line for line in traced)


def test_no_address_outside_this_machine_is_asked_for(traced: list[str]) -> None:
    found = {match[1] for line in traced for match in ADDRESS.finditer(line)}

    assert {address for address in found if not address.startswith("127.") and address != "::1"} == set()


def test_nothing_is_written(traced: list[str]) -> None:
    assert {path for path in written_by(traced) if not path.startswith(("/dev/null", "/proc/self/"))} == set()
