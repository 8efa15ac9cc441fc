"""The wheel with `[cpu]` alone, in a fresh environment: it serves a published store, and nothing else is installed.

Installs from the package registry; everything after that runs without a network and with an empty home folder.
"""

import contextlib
import json
import os
import re
import subprocess
import urllib.request
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("serving_install")

ABSENT = (
    *("torch", "transformers", "onnx", "onnx_ir", "safetensors", "onnxscript", "scipy", "rich", "pytest"),
    *("jinja2", "matplotlib"),
)
READY = re.compile(r"^ready: .* at (http://\S+)$")
ANSWER_LIMIT_S = 60.0


@pytest.fixture(scope="module")
def python(make_once: Callable[[str, Callable[[Path], None]], Path], wheel: Path) -> Path:
    """Give the interpreter of a fresh environment with `vela-onnx[cpu]` from the built wheel."""

    def install(folder: Path) -> None:
        venv.create(folder / "env", with_pip=True)
        command = [str(folder / "env" / "bin" / "python"), "-m", "pip", "install", "--quiet", f"{wheel}[cpu]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    return make_once("serving-install", install) / "env" / "bin" / "python"


def environment(home: Path) -> dict[str, str]:
    """Give an environment without anything of the developer's: no PYTHONPATH, no caches, a home of its own."""
    return {"PATH": os.defpath, "HOME": str(home), "LANG": "C.UTF-8"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def server(python: Path, store: Path, home: Path) -> Iterator[str]:
    """Serve the published samples; give the server's address, and stop it afterwards."""
    command = [str(python), "-P", str(python.with_name("vela")), "serve", "--store", str(store), "--port", "0"]
    with subprocess.Popen(command, cwd=home, env=environment(home), stderr=subprocess.PIPE, text=True) as process:
        try:
            yield address_of(process)
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
    assert process.returncode == 0


def address_of(process: "subprocess.Popen[str]") -> str:
    """Wait until the server says that it is ready, and where."""
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if found := READY.match(line.rstrip()):
            return found[1]
    raise AssertionError(f"the server stopped without being ready: {''.join(said)}")


def ask(url: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=ANSWER_LIMIT_S) as response:
        return response.status, json.load(response)


def test_nothing_that_exports_or_verifies_is_installed(python: Path, home: Path) -> None:
    script = (
        "import importlib.util as u, json, sys\n"
        "print(json.dumps([name for name in sys.argv[1:] if u.find_spec(name) is not None]))"
    )
    command = [str(python), "-P", "-c", script, *ABSENT]

    found = subprocess.run(command, cwd=home, env=environment(home), capture_output=True, text=True, check=True)

    assert json.loads(found.stdout) == []


def test_the_store_is_healthy_and_every_model_of_it_is_listed(server: str, store: Path) -> None:
    status, _ = ask(f"{server}/health")
    _, models = ask(f"{server}/v1/models")

    assert status == 200
    listed = json.dumps(models)
    assert [path.name for path in (store / "current").iterdir() if path.name not in listed] == []


def test_a_text_is_classified(server: str) -> None:
    status, answer = ask(f"{server}/v1/classify", {"model": "tiny-guard", "input": "What is the capital of France?"})

    assert status == 200
    assert answer["model"] == "tiny-guard"
    probabilities = answer["results"][0]["probabilities"]
    assert answer["results"][0]["label"] in answer["labels"]
    assert sum(probabilities if isinstance(probabilities, list) else probabilities.values()) == pytest.approx(
        1, abs=1e-5
    )


def test_nothing_was_written_into_the_home_folder(server: str, home: Path) -> None:
    ask(f"{server}/health")

    assert list(home.iterdir()) == []


def test_the_command_line_answers_too(python: Path, store: Path, home: Path) -> None:
    vela = [str(python), "-P", str(python.with_name("vela"))]
    arguments = ["predict", "--store", str(store), "--model", "tiny-guard", "--text", "Hello", "--json"]

    found = subprocess.run([*vela, *arguments], cwd=home, env=environment(home), capture_output=True, text=True)

    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout.splitlines()[0])


def test_a_command_that_needs_an_extra_fails_and_writes_nothing(python: Path, home: Path) -> None:
    vela = [str(python), "-P", str(python.with_name("vela"))]
    arguments = ["export", "--checkpoint", str(home), "--out", str(home / "out")]

    found = subprocess.run([*vela, *arguments], cwd=home, env=environment(home), capture_output=True, check=False)

    assert found.returncode == 1
    assert list(home.iterdir()) == []
