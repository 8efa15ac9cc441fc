"""What the CPU image holds: small enough, nothing of the exporter, and it serves from a folder that cannot be written.

Installs from the package registry, as the image's build does.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("image_tree")

LIMIT_BYTES = 150_000_000
ABSENT = ("torch", "transformers", "onnx", "onnx_ir", "scipy", "rich", "pytest", "pip", "vela/export", "vela/verify")
PATIENCE_S = 60


@pytest.fixture(scope="module")
def tree(make_once: Callable[[str, Callable[[Path], None]], Path], root: Path) -> Path:
    def make(folder: Path) -> None:
        environment = os.environ | {"PYTHON": sys.executable}
        command = [str(root / "scripts" / "image-tree"), str(folder / "tree")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr

    return make_once("image-tree", make) / "tree"


def test_it_is_no_larger_than_an_image_may_be(tree: Path) -> None:
    size = sum(path.lstat().st_size for path in tree.rglob("*") if path.is_file())

    assert 100_000_000 < size <= LIMIT_BYTES


@pytest.mark.parametrize("name", ABSENT)
def test_what_serving_does_not_need_is_not_there(tree: Path, name: str) -> None:
    assert not (tree / "site-packages" / name).exists()


def test_everybody_may_read_it(tree: Path) -> None:
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in tree.rglob("*"))


def test_it_serves_alone_and_writes_nothing_into_itself(tree: Path, store: Path, tmp_path: Path) -> None:
    before = sorted(str(path) for path in tree.rglob("*"))
    environment = {"PATH": os.defpath, "HOME": str(tmp_path), "PYTHON": sys.executable}
    command = [str(tree / "vela"), "serve", "--store", str(store), "--models", "tiny-intent", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = next((line for line in process.stderr or () if line.startswith("ready")), "")
            assert line
            url = re.sub(r".* at ", "", line.strip())
            body = json.dumps({"input": "hello"}).encode()
            with urllib.request.urlopen(f"{url}/v1/classify", body, timeout=PATIENCE_S) as answer:
                found = json.load(answer)
        finally:
            process.terminate()

    assert found["model"] == "tiny-intent"
    assert process.returncode == 0
    assert sorted(str(path) for path in tree.rglob("*")) == before
    assert list(tmp_path.iterdir()) == []


def test_a_tree_is_not_laid_over_another(tree: Path, root: Path) -> None:
    command = [str(root / "scripts" / "image-tree"), str(tree)]

    assert subprocess.run(command, capture_output=True, check=False).returncode == 2
