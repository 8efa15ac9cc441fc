"""A statement is about every file of a bundle, and a signature holds for these files and this key alone."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from vela.graphs import attestation, contract, digests, errors, signing, store
from vela.scripts.commands import publish

REPORT = f"{contract.RECORDS_FOLDER}/{contract.REPORT_FILE}"


def write_keys(folder: Path, name: str, private: Any = None) -> tuple[Path, Path]:
    """Write a pair of PEM files."""
    private = private or ed25519.Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    secret = private.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = private.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (folder / f"{name}.pem").write_bytes(secret)
    (folder / f"{name}.pub").write_bytes(public)
    return folder / f"{name}.pem", folder / f"{name}.pub"


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return write_keys(tmp_path, "ours")


@pytest.fixture
def signed(make_bundle: Any, keys: tuple[Path, Path]) -> Any:
    made = make_bundle()
    (made.folder / REPORT).write_text("<html>")
    attestation.write(made.open(), keys[0])
    return made


def test_a_statement_names_every_file_and_what_was_passed(make_bundle):
    made = make_bundle()

    content = json.loads(attestation.write(made.open()).read_bytes())

    names = [subject["name"] for subject in content["subject"]]
    there = [str(path.relative_to(made.folder)) for path in made.folder.rglob("*") if path.is_file()]
    assert names == sorted(set(there) - {contract.ATTESTATION_FILE})
    assert content["_type"] == "https://in-toto.io/Statement/v1"
    assert content["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert content["predicate"]["result"] == "PASSED"
    assert content["predicate"]["failedTests"] == []
    assert content["predicate"]["passedTests"] == [
        f"{graph_id} strict cpu (CPUExecutionProvider, ONNX Runtime 1.32.0, avx2)"
        for graph_id in ("model", "portable-b1-s8")
    ]
    digest = next(subject["digest"]["sha256"] for subject in content["subject"] if subject["name"] == "model.onnx")
    assert digest == digests.sha256_of_file(made.folder / "model.onnx")


def test_nothing_is_stated_of_a_bundle_that_did_not_pass(make_bundle):
    made = make_bundle()
    made.write_record("model", verdict="failed")

    with pytest.raises(errors.NotVerified):
        attestation.write(made.open())

    assert not (made.folder / contract.ATTESTATION_FILE).exists()


def test_what_was_signed_is_taken(signed, keys):
    attestation.require_signed(signed.open(), keys[1])


def test_the_same_files_and_key_give_the_same_bytes(signed, keys):
    before = (signed.folder / contract.ATTESTATION_FILE).read_bytes()

    assert attestation.write(signed.open(), keys[0]).read_bytes() == before


def forge_graph(made: Any) -> None:
    """Replace a graph, and seal manifest and records so that they agree with it."""
    (made.folder / "model.onnx").write_bytes(b"another graph")
    content = made.open().manifest
    entry = content.graphs[0]
    sha256 = digests.sha256_of_bytes(b"another graph")
    changed = type(entry)(**{name: getattr(entry, name) for name in entry.__struct_fields__} | {"sha256": sha256})
    facts = {name: getattr(content, name) for name in content.__struct_fields__}
    made.write_manifest(type(content)(**facts | {"graphs": (changed, *content.graphs[1:])}))
    for graph_id in ("model", "portable-b1-s8"):
        made.write_record(graph_id)


def forge_record(made: Any) -> None:
    made.write_record("model", reference="another reference")


def add_record(made: Any) -> None:
    made.write_record(
        "model", to=made.folder / contract.RECORDS_FOLDER / "model.cpu.more.json", created="2026-01-02T00:00:00+00:00"
    )


def forge_manifest(made: Any) -> None:
    content = made.open().manifest
    facts = {name: getattr(content, name) for name in content.__struct_fields__}
    made.write_manifest(type(content)(**facts | {"tools": {"export": "another"}}))
    for graph_id in ("model", "portable-b1-s8"):
        made.write_record(graph_id)


def forge_report(made: Any) -> None:
    (made.folder / REPORT).write_text("<html>all is well")


def add_golden(made: Any) -> None:
    (made.folder / contract.GOLDEN_FILE).write_text("{}")


def remove_report(made: Any) -> None:
    (made.folder / REPORT).unlink()


@pytest.mark.parametrize(
    ("alter", "named"),
    [
        (forge_graph, "manifest.json"),
        (forge_manifest, "manifest.json"),
        (forge_record, "verification/model.cpu.json"),
        (add_record, "verification/model.cpu.more.json"),
        (forge_report, "verification/report.html"),
        (add_golden, "golden.json"),
        (remove_report, "verification/report.html"),
    ],
)
def test_a_bundle_whose_digests_all_agree_is_refused_where_it_is_not_what_was_signed(signed, keys, alter, named):
    alter(signed)

    with pytest.raises(errors.NotVerified, match="a statement about other files") as caught:
        attestation.require_signed(signed.open(), keys[1])

    assert named in caught.value.found


def test_another_key_is_refused(signed, tmp_path):
    _, stranger = write_keys(tmp_path, "stranger")

    with pytest.raises(errors.NotVerified, match="a signature by another key"):
        attestation.require_signed(signed.open(), stranger)


def test_a_forger_who_signs_with_a_key_of_his_own_is_refused(signed, keys, tmp_path):
    forge_graph(signed)
    attestation.write(signed.open(), write_keys(tmp_path, "forger")[0])

    with pytest.raises(errors.NotVerified, match="a signature by another key"):
        attestation.require_signed(signed.open(), keys[1])


def test_another_statement_under_the_same_signature_is_refused(signed, keys):
    forge_graph(signed)
    path = signed.folder / contract.ATTESTATION_FILE
    envelope = json.loads(path.read_bytes())
    unsigned = attestation.write(signed.open()).read_bytes().strip()
    path.write_text(json.dumps(envelope | {"payload": base64.b64encode(unsigned).decode()}))

    with pytest.raises(errors.NotVerified, match="a signature by another key, or over other bytes"):
        attestation.require_signed(signed.open(), keys[1])


def test_an_unsigned_statement_and_none_are_no_signature(make_bundle, keys):
    made = make_bundle()
    with pytest.raises(errors.NotVerified, match="found no statement"):
        attestation.require_signed(made.open(), keys[1])

    attestation.write(made.open())
    with pytest.raises(errors.NotVerified, match="a statement that nobody signed"):
        attestation.require_signed(made.open(), keys[1])


@pytest.mark.parametrize(
    "change",
    [
        lambda envelope: envelope | {"signatures": 3},
        lambda envelope: envelope | {"signatures": []},
        lambda envelope: envelope | {"payload": None},
        lambda envelope: envelope | {"signatures": envelope["signatures"] * 2},
        lambda envelope: envelope | {"payloadType": "text/plain"},
        lambda envelope: envelope | {"signatures": [envelope["signatures"][0] | {"sig": "%"}]},
        lambda envelope: envelope | {"payload": "%%%"},
    ],
)
def test_an_envelope_of_another_form_is_refused_and_breaks_nothing(signed, keys, change: Callable[[dict], dict]):
    path = signed.folder / contract.ATTESTATION_FILE
    path.write_text(json.dumps(change(json.loads(path.read_bytes()))))

    with pytest.raises(errors.NotVerified):
        attestation.require_signed(signed.open(), keys[1])


@pytest.mark.parametrize("kind", ["rsa", "nonsense", "public", "missing"])
def test_a_key_that_cannot_sign_is_named(make_bundle, tmp_path, keys, kind):
    key = {"public": keys[1], "missing": tmp_path / "none.pem"}.get(kind, tmp_path / "odd.pem")
    if kind == "rsa":
        key, _ = write_keys(tmp_path, "odd", rsa.generate_private_key(public_exponent=65537, key_size=2048))
    elif kind == "nonsense":
        key.write_bytes(b"no key")

    with pytest.raises(errors.SigningError) as caught:
        attestation.write(make_bundle().open(), key)

    assert caught.value.where == key.name


def run_publish(*arguments: object) -> Any:
    return CliRunner().invoke(publish.command, [str(argument) for argument in arguments], catch_exceptions=False)


def test_publish_signs_and_the_store_holds_what_was_signed(make_bundle, keys, tmp_path):
    made, bag = make_bundle(), tmp_path / "store"

    run_publish(made.folder, "--store", bag, "--sign-key", keys[0], "--require-signed", keys[1])

    attestation.require_signed(store.Store.open(bag).models()["fake"].open(), keys[1])


def test_publish_takes_no_record_into_a_signed_bundle_without_the_key(signed, keys, tmp_path, migraphx):
    added = signed.write_record("model", to=tmp_path / "amd.json", engine=migraphx)
    bag = tmp_path / "store"

    with pytest.raises(errors.NotVerified, match="a statement about other files"):
        run_publish(signed.folder, "--store", bag, "--add-record", added)
    assert not bag.exists()

    run_publish(signed.folder, "--store", bag, "--add-record", added, "--sign-key", keys[0])
    attestation.require_signed(store.Store.open(bag).models()["fake"].open(), keys[1])


def test_publish_mends_a_statement_that_nobody_signed(make_bundle, tmp_path, migraphx):
    made, bag = make_bundle(), tmp_path / "store"
    attestation.write(made.open())
    added = made.write_record("model", to=tmp_path / "amd.json", engine=migraphx)

    run_publish(made.folder, "--store", bag, "--add-record", added)

    folder = store.Store.open(bag).models()["fake"].folder
    stated = json.loads((folder / contract.ATTESTATION_FILE).read_bytes())
    assert sum("model.migraphx-0" in subject["name"] for subject in stated["subject"]) == 1


def test_without_the_library_the_extra_is_named(signed, keys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "securesystemslib", None)

    with pytest.raises(errors.SigningError, match=r"vela-onnx\[sign\]"):
        signing.verify(b"{}", "type", keys[1], "x")
