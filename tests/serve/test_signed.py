"""A server that asks for a signature loads what that key signed, and nothing that was altered since."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from vela.graphs import attestation, contract, manifest, record, store
from vela.graphs import bundle as bundles
from vela.serve import registry

MODEL = "mood"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """PEM files: `key` signed, `pub` is its public half, `stranger` another's."""
    folder = tmp_path_factory.mktemp("keys")
    private = ed25519.Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    public = serialization.PublicFormat.SubjectPublicKeyInfo
    contents = {
        "key": private.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        "pub": private.public_key().public_bytes(pem, public),
        "stranger": ed25519.Ed25519PrivateKey.generate().public_key().public_bytes(pem, public),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {name: folder / name for name in contents}


@pytest.fixture
def published(bags: dict[str, Path], keys: dict[str, Path], tmp_path: Path) -> store.PublishedBundle:
    folder = Path(shutil.copytree(bags[MODEL], tmp_path / MODEL))
    attestation.write(bundles.Bundle.open(folder), keys["key"])
    return store.Store.create_or_open(tmp_path / "store").publish(folder)


@pytest.fixture
def load(published: store.PublishedBundle) -> Iterator:
    """Load the store as a server does and give the model's entry."""
    made: list[registry.Registry] = []

    def run(public_key: Path | None) -> registry.Entry:
        sources = registry.sources_from_store(published.folder.parents[1], [MODEL])
        made.append(registry.Registry(registry.Plan(sources, public_key=public_key)))
        made[-1].load()
        return made[-1].entries[MODEL]

    yield run
    for loaded in made:
        loaded.close()


def test_what_the_key_signed_is_served(load, keys):
    assert load(keys["pub"]).status == "ready"


def test_another_key_serves_nothing(load, keys):
    entry = load(keys["stranger"])

    assert (entry.status, entry.model) == ("failed", None)
    assert "a signature by another key" in entry.reason


def test_without_the_option_nothing_is_asked(load, published):
    (published.folder / contract.ATTESTATION_FILE).unlink()

    assert load(None).status == "ready"


def forge_record(folder: Path) -> None:
    """Change a record in a way that no digest speaks against."""
    path = folder / record.record_file("model", "cpu")
    found = msgspec.json.decode(path.read_bytes(), type=record.Record)
    path.write_bytes(record.encode_record(msgspec.structs.replace(found, reference="another")))


def forge_manifest(folder: Path) -> None:
    """Change the manifest, seal it, and let the records agree."""
    path = folder / contract.MANIFEST_FILE
    content = msgspec.json.decode(path.read_bytes(), type=manifest.Manifest)
    path.write_bytes(manifest.encode_manifest(msgspec.structs.replace(content, tools={"by": "another"}).sealed()))
    sha256 = bundles.Bundle.open(folder).manifest_sha256
    for record_path in (folder / contract.RECORDS_FOLDER).glob("*.json"):
        found = msgspec.json.decode(record_path.read_bytes(), type=record.Record)
        record_path.write_bytes(record.encode_record(msgspec.structs.replace(found, manifest_sha256=sha256)))


def drop_statement(folder: Path) -> None:
    (folder / contract.ATTESTATION_FILE).unlink()


@pytest.mark.parametrize("alter", [forge_record, forge_manifest, drop_statement])
def test_what_was_altered_since_is_not_served_though_its_digests_agree(load, keys, published, alter):
    alter(published.folder)

    entry = load(keys["pub"])

    assert (entry.status, entry.model) == ("failed", None)
    assert contract.ATTESTATION_FILE in entry.reason


def test_a_graph_that_was_altered_is_not_served(load, keys, published):
    path = published.folder / "model.onnx"
    content = path.read_bytes()
    path.chmod(0o644)
    path.unlink()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    assert load(keys["pub"]).status == "failed"
