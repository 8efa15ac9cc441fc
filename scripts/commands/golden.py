"""`vela golden`: a few inputs with the checkpoint's own answers: write them, and check that graphs give them."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import click
import msgspec

from vela.scripts import finite

if TYPE_CHECKING:
    from vela.serve.golden_asking import Subject
    from vela.verify.upstream_sides import Asking, Side

Result = TypeVar("Result", bound=msgspec.Struct)

FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
COLOURS = {"passed": "green", "failed": "red", "not_compared": "yellow"}
Profile = Literal["exact", "batching", "max_speed"]


@click.group()
def command() -> None:
    """Write golden answers of a proven bundle, and check that graphs, or checkpoints, give them."""


@command.command()
@click.argument("bundle", type=FOLDER)
@click.option("--checkpoint", type=FOLDER, required=True, help="The checkpoint that the bundle was judged against.")
@click.option("--probes", type=click.IntRange(8, 32), help="At most so many inputs; as many as the gate would choose.")
@click.option("--allow-key", "allowed_keys", multiple=True, help="Vouch for an unknown key of config.json; repeatable.")
@click.option("--table", type=FILE, help="A model table to use in place of the one that ships.")
def write(
    *, bundle: Path, checkpoint: Path, probes: int | None, allowed_keys: tuple[str, ...], table: Path | None
) -> None:
    """Write golden.json into BUNDLE, whose FP32 graphs must all have passed on the CPU.

    The gate writes it after a pass; this writes it again, from the same rules. Equal inputs give equal bytes.
    """
    from vela.export import verification
    from vela.graphs import model_table

    read = model_table.read_table(table) if table else None
    made = verification.write_golden(bundle, checkpoint, probes, _say, allowed_keys=allowed_keys, table=read)
    bounds = ", ".join(f"{bound:.1e} on {kind}" for kind, bound in made.bounds.items())
    click.echo(f"wrote {len(made.probes)} golden answers of {bundle.name}; |Δ| at most {bounds}")


@command.command()
@click.argument("bundle", required=False, type=FOLDER)
@click.option("--store", type=FOLDER, help="Check every model of a store.")
@click.option("--model", help="Only this model of the store, or of the file of upstream's answers.")
@click.option("--device", default="cpu", show_default=True, help="Where graphs run: cpu, migraphx:N, rocm:N, cuda:N.")
@click.option(
    "--profile",
    type=click.Choice(["exact", "batching", "max_speed"]),
    default="exact",
    show_default=True,
    help="What `vela serve` will be started with: it may load other graphs, such as 16-bit copies.",
)
@click.option("--upstream", type=FILE, help="Check by upstream's golden answers in this file, not by the bundle's own.")
@click.option("--bundle", "named", type=FOLDER, help="The same as BUNDLE.")
@click.option("--checkpoint", type=FOLDER, help="With --upstream: a checkpoint answers, in PyTorch.")
@click.option("--checkpoints", type=FOLDER, help="With --upstream: those in this folder do, each in <name>.")
@click.option("--table", type=FILE, help="With --upstream: a model table in place of the one that ships.")
@click.option(
    "--tolerance",
    type=finite.FiniteRange(0, 0.05, min_open=True),
    help="With --upstream: largest |Δ| of a probability; 1e-4 by default.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each graph or model.")
def check(
    *,
    bundle: Path | None,
    store: Path | None,
    model: str | None,
    device: str,
    profile: Profile,
    upstream: Path | None,
    named: Path | None,
    checkpoint: Path | None,
    checkpoints: Path | None,
    table: Path | None,
    tolerance: float | None,
    as_json: bool,
) -> None:
    """Ask every graph that a device would run all golden answers that it takes, and say how far each is.

    With --upstream the inputs of upstream's file are answered by a checkpoint or a bundle.

    Exit code 0: all are near enough. 1: one is not, or could not be asked; the reason is printed. 3: a bundle has no
    golden answers, or nothing was compared; that is never a pass.
    """
    place, path = _place(
        {
            "BUNDLE": bundle,
            "--bundle": named,
            "--store": store,
            "--checkpoint": checkpoint,
            "--checkpoints": checkpoints,
        }
    )
    if upstream is None:
        _refuse_given({"--table": table, "--tolerance": tolerance}, "--upstream")
        _check_own(_subjects(place, path, model), device, profile, as_json=as_json)
        return
    _refuse_given({f"--profile {profile}": profile != "exact"}, "a bundle's own answers")

    from vela.graphs import model_table
    from vela.verify import golden_table, upstream_check, upstream_golden, upstream_sides

    pinned = model_table.read_table(table) if table else model_table.load_table()
    asking = upstream_sides.Asking(upstream_golden.UpstreamGolden.from_file(upstream), pinned, model)
    side = _side(asking, place, path, device)
    found = upstream_check.check_models(
        asking.golden, side.names, side.opening, pinned, tolerance or upstream_check.TOLERANCE
    )
    _print(found, golden_table.model_lines, as_json=as_json)
    upstream_check.require_passed(found)


def _place(places: dict[str, Path | None]) -> tuple[str, Path]:
    """Give the one place that was named."""
    given = [(name, path) for name, path in places.items() if path is not None]
    if len(given) != 1:
        raise click.UsageError(f"name one of {', '.join(places)}")
    return given[0]


def _refuse_given(options: dict[str, object], goes_with: str) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise click.UsageError(f"{', '.join(given)} goes with {goes_with}")


def _subjects(place: str, path: Path, model: str | None) -> "list[Subject]":
    """Name the bundles whose own golden answers are asked."""
    from vela.graphs import bundle as bundles
    from vela.serve import golden_asking, registry

    if place in ("--checkpoint", "--checkpoints"):
        raise click.UsageError(f"{place} goes with --upstream: a checkpoint has no golden answers of its own")
    if place == "--store":
        return golden_asking.subjects_from_sources(registry.sources_from_store(path, [model] if model else []))
    _refuse_given({"--model": model}, "--store or --upstream: a bundle holds one model")
    opened = bundles.Bundle.open(path)
    return [(opened.manifest.model.name, lambda: opened)]


def _check_own(subjects: "list[Subject]", device: str, profile: Profile, *, as_json: bool) -> None:
    from vela.serve import golden_asking
    from vela.serve.deployment import Deployment
    from vela.serve.device import Device
    from vela.verify import golden_table

    found = golden_asking.check_models(subjects, Deployment(Device.parse(device), profile))
    _print(found, golden_table.graph_lines, as_json=as_json)
    golden_asking.require_matched(found)


def _side(asking: "Asking", place: str, path: Path, device: str) -> "Side":
    """Say who answers the inputs of upstream's file."""
    from vela.serve.device import Device

    where = Device.parse(device)
    if place == "--store":
        return asking.of_store(path, where)
    if place in ("BUNDLE", "--bundle"):
        return asking.of_bundle(path, where)
    _refuse_given({f"--device {where}": str(where) != "cpu"}, "bundles: a checkpoint answers on the CPU")
    from vela.export import parity_side

    load = parity_side.answering
    return asking.of_checkpoint(path, load) if place == "--checkpoint" else asking.of_checkpoints(path, load)


def _print(
    found: Sequence[Result], lines: Callable[[Sequence[Result]], Iterator[tuple[str, str]]], *, as_json: bool
) -> None:
    if as_json:
        for one in found:
            click.echo(msgspec.json.encode(one))
        return
    for line, verdict in lines(found):
        click.echo(click.style(line, fg=COLOURS.get(verdict)))


def _say(message: str) -> None:
    click.echo(message, err=True)
