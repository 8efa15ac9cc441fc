"""`vela export`: a checkpoint in, an unverified bundle out."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vela.graphs import ladder

if TYPE_CHECKING:
    from vela.export.specialise import Form
    from vela.graphs.contract import Precision

FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.option("--model", "name", help="Name to serve it under; a pinned name also checks every file's digest.")
@click.option("--checkpoint", type=FOLDER, help="Checkpoint folder; a pinned model is else taken from the Hub's cache.")
@click.option("--out", type=FOLDER, required=True, help="Bundle folder to make.")
@click.option(
    "--buckets",
    default=",".join(map(str, ladder.DEFAULT_BUCKETS)),
    show_default=True,
    help="Token lengths of the fixed graphs, separated by commas; `vela plan-buckets` plans them.",
)
@click.option(
    "--batch",
    "batches",
    default=",".join(map(str, ladder.DEFAULT_BATCHES)),
    show_default=True,
    help="Batch sizes of the fixed graphs.",
)
@click.option(
    "--for",
    "forms",
    default="cpu,portable",
    show_default=True,
    help="Engines, separated by commas: cpu (dynamic graphs), portable (AMD and any other) and cuda (one per bucket).",
)
@click.option(
    "--weights",
    type=click.Choice(["reference", "embedded"]),
    default="reference",
    show_default=True,
    help="Refer to the checkpoint's weights, or hold a copy in every graph.",
)
@click.option(
    "--reduced",
    default="",
    help="Copies of the fixed graphs that compute in 16 bits: fp16, bf16 or both, for the profile max_speed.",
)
@click.option("--allow-key", "allowed_keys", multiple=True, help="Vouch for an unknown key of config.json; repeatable.")
def command(
    name: str | None,
    checkpoint: Path | None,
    out: Path,
    buckets: str,
    batches: str,
    forms: str,
    weights: str,
    reduced: str,
    allowed_keys: tuple[str, ...],
) -> None:
    """Export a checkpoint to ONNX graphs beside its weights."""
    from vela.export import bundle_writer, sources, trace
    from vela.verify import checkpoint as checkpoints

    if reduced and set(forms.split(",")) == {"cpu"}:
        raise click.UsageError("--reduced copies fixed graphs, of which --for cpu has none: add cuda or portable")
    found = sources.find_checkpoint(name, checkpoint)
    plan = bundle_writer.ExportPlan(
        name=found.name,
        buckets=_numbers(buckets, "--buckets"),
        batches=_numbers(batches, "--batch"),
        forms=_forms(forms),
        storage="embedded" if weights == "embedded" else "reference",
        reduced=_reduced(reduced),
        repository=found.repository,
        revision=found.revision,
        model_sha256=found.model_sha256,
    )
    source = checkpoints.Checkpoint.read(found.folder, allowed_keys=allowed_keys)
    opened = bundle_writer.export_bundle(
        source, out, plan, trace.TraceCache(), lambda message: click.echo(message, err=True)
    )
    graphs = opened.manifest.graphs
    click.echo(f"exported {plan.name}: {len(graphs)} graphs, {sum(graph.size_bytes for graph in graphs):,} bytes")
    click.echo(f"  bundle    {out}")
    click.echo(f"  manifest  sha256 {opened.manifest_sha256}")
    click.echo(f"  next      vela verify-graph {out} --checkpoint {found.folder}")


def _forms(text: str) -> "tuple[Form, ...]":
    from vela.export import specialise

    wanted = set(text.split(","))
    if not wanted <= set(specialise.FORMS):
        raise click.BadParameter(f"{text!r}; there are {', '.join(specialise.FORMS)}", param_hint="--for")
    return tuple(form for form in specialise.FORMS if form in wanted)


def _reduced(text: str) -> "tuple[Precision, ...]":
    from vela.verify.static.reduction import TYPES

    wanted = set(filter(None, text.split(",")))
    if not wanted <= set(TYPES):
        raise click.BadParameter(f"{text!r}; there are {', '.join(TYPES)}", param_hint="--reduced")
    return tuple(precision for precision in TYPES if precision in wanted)


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError as cause:
        raise click.BadParameter(f"{text!r} is no list of numbers", param_hint=option) from cause
