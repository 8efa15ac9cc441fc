"""`vela release`: many models from their sources to a store, in one resumable run with one ledger."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vela.scripts import finite, graph_options

if TYPE_CHECKING:
    from vela.scripts.release import ledger

FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
COLOURS = {"passed": "green", "failed": "red", "not_compared": "yellow"}
GIB = 1 << 30
CORES_FOR_ONE = 4  # a forward of a 307M model uses as many well; more models than that share cores to no gain


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL]…")
@click.option("--store", type=FOLDER, required=True, help="The store; made if it is not there.")
@click.option("--work", type=FOLDER, default=Path("release"), show_default=True, help="Folder of bundles and ledger.")
@click.option(
    "--checkpoints", type=FOLDER, help="Folder with a checkpoint for each model, by its name in small letters."
)
@click.option("--table", type=FILE, help="Another table of pinned models, such as that of `vela sample --family`.")
@graph_options.options
@click.option(
    "--device",
    "devices",
    multiple=True,
    default=("cpu",),
    show_default=True,
    help="Prove graphs there too; repeatable.",
)
@click.option(
    "--bar",
    type=click.Choice(["auto", "strict", "upstream"]),
    default="auto",
    show_default=True,
    help="Bounds that decide; strict for FP32 weights.",
)
@click.option("--max-tokens", default=2048, show_default=True, type=click.IntRange(2), help="Longest dynamic case.")
@click.option("--corpus", type=FILE, help="Your own texts, judged as well.")
@click.option("--budget", type=finite.FiniteRange(0, min_open=True), help="Minutes that judging a model may take.")
@click.option("--jobs", type=click.IntRange(1), help="Models side by side; one for every four cores by default.")
@click.option("--memory", type=finite.FiniteRange(0, min_open=True), help="GiB for all of them; 0.8 of what is free.")
@click.option("--sign-key", type=FILE, help="Sign each bundle's statement with this ed25519 key (PEM).")
@click.option("--graphs", "with_graphs", is_flag=True, help="List every graph.")
@click.option("--json", "as_json", is_flag=True, help="Print the ledger as JSON.")
def command(
    *,
    models: tuple[str, ...],
    store: Path,
    work: Path,
    checkpoints: Path | None,
    table: Path | None,
    buckets: str,
    batches: str,
    forms: str,
    weights: str,
    reduced: str,
    devices: tuple[str, ...],
    bar: str,
    max_tokens: int,
    corpus: Path | None,
    budget: float | None,
    jobs: int | None,
    memory: float | None,
    sign_key: Path | None,
    with_graphs: bool,
    as_json: bool,
) -> None:
    """Export, verify and publish each MODEL: names of the table, or checkpoint folders; by default the whole table.

    A model that passes on the CPU and on every other --device is published; one that does not holds no other back. The
    same command again goes on where the last run was ended, and keeps what is proven. Exit code 0: everything passed.
    1: a part failed, 16-bit copies included. 3: nothing failed, and a part was not compared.
    """
    from vela.graphs import model_table, signing
    from vela.scripts.release import board, page, plan, run, workers
    from vela.serve.device import CPU, Device
    from vela.verify.options import GateOptions

    if sign_key is not None:
        signing.require_usable(sign_key)
    pins = model_table.read_table(table) if table else model_table.load_table()
    parsed = dict.fromkeys(map(Device.parse, devices))
    asked = plan.ReleasePlan(
        models=plan.choose_models(models, pins, checkpoints),
        shapes=graph_options.read(buckets, batches, forms, weights, reduced),
        devices=(CPU, *(device for device in parsed if device != CPU)),
        gate=GateOptions(
            bar=bar, max_tokens=max_tokens, corpus=corpus, budget_s=None if budget is None else 60 * budget
        ),
        work=work,
        store=store,
        table=pins,
        sign_key=sign_key,
    )
    cores = tuple(sorted(os.sched_getaffinity(0)))
    count = min(jobs or max(1, len(cores) // CORES_FOR_ONE), len(cores), len(asked.models))
    crew = workers.Crew(count, int(GIB * memory) if memory else run.free_memory_bytes(), cores)
    try:
        found = run.release(asked, crew, lambda message: click.echo(message, err=True))
    except KeyboardInterrupt:
        click.echo(f"interrupted; the same command goes on from {work}", err=True)
        raise SystemExit(1) from None
    lines = [line for wanted in asked.models if (line := found.line(wanted.name))]
    if as_json:
        click.echo((work / "ledger.json").read_bytes(), nl=False)
    else:
        for text, colour in board.release_table(lines, with_graphs=with_graphs):
            click.echo(click.style(text, fg=COLOURS.get(colour)))
    click.echo(f"ledger: {work / page.PAGE_FILE}", err=True)
    raise SystemExit(_exit_code(lines))


def _exit_code(lines: "list[ledger.ModelLine]") -> int:
    from vela.scripts.release import ledger

    return {"published": 0, "not_compared": 3}.get(ledger.worst_of(lines), 1)
