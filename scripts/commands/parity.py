"""`vela parity`: do two live systems answer alike? `compare` judges what was recorded; nothing is run."""

from pathlib import Path
from typing import Literal

import click

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
COLOURS = {"passed": "green", "failed": "red", "not_compared": "yellow"}


@click.group()
def command() -> None:
    """Compare two live systems by their recorded answers to the same inputs."""


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
