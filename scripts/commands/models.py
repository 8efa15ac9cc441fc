"""`vela models`: the pinned models, what each one is, and whether Vela exports it."""

from pathlib import Path

import click

from vela.graphs import model_table

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
HEADINGS: tuple[str, ...] = ("NAME", "ANSWER", "INPUT", "PARAMETERS", "MAX TOKENS", "REVISION", "SUPPORTED")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the whole table, digests of files included, as JSON.")
@click.option("--table", "file", type=FILE, help="Another table, such as that of `vela sample --family`.")
def command(*, as_json: bool, file: Path | None) -> None:
    """List the pinned models, by the names that `vela export --model` takes."""
    table = model_table.read_table(file) if file else model_table.load_table()
    if as_json:
        click.echo(model_table.encode_table(table), nl=False)
        return
    rows = [HEADINGS, *map(_row, table.models)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS) - 1)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        click.echo("  ".join([*cells, row[-1]]))


def _row(entry: model_table.ModelEntry) -> tuple[str, ...]:
    return (
        entry.name,
        entry.kind,
        entry.inputs,
        f"{entry.parameters:,}",
        f"{entry.max_tokens:,}",
        entry.revision[:12],
        "yes" if entry.supported else f"not yet: {entry.unsupported}",
    )
