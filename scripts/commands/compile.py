"""`vela compile`: fill the cache of compiled programs ahead, so that no start waits for a compiler."""

from pathlib import Path
from typing import Literal

import click


@click.command()
@click.option(
    "--store",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Store that `vela publish` wrote.",
)
@click.option("--models", default="", help="Names to compile, separated by commas; all of the store by default.")
@click.option("--device", required=True, help="What to compile for: migraphx:N.")
@click.option(
    "--compile-cache",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for compiled programs, of this user alone; `vela serve` takes the same.",
)
@click.option(
    "--profile",
    type=click.Choice(["exact", "max_speed"]),
    default="exact",
    show_default=True,
    help="What `vela serve` will be started with: max_speed compiles 16-bit copies too.",
)
@click.option("--accept-unverified-engine", is_flag=True, help="Compile graphs that were proven on the CPU only.")
def command(
    *,
    store: Path,
    models: str,
    device: str,
    folder: Path,
    profile: Literal["exact", "max_speed"],
    accept_unverified_engine: bool,
) -> None:
    """Compile the graphs of a store for a device, run them, and keep the programs that give the golden answers."""
    from vela.graphs import errors
    from vela.serve import compiling, providers, registry
    from vela.serve.compile_cache import CompileCache
    from vela.serve.device import Device
    from vela.serve.http import server

    asked = Device.parse(device)
    if asked.kind not in compiling.COMPILED:
        raise errors.ProviderUnavailable(
            f"{asked}, which compiles nothing that could be kept",
            expected=f"one of {', '.join(f'{kind}:N' for kind in sorted(compiling.COMPILED))}",
            where="--device",
            fix="Serve on it without compiling.",
        )
    providers.require_provider(asked)
    plan = registry.Plan(
        registry.sources_from_store(store, [name for name in models.split(",") if name]),
        asked,
        "any_engine" if accept_unverified_engine else "this_engine",
        profile=profile,
        compiling=compiling.Compiling(CompileCache(folder)),
    )
    raise SystemExit(server.rehearse(plan, lambda line: click.echo(line, err=True)))
