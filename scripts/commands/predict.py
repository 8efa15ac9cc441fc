"""`vela predict`: answer texts in this process, from a store or a bundle."""

from pathlib import Path

import click

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.option("--store", type=FOLDER, help="Store that `vela publish` wrote.")
@click.option("--bundle", type=FOLDER, help="A bundle that `vela export` wrote.")
@click.option("--model", help="Name of the model in the store.")
@click.option("--device", default="cpu", show_default=True, help="Where graphs run: cpu, migraphx:N, rocm:N, cuda:N.")
@click.option("--text", "texts", multiple=True, help="A text to answer; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each input.")
@click.option("--unverified", is_flag=True, help="Answer from graphs that no passing record vouches for.")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def command(
    *,
    store: Path | None,
    bundle: Path | None,
    model: str | None,
    device: str,
    texts: tuple[str, ...],
    as_json: bool,
    unverified: bool,
    file: Path | None,
) -> None:
    """Answer each --text, or each line of FILE: a JSON string, or an object with the parts of an input."""
    if bool(texts) == (file is not None):
        raise click.UsageError("give texts by --text, or a FILE")

    from vela.serve import answers, inputs, prediction
    from vela.serve.device import Device

    items = list(texts) if file is None else inputs.read_jsonl(file)
    where, demand = Device.parse(device), prediction.demand_of(unverified=unverified)
    if bundle is not None and store is None:
        loaded = prediction.load_from_bundle(bundle, where, demand)
    elif store is not None and model is not None and bundle is None:
        loaded = prediction.load_from_store(store, model, where, demand)
    else:
        raise click.UsageError("name a --bundle, or a --store and the --model in it")
    found = prediction.predict(loaded, items)
    for answer in found:
        lines = [prediction.json_line(answer)] if as_json else prediction.text_lines(loaded, answer)
        click.echo("\n".join(lines))
    raise SystemExit(1 if any(isinstance(answer, answers.FailedAnswer) for answer in found) else 0)
