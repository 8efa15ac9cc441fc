"""`vela sample`: the family made small, so that the whole pipeline runs anywhere."""

from pathlib import Path

import click


@click.command()
@click.option(
    "--family", "out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder to make."
)
def command(out: Path) -> None:
    """Write the twelve models of the family as stand-ins: real names, labels and forms, drawn weights."""
    from vela.export.standins import family
    from vela.graphs import model_table

    table = family.write_family(out, lambda message: click.echo(message, err=True))
    click.echo(f"wrote {len(table.models)} stand-ins and their table to {out}")
    click.echo(f"  next      vela release --table {out / model_table.TABLE_FILE} --checkpoints {out} --store STORE")
