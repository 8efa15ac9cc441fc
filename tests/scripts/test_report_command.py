"""`vela verify-graph` writes a report beside the records, and `vela report` renders it again."""

from xml.etree import ElementTree

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from vela.graphs import contract

SAMPLE = "tiny-intent"
REPORT = f"{contract.RECORDS_FOLDER}/{contract.REPORT_FILE}"
SHORT = ("--graph", "portable-b1-s64", "--max-tokens", "64")


def test_the_gate_writes_the_report_that_the_report_command_writes_again(copied, vela, checkpoints):
    bundle = copied[SAMPLE]

    judged, _, err = vela("verify-graph", str(bundle), "--checkpoint", str(checkpoints[SAMPLE]), *SHORT)
    first = (bundle / REPORT).read_bytes()
    rendered, out, _ = vela("report", str(bundle))

    assert (judged, rendered) == (0, 0)
    assert f"report: {bundle / REPORT}" in err
    assert "graphs passed the strict bar on onnxruntime" in out
    assert (bundle / REPORT).read_bytes() == first


def test_the_report_of_a_failed_graph_is_written_before_the_gate_exits(copied, vela, checkpoints, tmp_path):
    bundle, target = copied[SAMPLE], tmp_path / "out" / "failed.html"
    (bundle / REPORT).unlink()
    path = bundle / "portable-b1-s64.onnx"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content + b"\0")

    status, _, _ = vela(
        *("verify-graph", str(bundle), "--checkpoint", str(checkpoints[SAMPLE]), "--fail-fast"),
        *("--html", str(target), *SHORT),
    )

    assert status == 1
    assert '<header class="top failed">' in target.read_text()
    assert "graph.digest" in target.read_text()
    assert not (bundle / REPORT).exists()


def test_no_report_is_written_where_none_is_wanted(copied, vela, checkpoints):
    bundle = copied[SAMPLE]
    (bundle / REPORT).unlink()

    status, _, err = vela("verify-graph", str(bundle), "--checkpoint", str(checkpoints[SAMPLE]), "--no-html", *SHORT)

    assert status == 0
    assert "report:" not in err
    assert not (bundle / REPORT).exists()


def test_a_report_is_published_with_the_bundle(copied, vela, tmp_path):
    bundle, store = copied[SAMPLE], tmp_path / "store"

    vela("report", str(bundle))
    status, _, _ = vela("publish", str(bundle), "--store", str(store))

    (published,) = store.glob(f"bundles/*/{REPORT}")
    assert status == 0
    assert published.read_bytes() == (bundle / REPORT).read_bytes()


def test_single_records_are_rendered_to_a_named_file(bundles, vela, tmp_path):
    (record, *_) = sorted((bundles[SAMPLE] / contract.RECORDS_FOLDER).glob("*.json"))
    target = tmp_path / "one.html"

    status, out, _ = vela("report", str(record), "--html", str(target))

    assert status == 0
    assert "1 of 1 graphs passed" in out
    assert record.name.removesuffix(".cpu.json") in target.read_text()


def test_single_records_without_a_named_file_are_misuse(bundles, vela):
    (record, *_) = sorted((bundles[SAMPLE] / contract.RECORDS_FOLDER).glob("*.json"))

    status, _, err = vela("report", str(record))

    assert status == 2
    assert "--html" in err


def test_two_bundles_in_one_report_are_misuse(bundles, vela):
    status, _, err = vela("report", *(str(bundles[name]) for name in (SAMPLE, "tiny-guard")))

    assert status == 2
    assert "one bundle" in err


def test_a_report_is_not_both_wanted_and_unwanted(vela):
    status, _, err = vela("verify-graph", "bundle", "--html", "x.html", "--no-html")

    assert status == 2
    assert "contradict" in err


def test_a_place_that_cannot_be_written_to_is_an_error_of_one_line(bundles, vela, tmp_path):
    (tmp_path / "file").touch()

    status, _, err = vela("report", str(bundles[SAMPLE]), "--html", str(tmp_path / "file" / "report.html"))

    assert status == 1
    assert "Name another file with --html" in err
    assert len(err.splitlines()) == 1


def test_a_bundle_that_passed_gets_a_signed_statement_and_a_junit_file(copied, vela, checkpoints, tmp_path):
    bundle, store = copied[SAMPLE], tmp_path / "store"
    private = ed25519.Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    (tmp_path / "key.pem").write_bytes(
        private.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    public = private.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "key.pub").write_bytes(public)

    judged, _, err = vela(
        *("verify-graph", str(bundle), "--checkpoint", str(checkpoints[SAMPLE]), *SHORT),
        *("--junit", str(tmp_path / "gate.xml"), "--sign-key", str(tmp_path / "key.pem")),
    )
    published, _, _ = vela("publish", str(bundle), "--store", str(store), "--require-signed", str(tmp_path / "key.pub"))
    served, _, _ = vela("serve", "--store", str(store), "--check", "--require-signed", str(tmp_path / "key.pub"))

    assert (judged, published, served) == (0, 0, 0)
    assert f"statement: {bundle / contract.ATTESTATION_FILE} (signed)" in err
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot()[0]
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    assert "weights.identity" in [case.get("name") for case in suite]


def test_a_statement_is_taken_back_where_a_graph_has_no_pass_any_more(copied, vela, checkpoints):
    bundle = copied[SAMPLE]
    arguments = ("verify-graph", str(bundle), "--checkpoint", str(checkpoints[SAMPLE]), *SHORT)
    vela(*arguments)
    assert (bundle / contract.ATTESTATION_FILE).exists()
    path = bundle / "portable-b1-s64.onnx"
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content + b"\0")

    status, _, _ = vela(*arguments, "--fail-fast")

    assert status == 1
    assert not (bundle / contract.ATTESTATION_FILE).exists()


def test_a_key_that_cannot_sign_is_refused_before_anything_is_judged(copied, vela, checkpoints, tmp_path):
    bundle, key = copied[SAMPLE], tmp_path / "key.pem"
    key.write_bytes(b"no key")

    status, _, err = vela(
        *("verify-graph", str(bundle), "--checkpoint", str(checkpoints[SAMPLE]), "--sign-key", str(key), *SHORT)
    )

    assert status == 1
    assert "key.pem" in err
    assert "static checks" not in err
