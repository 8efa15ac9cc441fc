"""`vela report`: stored records as one HTML page, without running anything."""

from pathlib import Path

import click

PATH = click.Path(path_type=Path, exists=True)


@click.command()
@click.argument("paths", nargs=-1, required=True, type=PATH, metavar="BUNDLE|RECORD...")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write; BUNDLE/verification/report.html by default.",
)
def command(paths: tuple[Path, ...], html: Path | None) -> None:
    """Render a bundle's records, single record files, or a bundle's with records of it that were made elsewhere.

    Nothing is run and nothing is judged again: the exit code is 0 where the page was written, whatever the records
    say.
    """
    from vela.graphs import contract
    from vela.verify.report import page, reading, summary

    folders = [path for path in paths if path.is_dir()]
    files = [path for path in paths if not path.is_dir()]
    if len(folders) > 1:
        raise click.UsageError("a report is about one bundle; render one for each")
    if not folders and html is None:
        raise click.UsageError("say with --html where the report of single records goes")
    collected = reading.Collected.from_bundle(folders[0], files) if folders else reading.Collected.from_files(files)
    target = html or folders[0] / contract.RECORDS_FOLDER / contract.REPORT_FILE
    page.write(target, collected)
    for headline in summary.Summary.from_collected(collected).headlines:
        click.echo(f"{collected.name}: {headline}")
    click.echo(f"report: {target}")
