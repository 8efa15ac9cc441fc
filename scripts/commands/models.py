"""`vela models`: the pinned models, what each one is, and whether Vela exports it."""

import click
import msgspec

from vela.graphs import model_table

HEADINGS: tuple[str, ...] = ("NAME", "ANSWER", "INPUT", "PARAMETERS", "MAX TOKENS", "REVISION", "SUPPORTED")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the whole table, digests of files included, as JSON.")
def command(*, as_json: bool) -> None:
    """List the pinned models, by the names that `vela export --model` takes."""
    table = model_table.load_table()
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(table), indent=1))
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
