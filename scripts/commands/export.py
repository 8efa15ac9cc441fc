"""`vela export`: a checkpoint in, an unverified bundle out."""

from pathlib import Path

import click

from vela.scripts import graph_options

FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command()
@click.option("--model", "name", help="Name to serve it under; a pinned name also checks every file's digest.")
@click.option(
    "--checkpoint", type=FOLDER, help="Checkpoint folder; a pinned model is else taken from the Hub, or its cache."
)
@click.option("--table", type=FILE, help="Another table of pinned models, such as that of `vela sample --family`.")
@click.option("--out", type=FOLDER, required=True, help="Bundle folder to make.")
@graph_options.options
@click.option("--allow-key", "allowed_keys", multiple=True, help="Vouch for an unknown key of config.json; repeatable.")
def command(
    name: str | None,
    checkpoint: Path | None,
    table: Path | None,
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
    from vela.graphs import model_table
    from vela.verify import checkpoint as checkpoints

    def say(message: str) -> None:
        click.echo(message, err=True)

    shapes = graph_options.read(buckets, batches, forms, weights, reduced)
    pins = model_table.read_table(table) if table else model_table.load_table()
    found = sources.find_checkpoint(name, checkpoint, pins, progress=say)
    plan = shapes.plan(found)
    source = checkpoints.Checkpoint.read(found.folder, allowed_keys=allowed_keys, table=pins)
    opened = bundle_writer.export_bundle(source, out, plan, trace.TraceCache(), say)
    graphs = opened.manifest.graphs
    click.echo(f"exported {plan.name}: {len(graphs)} graphs, {sum(graph.size_bytes for graph in graphs):,} bytes")
    click.echo(f"  bundle    {out}")
    click.echo(f"  manifest  sha256 {opened.manifest_sha256}")
    click.echo(f"  next      vela verify-graph {out} --checkpoint {found.folder}")
