"""`vela plan-buckets`: observed request lengths in, the cheapest ladder of fixed graphs out."""

import json
from pathlib import Path
from typing import Any

import click

from vela.graphs import costs, ladder, lengths

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
HEADINGS = ("TOKENS", "REQUESTS", "SHARE", "PADDED/REAL")


@click.command()
@click.option("--lengths", "lengths_file", type=FILE, required=True, help="One length in tokens, or one count, a line.")
@click.option(
    "--buckets",
    "bucket_count",
    type=click.IntRange(1),
    default=len(ladder.DEFAULT_BUCKETS),
    show_default=True,
    help="At most so many fixed graphs.",
)
@click.option("--costs", "costs_file", type=FILE, help="Measured costs, as scripts/bench/costs.py writes them.")
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Checkpoint or bundle to reckon costs for where none were measured; by default the 307M shape.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(ladder.SHORTEST_BUCKET),
    help="Last bucket, whether or not a request was so long; by default the longest request decides.",
)
@click.option(
    "--granularity",
    type=click.IntRange(ladder.SHORTEST_BUCKET),
    default=ladder.GRANULARITY,
    show_default=True,
    help="Every bucket but the last is a multiple of this.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    lengths_file: Path,
    bucket_count: int,
    costs_file: Path | None,
    checkpoint: Path | None,
    max_tokens: int | None,
    granularity: int,
    *,
    as_json: bool,
) -> None:
    """Plan the fixed graphs that cost least for the lengths in a file.

    Each line of the file is a length in tokens, or {"tokens": n, "count": c}. Special tokens count.
    """
    if costs_file and checkpoint:
        raise click.UsageError("--costs and --checkpoint both say what a run costs; give one.")
    run_costs = costs.read_costs(costs_file) if costs_file else _reckoned(checkpoint)
    rule = ladder.Rule(bucket_count, max_tokens, granularity)
    plan = ladder.plan_buckets(lengths.Lengths.from_file(lengths_file), run_costs, rule)
    facts = _facts(plan, run_costs.origin)
    click.echo(json.dumps(facts, indent=1) if as_json else "\n".join(_lines(facts)))


def _reckoned(checkpoint: Path | None) -> costs.ModelCosts:
    if checkpoint is None:
        return costs.ModelCosts()
    from vela.graphs import task
    from vela.verify import architecture

    config = task.read_json(checkpoint / "config.json")
    return architecture.read_architecture(config, allowed_keys=config).run_costs  # an unknown key changes no size


def _facts(plan: ladder.Plan, origin: str) -> dict[str, Any]:
    chosen = plan.chosen
    requests = sum(chosen.requests)
    return {
        "ladder": chosen.ladder,
        "buckets": [
            {"tokens": tokens, "requests": count, "share": count / requests, "padded_per_real": padding}
            for tokens, count, padding in zip(chosen.ladder, chosen.requests, chosen.padding, strict=True)
        ],
        "requests": requests,
        "requests_above": plan.above,
        "padded_per_real": chosen.total_padding,
        "costs": origin,
        "default_ladder": plan.default.ladder,
        "cost_to_default": chosen.cost / plan.default.cost,
        "cost_to_single": chosen.cost / plan.single.cost,
        "export": f"vela export --buckets {','.join(map(str, chosen.ladder))}",
    }


def _lines(facts: dict[str, Any]) -> list[str]:
    last = facts["ladder"][-1]
    rows = [HEADINGS, *(_row(f"{bucket['tokens']:,}", bucket) for bucket in facts["buckets"])]
    rows.append(_row("all", facts | {"share": 1.0}))
    lines = ["".join(cell.rjust(len(HEADINGS[-1]) + 2) for cell in row) for row in rows]
    if facts["requests_above"]:
        total = facts["requests"] + facts["requests_above"]
        lines.append(
            f"above {last:,} tokens: {facts['requests_above']:,} of {total:,} requests, in no bucket or figure"
        )
    default = ",".join(map(str, facts["default_ladder"]))
    lines.append(f"cost: {facts['cost_to_default']:.1%} of the default ladder's ({default})")
    lines.append(f"      {facts['cost_to_single']:.1%} of one bucket of {last:,} tokens")
    lines.append(f"      {facts['costs']}")
    return [*lines, facts["export"]]


def _row(name: str, part: dict[str, Any]) -> tuple[str, ...]:
    return (name, f"{part['requests']:,}", f"{part['share']:.1%}", f"{part['padded_per_real']:.2f}")
