"""`vela publish`: copy a proven bundle into a store, from which servers read it."""

from pathlib import Path

import click

from vela.graphs import attestation, verdicts
from vela.graphs import bundle as bundles
from vela.graphs import store as stores

FOLDER = click.Path(path_type=Path, file_okay=False)
EXISTING_FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)
EXISTING_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command()
@click.argument("bundle", type=EXISTING_FOLDER)
@click.option("--store", type=FOLDER, required=True, help="The store; made if it is not there.")
@click.option(
    "--add-record",
    "records",
    type=EXISTING_FILE,
    multiple=True,
    help="A record of this bundle that was made elsewhere, such as on a machine with an AMD GPU; repeatable.",
)
@click.option("--sign-key", type=EXISTING_FILE, help="Sign a statement over every file with this ed25519 key (PEM).")
@click.option(
    "--require-signed", "public_key", type=EXISTING_FILE, help="Refuse a bundle that this public key did not sign."
)
def command(
    *, bundle: Path, store: Path, records: tuple[Path, ...], sign_key: Path | None, public_key: Path | None
) -> None:
    """Publish BUNDLE into a store, if every FP32 graph in it has a passing verdict on the CPU.

    16-bit copies are published with the verdicts that they have; one without a pass never answers anybody.

    Readers of the store see the model's previous bundle or the new one, never a part. Publishing the same bundle
    again changes nothing. A statement that somebody signed is published only as long as it is about these very
    files; records that are added want a new signature.
    """
    opened = bundles.Bundle.open(bundle)
    attestation.refresh(opened, sign_key, records)
    if public_key is not None:
        attestation.require_signed(opened, public_key, records)
    published = stores.Store.create_or_open(store).publish(bundle, records)
    opened = published.open()
    proofs = verdicts.proofs(verdicts.passing_records(opened))
    click.echo(f"published {published.name} as {published.digest}")
    width = max(len(graph.id) for graph in opened.manifest.graphs)
    for graph in opened.manifest.graphs:
        engines = "; ".join(str(proof) for proof in proofs.get(graph.id, ()))
        click.echo(f"  {graph.id.ljust(width)}  {engines or 'no pass: never served'}")
