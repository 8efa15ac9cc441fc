"""`vela latency`: how two live systems compare in time, with their answers under load held against those alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from vela.scripts import finite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from vela.verify.latency import record
    from vela.verify.latency import rounds as turns

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
OUT = click.Path(path_type=Path, dir_okay=False)
COLOURS = {"passed": "green", "failed": "red", "not_compared": "yellow"}
MIN_ROUNDS = 3  # as in verify/latency/intervals.py, which is not loaded for a page of help


class Concurrency(click.ParamType[tuple[int, ...]]):
    """Numbers of callers, one alone first."""

    name = "N,N,…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Read them."""
        try:
            found = tuple(int(part) for part in str(value).split(","))
        except ValueError:
            found = ()
        if not found or found[0] != 1 or len(set(found)) < len(found) or not all(1 <= one <= 1024 for one in found):
            self.fail(f"{value!r} is no list of callers such as 1,4,16, with one alone first", param, ctx)
        return found


def measuring_options(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add what `run` and `rounds` share."""
    options = (
        click.option("--out", type=OUT, required=True, help="Write the record to this file."),
        click.option(
            "--concurrency",
            type=Concurrency(),
            default="1,4,16",
            show_default=True,
            help="Closed-loop callers of each phase; the first is one alone.",
        ),
        click.option(
            "--answer-tolerance",
            default=0.0,
            show_default=True,
            type=finite.FiniteRange(0),
            help="How far a number under load may be from the one alone; the profile batching needs 1e-4.",
        ),
        click.option(
            "--timeout",
            "timeout_s",
            default=120.0,
            show_default=True,
            type=finite.FiniteRange(0, min_open=True),
            help="Seconds after which a request has failed.",
        ),
        click.option("--api-key-file", type=FILE, help="Send this file's first line as a bearer token."),
        click.option("--json", "as_json", is_flag=True, help="Print the record as JSON."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group()
def command() -> None:
    """Measure how long live systems take for equal requests, and compare them."""


@command.command()
@click.argument("out", type=OUT, metavar="OUT.jsonl")
@click.option("--texts", default=400, show_default=True, type=click.IntRange(1, 100_000), help="Requests to make.")
@click.option("--model", default="", help="Named in each request; servers of one model need none.")
@click.option(
    "--kind",
    type=click.Choice(["classify", "embed", "rerank", "grounded"]),
    default="classify",
    show_default=True,
    help="What is asked.",
)
@click.option(
    "--corpus", type=FILE, help='Your own traffic, JSON lines of {"id", "text"}, asked as it is in place of ours.'
)
def corpus(
    *,
    out: Path,
    texts: int,
    model: str,
    kind: Literal["classify", "embed", "rerank", "grounded"],
    corpus: Path | None,
) -> None:
    """Write requests to replay, with lengths as real traffic has them; equal options write equal requests."""
    from vela.verify.latency import making

    made = making.make_corpus(making.Wanted(kind, texts, model, corpus))
    made.write(out)
    click.echo(f"{out}: {made.made}, digest {made.sha256}")


@command.command()
@click.argument("corpus_file", type=FILE, metavar="CORPUS")
@click.option("--url", required=True, help="Where the server answers, such as http://127.0.0.1:8080.")
@click.option("--options", default="{}", help="JSON object, merged into each request's options.")
@measuring_options
def run(
    *,
    corpus_file: Path,
    url: str,
    options: str,
    out: Path,
    concurrency: tuple[int, ...],
    answer_tolerance: float,
    timeout_s: float,
    api_key_file: Path | None,
    as_json: bool,
) -> None:
    """Measure one running server: alone, and under load.

    Exit code 0: everything was answered, and under load as alone. 1: a request failed, the server restarted, or an
    answer under load is another one. 3: nothing was answered.
    """
    from vela.verify.latency import corpus, judging, measuring, record, record_file, side, subject, table

    corpus.require_folder(out)
    (asked,) = side.Asked.from_texts([f"server={url}"], [f"server={options}"])
    found = measuring.measure_run(
        asked.running(_headers(api_key_file)),
        corpus.Corpus.from_file(corpus_file),
        subject.Method(concurrency, timeout_s=timeout_s),
        record.Limits(answers=answer_tolerance),
        _surroundings(),
    )
    record_file.write(found, out)
    _print(found, table.run_table(found), as_json=as_json)
    judging.require_passed(found.verdict, found.reasons)


@command.command()
@click.argument("corpus_file", type=FILE, metavar="CORPUS")
@click.option(
    "--side",
    "sides",
    multiple=True,
    required=True,
    metavar="NAME=URL|'NAME=COMMAND'",
    help="A running server, or a command that serves on {port}; the first is what the others are compared with.",
)
@click.option("--options", multiple=True, metavar="NAME=JSON", help="Merged into the options of that side's requests.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(MIN_ROUNDS, 1000), help="That must count.")
@click.option(
    "--tolerance",
    default=0.0,
    show_default=True,
    type=finite.FiniteRange(0),
    help="How much slower than the first side another may be: 0.02 is 2 %.",
)
@click.option("--same-answers", is_flag=True, help="Sides must answer alike, within --answer-tolerance.")
@click.option(
    "--max-load",
    type=finite.FiniteRange(0),
    help="Load that others may make while a round counts; the number of cores by default.",
)
@click.option(
    "--patience",
    "patience_s",
    default=120.0,
    show_default=True,
    type=finite.FiniteRange(0),
    help="Seconds to wait for others to be done before a round is given up.",
)
@click.option("--html", type=OUT, help="Write a page with plots to this file.")
@measuring_options
def rounds(
    *,
    corpus_file: Path,
    sides: tuple[str, ...],
    options: tuple[str, ...],
    rounds: int,
    tolerance: float,
    same_answers: bool,
    max_load: float | None,
    patience_s: float,
    html: Path | None,
    out: Path,
    concurrency: tuple[int, ...],
    answer_tolerance: float,
    timeout_s: float,
    api_key_file: Path | None,
    as_json: bool,
) -> None:
    """Measure several servers in turns, and say whether one is slower than the first.

    Exit code 0: none is, beyond noise. 1: one is, or a request failed, a server restarted, or an answer differs. 3:
    too few rounds count to say.
    """
    from vela.verify.latency import (
        corpus,
        judging,
        machine,
        measuring,
        record,
        record_file,
        side,
        starting,
        subject,
        table,
    )
    from vela.verify.latency import rounds as turns

    # Before anything is measured: what would be found out after minutes.
    for path in (out, html or out):
        corpus.require_folder(path)
    if html is not None:
        from vela.verify.latency import page
    named = side.Asked.from_texts(sides, options)
    if len(named) < 2:
        raise click.UsageError("give --side at least twice: there is nothing to compare one with")
    requests = corpus.Corpus.from_file(corpus_file)
    limit = float(machine.core_count()) if max_load is None else max_load
    with starting.started(named, _headers(api_key_file)) as running:
        found = measuring.measure_rounds(
            running,
            requests,
            subject.Method(concurrency, timeout_s=timeout_s),
            record.Limits(tolerance, answer_tolerance, same_answers, limit),
            schedule=turns.Schedule(rounds, limit, patience_s),
            surroundings=_surroundings(),
        )
    record_file.write(found, out)
    if html is not None:
        page.write(html, found)
    _print(found, table.rounds_table(found), as_json=as_json)
    judging.require_passed(found.verdict, found.reasons)


@command.command()
@click.argument("first", type=FILE, metavar="A.json")
@click.argument("second", type=FILE, metavar="B.json")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def compare(*, first: Path, second: Path, as_json: bool) -> None:
    """Put two records of equal requests side by side; nothing is judged, so that the exit code is 0.

    Exit code 1: the records were asked other requests, or are none. 3: they have no figure in common.
    """
    import msgspec

    from vela.verify.latency import comparing, record_file

    found = comparing.compare(record_file.from_file(first), record_file.from_file(second))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
        return
    for line in comparing.comparison_table(found):
        click.echo(line)


def _print(found: "record.Record", lines: "Iterable[tuple[str, str]]", *, as_json: bool) -> None:
    from vela.verify.latency import record_file

    if as_json:
        click.echo(record_file.encode(found), nl=False)
        return
    for line, verdict in lines:
        click.echo(click.style(line, fg=COLOURS.get(verdict)))


def _surroundings() -> "turns.Surroundings":
    from vela.verify.latency import load
    from vela.verify.latency import rounds as turns

    return turns.Surroundings(load.Meter.of_this_machine(), report=lambda line: click.echo(line, err=True))


def _headers(api_key_file: Path | None) -> tuple[tuple[str, str], ...]:
    if api_key_file is None:
        return ()
    key = api_key_file.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
    if not key or not key.isascii() or not key.isprintable():
        raise click.UsageError(f"{api_key_file}: no key of printable ASCII in its first line")
    return (("authorization", f"Bearer {key}"),)
