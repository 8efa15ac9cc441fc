"""`vela verify-graph`: the release gate."""

from pathlib import Path

import click

FOLDER = click.Path(path_type=Path, file_okay=False)
COLOURS = {"passed": "green", "failed": "red", "not_compared": "yellow"}


@click.command()
@click.argument("bundle", type=FOLDER)
@click.option("--checkpoint", type=FOLDER, help="The reference checkpoint, apart from the bundle.")
@click.option("--device", default="cpu", show_default=True, help="Where graphs run.")
@click.option(
    "--bar",
    type=click.Choice(["strict", "upstream", "cpu", "gpu"]),
    default="strict",
    show_default=True,
    help="Bounds that decide; upstream's are stated beside them.",
)
@click.option("--max-tokens", default=2048, show_default=True, type=click.IntRange(2), help="Longest dynamic case.")
@click.option("--corpus", type=click.Path(path_type=Path, dir_okay=False), help="Your own texts, judged as well.")
@click.option("--graph", "graphs", multiple=True, help="Judge this graph only; repeatable.")
@click.option("--threads", type=click.IntRange(1), help="Threads of a forward; all cores of this process by default.")
@click.option("--budget", type=click.FloatRange(0, min_open=True), help="Minutes that it may take; see docs/verify.md.")
@click.option("--fresh", is_flag=True, help="Start anew where an earlier run of this was interrupted.")
@click.option("--rejudge", is_flag=True, help="Judge stored records under --bar; run and write nothing.")
@click.option("--fail-fast", is_flag=True, help="Skip inference on a graph whose static checks failed.")
@click.option("--allow-key", "allowed_keys", multiple=True, help="Vouch for an unknown key of config.json; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print the records as JSON lines.")
def command(
    bundle: Path,
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
    fail_fast: bool,
    allowed_keys: tuple[str, ...],
    as_json: bool,
) -> None:
    """Judge every graph of BUNDLE against its checkpoint.

    Exit code 0: all passed. 1: one failed; the cause is printed. 3: nothing could be compared, such as for want of a
    reference; that is never a pass.
    """
    from vela.export import verification
    from vela.graphs import bundle as bundles
    from vela.serve import engine
    from vela.serve.device import Device
    from vela.verify import rejudge as rejudging
    from vela.verify import table, verdict
    from vela.verify.options import GateOptions

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
    )
    if rejudge:
        records = rejudging.rejudge_bundle(bundles.Bundle.open(bundle), bar, device, graphs)
    else:
        records = verification.verify_folder(
            bundle, checkpoint, options, lambda message: click.echo(message, err=True), allowed_keys
        )
    if as_json:
        for found in records:
            click.echo(table.as_json_line(found))
    else:
        for line, colour in table.verdict_table(bundle.name, records):
            click.echo(click.style(line, fg=COLOURS.get(colour)))
    verdict.require_passed(records)
