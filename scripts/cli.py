"""The `vela` command: a lazy group, so that `vela --help` loads no numpy and `vela serve` no torch.

A command is a module of scripts/commands that parses its options, calls one library function and prints. Exit codes:
0 done or passed, 1 a failed check or a VelaError, 2 misuse, 3 not compared; a bug keeps its traceback.
"""

import importlib
import sys

import click

from vela.graphs import errors

COMMANDS = {
    "plan-buckets": "Plan the fixed graphs that cost least for observed lengths.",
    "export": "Export a checkpoint to a bundle of ONNX graphs.",
    "verify-graph": "Prove that a bundle's graphs, or any ONNX file, answer like their checkpoint.",
    "release": "Export, verify and publish many models, resumable, with one ledger.",
    "report": "Render stored records as one HTML page.",
    "golden": "Write golden answers, and check that graphs give them.",
    "parity": "Record what live systems answer, and compare two of them.",
    "latency": "Compare how long two live systems take.",
    "publish": "Copy a proven bundle into a store.",
    "compile": "Compile graphs ahead, for devices that compile.",
    "serve": "Serve the proven models of a store over HTTP.",
    "predict": "Answer texts on the command line.",
    "doctor": "Say what keeps this machine from serving, and how to mend it.",
    "inspect": "Say what is in a bundle or an ONNX file.",
    "models": "List the pinned models.",
    "sample": "Write the pinned models made small, to try the pipeline with.",
}
# What a command may miss where only `vela-onnx[cpu]` is installed, and the extra that brings it.
EXTRAS = {
    "torch": "export",
    "transformers": "export",
    "safetensors": "export",
    "onnxscript": "export",
    "huggingface_hub": "export",
    "onnx": "verify",
    "onnx_ir": "verify",
    "jinja2": "verify",
    "matplotlib": "verify",
}
EXIT_FAILED = 1
EXIT_NOT_COMPARED = 3


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List commands in the order of the pipeline."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command's module."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"vela.scripts.commands.{cmd_name.replace('-', '_')}")
        command = module.command
        if not isinstance(command, click.Command):
            raise TypeError(f"{module.__name__}.command is no click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="vela-onnx")
def vela() -> None:
    """Export text-model checkpoints to ONNX graphs, prove that they answer alike, and serve them."""


def main() -> None:
    """Run the command line; a VelaError is one line on stderr."""
    try:
        vela.main(prog_name="vela")
    except errors.NothingCompared as problem:
        click.echo(f"vela: not compared: {problem}", err=True)
        sys.exit(EXIT_NOT_COMPARED)
    except errors.VelaError as problem:
        click.echo(f"vela: {problem}", err=True)
        sys.exit(EXIT_FAILED)
    except ModuleNotFoundError as problem:
        extra = EXTRAS.get((problem.name or "").split(".")[0])
        if extra is None:
            raise
        click.echo(f"vela: {problem.name} is not installed; this command needs vela-onnx[{extra}]", err=True)
        sys.exit(EXIT_FAILED)
