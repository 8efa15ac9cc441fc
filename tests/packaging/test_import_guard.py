"""Serving works where torch, transformers, onnx and safetensors cannot be imported: blocked here, in one process."""

import subprocess
import sys
from pathlib import Path

BLOCK_AND_IMPORT = """
import importlib, pkgutil, sys
BLOCKED = {
    *("torch", "transformers", "onnx", "onnx_ir", "safetensors", "onnxscript", "scipy", "rich"),
    *("jinja2", "matplotlib"),
}
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{name} was imported by serving")
sys.meta_path.insert(0, Block())
import vela.graphs, vela.serve
for package in (vela.graphs, vela.serve):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(found.name)
for command in ("serve", "predict", "publish", "models"):
    importlib.import_module(f"vela.scripts.commands.{command}")
print(*sorted(BLOCKED & set(sys.modules)))
"""


def test_graphs_and_serve_import_with_everything_of_export_and_verify_blocked(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BLOCK_AND_IMPORT]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_importing_graphs_loads_no_engine_and_no_tokenizer(tmp_path: Path) -> None:
    script = "import sys; from vela.graphs import store, verdicts, model_table; print(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert {"onnxruntime", "tokenizers", "numpy", "onnx"} & set(done.stdout.split()) == set()
