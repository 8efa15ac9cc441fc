"""`vela parity`: do two live systems answer alike? `corpus` says what is asked, `run` records, `compare` judges."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from vela.scripts import finite

if TYPE_CHECKING:
    from vela.graphs.model_table import ModelTable
    from vela.verify.parity.side import Side

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
NEW_FILE = click.Path(path_type=Path, dir_okay=False)
TABLE = click.option("--table", type=FILE, help="A model table in place of the one that ships.")
# What each side is made of; another side takes none of it.
PLACES = {
    "torch": ("--checkpoints",),
    "bundle": ("--bundles", "--store"),
    "http": ("--url",),
    "onnx": ("--graph", "--checkpoints"),
}
BESIDE = {"--device": ("bundle", "onnx"), "--unverified": ("bundle",), "--api-key-file": ("http",)}
COLOURS = {"passed": "green", "failed": "red", "not_compared": "yellow"}


@click.group()
def command() -> None:
    """Compare two live systems by their recorded answers to the same inputs."""


@command.command()
@click.argument("out", type=NEW_FILE, metavar="OUT.jobs.json")
@click.option("--jobs", "recipe", type=click.Choice(["cpu", "amd"]), required=True, help="Whose jobs: the router's.")
@click.option("--models", help="Names of the models that are asked, with commas; else all of the table.")
@click.option("--corpus", "corpora", type=FILE, multiple=True, help='Your texts too, JSON lines of {"id", "text"}.')
@click.option("--texts", "most", type=click.IntRange(2), help="At most so many inputs a job, evenly spread.")
@TABLE
def corpus(
    *,
    out: Path,
    recipe: Literal["cpu", "amd"],
    models: str | None,
    corpora: tuple[Path, ...],
    most: int | None,
    table: Path | None,
) -> None:
    """Write what the models of the table are asked, with all inputs, so that every side answers the same.

    Equal options write equal inputs.
    """
    from vela.verify.parity import corpus as making

    specs = making.make_jobs(making.Wanted(recipe, _table(table), _names(models), corpora, most))
    sha256 = making.write_jobs(specs, out)
    for spec in specs:
        click.echo(
            f"  {spec.job}: {len(spec.inputs)} inputs, {spec.mode}, {spec.overflow} at {spec.max_tokens:,} tokens"
        )
    click.echo(f"wrote {len(specs)} jobs to {out}, inputs sha256 {sha256}")


@command.command()
@click.argument("jobs_file", type=FILE, metavar="JOBS.jobs.json")
@click.option("--side", "kind", type=click.Choice(list(PLACES)), required=True, help="Who is asked.")
@click.option("--out", type=NEW_FILE, required=True, help="The answers; there only once they are whole.")
@click.option("--checkpoints", type=FOLDER, help="torch, onnx: each model's checkpoint in <name>.")
@click.option("--bundles", type=FOLDER, help="bundle: each model's bundle in <name>.")
@click.option("--store", type=FOLDER, help="bundle: a store that `vela publish` wrote.")
@click.option("--url", help="http: a server of the native surface, such as http://127.0.0.1:8080.")
@click.option("--graph", "graphs", multiple=True, metavar="NAME=FILE", help="onnx: a model's graph; repeatable.")
@click.option("--device", default="cpu", show_default=True, help="bundle, onnx: cpu, migraphx:N, rocm:N, cuda:N.")
@click.option("--unverified", is_flag=True, help="bundle: ask graphs that no passing record vouches for.")
@click.option("--api-key-file", type=FILE, help="http: send this file's first line as a bearer token.")
@click.option("--jobs-only", help="Names of the jobs that are asked, with commas; else all.")
@click.option(
    "--load-seconds",
    default=20.0,
    show_default=True,
    type=finite.FiniteRange(0, 600),
    help="How long four callers ask at once, for each job; 0 for not at all.",
)
@TABLE
def run(
    *,
    jobs_file: Path,
    kind: Literal["torch", "bundle", "http", "onnx"],
    out: Path,
    checkpoints: Path | None,
    bundles: Path | None,
    store: Path | None,
    url: str | None,
    graphs: tuple[str, ...],
    device: str,
    unverified: bool,
    api_key_file: Path | None,
    jobs_only: str | None,
    load_seconds: float,
    table: Path | None,
) -> None:
    """Ask one side every input of JOBS.jobs.json, and record its answers for `vela parity compare`.

    A run that was stopped is taken up again by the same command. Exit code 0: everything is recorded, rejections among
    it. 1: it is not; the reason is printed.
    """
    given = {"--checkpoints": checkpoints, "--bundles": bundles, "--store": store, "--url": url, "--graph": graphs}
    beside = {"--device": device != "cpu", "--unverified": unverified, "--api-key-file": api_key_file}
    _check_places(kind, [name for name, value in (given | beside).items() if value])

    from vela.verify.parity import asking, inputs

    known, asked = _table(table), inputs.Asked.from_file(jobs_file, _names(jobs_only))
    opening: dict[str, Callable[[], Side]] = {
        "torch": lambda: _torch(known, checkpoints),
        "bundle": lambda: _bundle(known, bundles, store, device, unverified=unverified),
        "http": lambda: _http(known, url, api_key_file),
        "onnx": lambda: _onnx(known, checkpoints, graphs, device),
    }
    side = opening[kind]()
    for found in asking.Asking(asked, side, load_seconds, _say).record(out):
        click.echo(f"  {found}")
    click.echo(f"recorded {side.name} in {out}, inputs sha256 {asked.plan.inputs_sha256}")


@command.command()
@click.argument("baseline", type=FILE)
@click.argument("candidate", type=FILE)
@click.option(
    "--bar",
    type=click.Choice(["strict", "upstream"]),
    default="strict",
    show_default=True,
    help="Whose view and bounds decide; the other's verdict is stated beside it.",
)
@click.option(
    "--device-class",
    type=click.Choice(["cpu", "rocm", "reduced"]),
    default="cpu",
    show_default=True,
    help="What the candidate ran on, or that it is a reduced copy of the baseline.",
)
@click.option("--jobs", "jobs_file", type=FILE, help="The .jobs.json of files that have no header.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the record to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
def compare(
    *,
    baseline: Path,
    candidate: Path,
    bar: Literal["strict", "upstream"],
    device_class: Literal["cpu", "rocm", "reduced"],
    jobs_file: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Judge the answers in CANDIDATE against those in BASELINE, both recorded from the same inputs.

    Exit code 0: every job passed. 1: one failed, or a file cannot be used; the reason is printed. 3: of some job
    nothing was compared; that is never a pass.
    """
    from vela.verify.parity import comparison, jobs, record, recording, table

    plan = jobs.Plan.from_file(jobs_file) if jobs_file else None
    expected, actual = (recording.Recording.from_file(path, plan) for path in (baseline, candidate))
    found = comparison.compare(comparison.Comparison.from_recordings(expected, actual, plan), device_class)
    if out is not None:
        record.write_record(found, out)
    if as_json:
        click.echo(record.encode_record(found), nl=False)
    else:
        for line, verdict in table.parity_table(found, bar):
            click.echo(click.style(line, fg=COLOURS.get(verdict)))
    comparison.require_passed(found, bar)


def _check_places(kind: str, given: list[str]) -> None:
    """Refuse a side without its places, or with another side's."""
    wanted = PLACES[kind]
    named = [name for name in wanted if name in given]
    is_whole = len(named) == 1 if kind == "bundle" else len(named) == len(wanted)
    if not is_whole:
        raise click.UsageError(f"--side {kind} needs {(' or ' if kind == 'bundle' else ' and ').join(wanted)}")
    odd = [name for name in given if name not in wanted and kind not in BESIDE.get(name, ())]
    if odd:
        raise click.UsageError(f"{', '.join(odd)} does not go with --side {kind}")


def _torch(table: "ModelTable", checkpoints: Path | None) -> "Side":
    from vela.export import parity_side

    return parity_side.side_of(checkpoints or Path(), table)


def _bundle(table: "ModelTable", folder: Path | None, store: Path | None, device: str, *, unverified: bool) -> "Side":
    from vela.serve import prediction
    from vela.serve.device import Device
    from vela.verify.parity.side_bundle import BundleSide

    where, demand = Device.parse(device), prediction.demand_of(unverified=unverified)
    if folder is not None:
        return BundleSide.of_folder(folder, table, where, demand)
    return BundleSide.of_store(store or Path(), table, where, demand)


def _http(table: "ModelTable", url: str | None, api_key_file: Path | None) -> "Side":
    from vela.verify.parity.connection import Server
    from vela.verify.parity.side_http import HttpSide

    headers = {}
    if api_key_file is not None:
        key = api_key_file.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
        if not key or not key.isascii() or not key.isprintable():
            raise click.UsageError(f"{api_key_file}: no key of printable ASCII in its first line")
        headers = {"authorization": f"Bearer {key}"}
    return HttpSide(Server(url or "", headers), table)


def _onnx(table: "ModelTable", checkpoints: Path | None, graphs: tuple[str, ...], device: str) -> "Side":
    from vela.serve.device import Device
    from vela.verify.parity.side_onnx import Graphs

    named = dict(text.partition("=")[::2] for text in graphs)
    missing = [text for text in graphs if not Path(text.partition("=")[2]).is_file()]
    if missing or len(named) < len(graphs):
        raise click.BadParameter(f"{', '.join(missing) or 'a name twice'}; expected NAME=FILE", param_hint="--graph")
    files = {name: Path(path) for name, path in named.items()}
    return Graphs(files, table, Device.parse(device)).side(checkpoints or Path())


def _table(path: Path | None) -> "ModelTable":
    from vela.graphs import model_table

    return model_table.read_table(path) if path else model_table.load_table()


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _say(message: str) -> None:
    click.echo(message, err=True)
