"""`vela serve`: answer requests from a store."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from vela.scripts import finite
from vela.serve.policy import Profile

if TYPE_CHECKING:
    from vela.serve.compiling import Compiling


@click.command()
@click.option(
    "--store",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Store that `vela publish` wrote.",
)
@click.option("--models", default="", help="Names to serve, separated by commas; all of the store by default.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML file of deployments: each model's device, input and window; instead of --models, --device, --profile.",
)
@click.option("--device", default="cpu", show_default=True, help="Where graphs run: cpu, migraphx:N, rocm:N, cuda:N.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free port.")
@click.option("--uds", type=click.Path(path_type=Path), help="Listen on this Unix socket instead.")
@click.option("--threads", type=click.IntRange(1), help="Threads of a forward; all cores of this process by default.")
@click.option(
    "--profile",
    type=click.Choice(get_args(Profile)),
    default="exact",
    show_default=True,
    help="What requests may ask for besides exact: batching (waiting rows of several lengths share runs, padded), or "
    "max_speed (16-bit copies where they were proven faster).",
)
@click.option(
    "--memory-budget",
    "memory_gb",
    type=float,
    help="GB that weights may take on a GPU, in equal parts for all models; all graphs are loaded by default.",
)
@click.option("--accept-unverified-engine", is_flag=True, help="Serve graphs that were proven on the CPU only.")
@click.option(
    "--require-signed",
    "public_key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Serve only bundles that this ed25519 public key (PEM) signed.",
)
@click.option(
    "--api-key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Answer /v1 only to callers that send this file's first line as a bearer token.",
)
@click.option(
    "--reload",
    "reload_s",
    default=5.0,
    show_default=True,
    type=finite.FiniteRange(0),
    help="Seconds between looks at the store for newer bundles; 0 for never.",
)
@click.option(
    "--log-format", default="text", show_default=True, type=click.Choice(["text", "json"]), help="Of the log."
)
@click.option("--access-log", is_flag=True, help="Log each request: its id, status and timing, none of its text.")
@click.option(
    "--compile-cache",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for compiled programs, of this user alone; for devices that compile (migraphx).",
)
@click.option("--require-compiled", is_flag=True, help="Refuse a start that would compile; see `vela compile`.")
@click.option("--check", is_flag=True, help="Say what would be loaded and where, or what is wrong; load nothing.")
@click.option("--rehearse", is_flag=True, help="Load everything, run each graph once, and stop.")
def command(
    *,
    store: Path,
    models: str,
    config: Path | None,
    device: str,
    host: str,
    port: int,
    uds: Path | None,
    threads: int | None,
    profile: Profile,
    memory_gb: float | None,
    accept_unverified_engine: bool,
    public_key: Path | None,
    api_key_file: Path | None,
    reload_s: float,
    log_format: str,
    access_log: bool,
    compile_cache: Path | None,
    require_compiled: bool,
    check: bool,
    rehearse: bool,
) -> None:
    """Serve the proven models of a store over HTTP."""
    from vela.serve import engine, memory, providers, registry
    from vela.serve.deployment import Config, Deployment
    from vela.serve.device import Device
    from vela.serve.http import server
    from vela.serve.http.service import Settings

    _set_up_logging(log_format, access_log=access_log)
    if config is not None and (models or profile != "exact" or device != "cpu" or memory_gb is not None):
        others = "--models, --device, --profile and --memory-budget"
        raise click.UsageError(f"--config says what {others} say: give one or the other")
    deployments: Mapping[str, Deployment] = Config.read(config).deployments if config else {}
    asked = Device.parse(device)
    if not check:
        for one in {deployment.device for deployment in deployments.values()} or {asked}:
            providers.require_provider(one)  # once, and not for each model
    names = list(deployments) or [name for name in models.split(",") if name]
    plan = registry.Plan(
        registry.sources_from_store(store, names, deployments),
        asked,
        "any_engine" if accept_unverified_engine else "this_engine",
        engine.SessionOptions(threads=threads) if threads else None,
        public_key,
        profile,
        _compiling(compile_cache, require_compiled=require_compiled),
        None if memory_gb is None else memory.to_bytes(memory_gb, "--memory-budget"),
    )

    settings = Settings(api_key=_read_key(api_key_file) if api_key_file else None)

    def announce(line: str) -> None:
        click.echo(line, err=True)

    if check:
        status = server.check(plan, announce)
    elif rehearse:
        status = server.rehearse(plan, announce)
    else:
        status = server.serve(plan, server.Address(host, port, uds), settings, announce, reload_s=reload_s)
    raise SystemExit(status)


def _compiling(folder: Path | None, *, require_compiled: bool) -> "Compiling | None":
    from vela.serve.compile_cache import CompileCache
    from vela.serve.compiling import Compiling

    if folder is None and require_compiled:
        raise click.UsageError("--require-compiled needs --compile-cache: where else would programs be?")
    return None if folder is None else Compiling(CompileCache(folder), require_compiled)


def _set_up_logging(log_format: str, *, access_log: bool) -> None:
    import logging

    from vela.serve.http.access import JsonFormatter
    from vela.serve.http.access import logger as accesses

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if log_format == "json":
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonFormatter())
    if access_log:
        accesses.setLevel(logging.INFO)


def _read_key(path: Path) -> str:
    from vela.graphs import errors

    key = path.read_text(encoding="utf-8").partition("\n")[0].strip()
    if not key or not key.isascii() or not key.isprintable():
        raise errors.InvalidRequest(
            "a first line with other characters" if key else "an empty first line",
            expected="a key of printable ASCII, which every client sends alike",
            where=str(path),
            fix="Write the key into the file's first line.",
        )
    return key
