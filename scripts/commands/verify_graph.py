"""`vela verify-graph`: the release gate."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vela.graphs import contract
from vela.scripts import finite

if TYPE_CHECKING:
    from vela.graphs import bundle as bundles
    from vela.graphs import record
    from vela.verify.report import reading

FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)
REPORT = f"{contract.RECORDS_FOLDER}/{contract.REPORT_FILE}"
COLOURS = {"passed": "green", "failed": "red", "not_compared": "yellow"}


@click.command()
@click.argument("subject", metavar="BUNDLE|GRAPH.onnx", type=click.Path(path_type=Path))
@click.option("--checkpoint", type=FOLDER, help="The reference checkpoint, apart from the bundle.")
@click.option("--device", default="cpu", show_default=True, help="Where graphs run.")
@click.option(
    "--bar",
    type=click.Choice(["auto", "strict", "upstream", "cpu", "gpu", "reduced"]),
    default="auto",
    show_default=True,
    help="Bounds that decide: strict for FP32 weights, reduced for rounded ones. Upstream's are stated beside them.",
)
@click.option("--max-tokens", default=2048, show_default=True, type=click.IntRange(2), help="Longest dynamic case.")
@click.option("--corpus", type=FILE, help="Your own texts, judged as well.")
@click.option(
    "--graph",
    "graphs",
    multiple=True,
    help="Judge this graph only; repeatable. By default all, and on a GPU those that it would serve.",
)
@click.option("--threads", type=click.IntRange(1), help="Threads of a forward; all cores of this process by default.")
@click.option(
    "--budget", type=finite.FiniteRange(0, min_open=True), help="Minutes that it may take; see docs/verify.md."
)
@click.option("--fresh", is_flag=True, help="Start anew where an earlier run of this was interrupted.")
@click.option("--rejudge", is_flag=True, help="Judge stored records under --bar; run and write nothing.")
@click.option("--out", type=FOLDER, help="Write the record of a graph file here; without it none is written.")
@click.option("--fail-fast", is_flag=True, help="Skip inference on a graph whose static checks failed.")
@click.option("--table", type=FILE, help="Another table of pinned models, such as that of `vela sample --family`.")
@click.option("--allow-key", "allowed_keys", multiple=True, help="Vouch for an unknown key of config.json; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print the records as JSON lines.")
@click.option(
    "--html", type=FILE, help="Where the HTML report goes; BUNDLE/verification/report.html, and for a file none."
)
@click.option("--no-html", is_flag=True, help="Write no HTML report.")
@click.option("--junit", type=FILE, help="Write the checks as JUnit XML, for whatever shows a build's tests.")
@click.option(
    "--sign-key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Sign the statement that a bundle gets when all its graphs passed, with this ed25519 key (PEM).",
)
def command(
    subject: Path,
    checkpoint: Path | None,
    device: str,
    bar: str,
    max_tokens: int,
    corpus: Path | None,
    graphs: tuple[str, ...],
    threads: int | None,
    budget: float | None,
    fresh: bool,
    rejudge: bool,
    out: Path | None,
    fail_fast: bool,
    table: Path | None,
    allowed_keys: tuple[str, ...],
    as_json: bool,
    html: Path | None,
    no_html: bool,
    junit: Path | None,
    sign_key: Path | None,
) -> None:
    """Judge every graph of BUNDLE, or a single ONNX file of any exporter, against its checkpoint.

    Exit code 0: all passed. 1: one failed; the cause is printed. 3: nothing could be compared, such as for want of a
    reference; that is never a pass.
    """
    from vela.export import verification
    from vela.graphs import bundle as bundles
    from vela.graphs import model_table, signing
    from vela.serve import engine
    from vela.serve.device import Device
    from vela.verify import junit as junits
    from vela.verify import rejudge as rejudging
    from vela.verify import verdict
    from vela.verify.options import GateOptions
    from vela.verify.report import reading

    is_file = subject.is_file() or (subject.suffix == ".onnx" and not subject.is_dir())
    of_bundles = {"--graph": graphs, "--fresh": fresh, "--rejudge": rejudge, "--sign-key": sign_key}
    _refuse_of_other_kind(of_bundles, {"--out": out}, is_file=is_file)
    if rejudge and sign_key is not None:
        raise click.UsageError("--rejudge writes nothing, so there is nothing to sign")
    if sign_key is not None:
        signing.require_usable(sign_key)
    if no_html and html is not None:
        raise click.UsageError("--html and --no-html contradict each other")
    options = GateOptions(
        device=Device.parse(device),
        bar=bar,
        max_tokens=max_tokens,
        corpus=corpus,
        budget_s=None if budget is None else 60 * budget,
        is_fresh=fresh,
        session=engine.SessionOptions(threads=threads) if threads else engine.SessionOptions(),
        graph_ids=graphs,
        is_fail_fast=fail_fast,
        table=model_table.read_table(table) if table else model_table.load_table(),
    )
    if rejudge:
        records = rejudging.rejudge_bundle(bundles.Bundle.open(subject), bar, device, graphs)
    elif is_file:
        records = verification.verify_graph_file(subject, checkpoint, options, _say, allowed_keys, out)
    else:
        records = verification.verify_folder(subject, checkpoint, options, _say, allowed_keys)
    _print(subject.name, records, as_json=as_json)
    if (rejudge or is_file) and html is not None:
        _write_report(html, reading.Collected(subject.name, tuple(records)))
    elif not rejudge and not is_file and not no_html:
        _write_report(html or subject / REPORT, reading.Collected.from_bundle(subject))
    if junit is not None:
        junits.write(junit, subject.name, records)
    if not rejudge and not is_file:
        _attest(bundles.Bundle.open(subject), sign_key)
    verdict.require_passed(records)


def _print(name: str, records: "Sequence[record.Record]", *, as_json: bool) -> None:
    from vela.verify import table

    if as_json:
        for found in records:
            click.echo(table.as_json_line(found))
        return
    for line, colour in table.verdict_table(name, records):
        click.echo(click.style(line, fg=COLOURS.get(colour)))


def _say(message: str) -> None:
    click.echo(message, err=True)


def _attest(opened: "bundles.Bundle", sign_key: Path | None) -> None:
    """State that a bundle passed, as far as it can be published; take back what was stated before where it cannot."""
    from vela.graphs import attestation, errors

    try:
        target = attestation.write(opened, sign_key)
    except errors.BundleError as cause:
        attestation.remove(opened)
        if sign_key is not None:
            click.echo(f"no statement, so nothing was signed: {cause}", err=True)
    else:
        click.echo(f"statement: {target}{' (signed)' if sign_key else ''}", err=True)


def _refuse_of_other_kind(of_bundles: Mapping[str, object], of_files: Mapping[str, object], *, is_file: bool) -> None:
    """Refuse options that mean nothing for what is judged."""
    given = [name for name, value in (of_bundles if is_file else of_files).items() if value]
    if given:
        kinds = ("a bundle", "a graph file") if is_file else ("a graph file", "a bundle")
        raise click.UsageError(f"{given[0]} is for {kinds[0]}, and this is {kinds[1]}.")


def _write_report(target: Path, collected: "reading.Collected") -> None:
    from vela.verify.report import page

    page.write(target, collected)
    click.echo(f"report: {target}", err=True)
