"""`vela inspect`: what is in a bundle or an ONNX file, without running it."""

from pathlib import Path

import click


@click.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(path: Path, as_json: bool) -> None:
    """Say what PATH holds: a bundle folder, or a single .onnx file of any exporter."""
    from vela.verify import inspection

    found = inspection.inspect_bundle(path) if path.is_dir() else inspection.inspect_graph(path)
    click.echo(inspection.as_json(found) if as_json else "\n".join(inspection.as_lines(found)))
