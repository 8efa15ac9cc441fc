"""The `vela` command as a whole: quick to start, and every command explained."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from vela.scripts import cli

HEAVY = (
    "numpy",
    "onnxruntime",
    "torch",
    "transformers",
    "onnx",
    "onnx_ir",
    "tokenizers",
    "starlette",
    "rich",
    "matplotlib",
)

HELP = """
import json, sys
sys.argv = ["vela", *sys.argv[1:]]
from vela.scripts import cli
try:
    cli.main()
except SystemExit as stop:
    assert not stop.code
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def loaded_by(*arguments: str) -> tuple[str, set[str]]:
    """Run `vela` in a process of its own; give what it printed and the top-level modules it loaded."""
    done = subprocess.run([sys.executable, "-c", HELP, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *printed, modules = done.stdout.splitlines()
    return "\n".join(printed), set(json.loads(modules))


def test_help_lists_every_command_and_loads_nothing_heavy() -> None:
    printed, modules = loaded_by("--help")

    assert [name for name in cli.COMMANDS if f"  {name} " not in printed] == []
    assert modules & set(HEAVY) == set()


@pytest.mark.parametrize("name", ["serve", "predict", "publish", "report", "models", "inspect"])
def test_help_of_a_command_that_serving_machines_have_loads_no_torch_and_no_onnx(name: str) -> None:
    _, modules = loaded_by(name, "--help")

    assert modules & {"torch", "transformers", "onnx", "onnx_ir", "safetensors"} == set()


def test_every_command_is_a_module_and_every_module_a_command(root: Path) -> None:
    modules = {path.stem for path in (root / "scripts" / "commands").glob("*.py")} - {"__init__"}

    assert {name.replace("-", "_") for name in cli.COMMANDS} == modules


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_and_every_option_has_help(name: str) -> None:
    command = cli.vela.get_command(click.Context(cli.vela), name)

    assert command is not None
    assert command.help
    options = [option for option in command.params if isinstance(option, click.Option)]
    assert [option.name for option in options if not option.help] == []
    assert cli.COMMANDS[name].endswith(".")


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_is_in_the_readme(root: Path, name: str) -> None:
    assert f"vela {name}" in (root / "README.md").read_text()


def test_an_unknown_command_is_misuse() -> None:
    command = [sys.executable, "-c", "from vela.scripts.cli import main; main()", "sevre"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "No such command 'sevre'" in done.stderr


def test_a_vela_error_is_one_line_on_stderr_and_exit_code_1(tmp_path: Path) -> None:
    script = "from vela.scripts.cli import main; main()"
    command = [sys.executable, "-c", script, "publish", str(tmp_path), "--store", str(tmp_path / "store")]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "manifest.json: found no manifest.json of a sane size" in done.stderr


def test_no_module_of_the_project_imports_by_a_relative_name(root: Path) -> None:
    """ruff bans them too; this covers folders that ruff is told to leave out."""
    found = []
    for path in root.glob("*/**/*.py"):
        if path.parts[len(root.parts)].startswith("."):
            continue
        tree = ast.parse(path.read_text())
        found += [str(path) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]

    assert found == []
