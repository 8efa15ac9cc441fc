"""Which records a report is about."""

import msgspec
import pytest

from vela.graphs import bundle, contract, errors, heads, manifest, record
from vela.verify.report import reading

GRAPHS = ("model", "portable-b1-s8")


@pytest.fixture
def folder(tmp_path):
    """Give a bundle of two graphs, whose files nobody reads."""
    made = manifest.Manifest(
        schema_version=manifest.SCHEMA_VERSION,
        model=manifest.Model("sample", "", "", "0" * 64, "modernbert", 8, 1, 1),
        sources={"tokenizer.json": manifest.SourceFile("1" * 64, 2)},
        weights=(),
        tokenizer=manifest.TokenizerFacts("tokenizer.json", "1" * 64, (2,), (), (1,), 0, 16),
        heads=(heads.Head(heads.DEFAULT_HEAD, "text", heads.SequenceDecoder(("no", "yes")), 128, "reject"),),
        graphs=tuple(make_graph(graph_id) for graph_id in GRAPHS),
        tools={},
    )
    path = tmp_path / "bundle"
    path.mkdir()
    (path / contract.MANIFEST_FILE).write_bytes(manifest.encode_manifest(made.sealed()))
    return path


def make_graph(graph_id):
    return manifest.Graph(
        id=graph_id,
        file=f"{graph_id}.onnx",
        sha256="a1" * 32,
        size_bytes=1,
        target="portable",
        precision="fp32",
        storage="reference",
        opset=contract.OPSET_VERSION,
        head=heads.DEFAULT_HEAD,
        exit_layer=1,
        inputs=contract.graph_inputs("batch", "sequence"),
        outputs=(contract.TensorSpec(contract.LOGITS, "float32", ("batch", 2)),),
        external={},
        inline=(),
    )


@pytest.fixture
def keep(folder):
    """Write a record of that bundle, with fields changed; gives its path."""
    sha256 = bundle.Bundle.open(folder).manifest_sha256

    def run(found, name="", **changes):
        found = msgspec.structs.replace(found, **{"manifest_sha256": sha256, **changes})
        path = folder / (name or record.record_file(found.graph_id, found.engine.device if found.engine else "cpu"))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(record.encode_record(found))
        return path

    return run


def test_records_are_in_the_order_of_the_manifest_and_the_graphs_without_one_are_named(folder, keep, make_record):
    keep(make_record("portable-b1-s8"))

    found = reading.Collected.from_bundle(folder)

    assert found.name == "sample"
    assert [one.graph_id for one in found.records] == ["portable-b1-s8"]
    assert found.unjudged == ("model",)
    assert found.left_out == ()


def test_a_record_of_another_bundle_is_left_out_by_name(folder, keep, make_record):
    keep(make_record("model"))
    keep(make_record("portable-b1-s8"), manifest_sha256="9" * 64)

    found = reading.Collected.from_bundle(folder)

    assert [one.graph_id for one in found.records] == ["model"]
    assert [one.name for one in found.left_out] == ["portable-b1-s8.cpu.json"]
    assert "stale, or of another bundle" in found.left_out[0].reason


def test_the_failure_of_an_altered_graph_file_is_about_the_bundle_and_a_pass_is_not(
    folder, keep, make_record, make_failed
):
    keep(make_failed("model"), graph_sha256="9" * 64)
    keep(make_record("portable-b1-s8"), graph_sha256="9" * 64)

    found = reading.Collected.from_bundle(folder)

    assert [one.graph_id for one in found.records] == ["model"]
    assert [one.name for one in found.left_out] == ["portable-b1-s8.cpu.json"]


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 100_000, b"\xff\xfe", b'{"schema_version": 99}'])
def test_a_file_that_is_no_record_is_left_out(folder, keep, make_record, content):
    keep(make_record("model"))
    (folder / contract.RECORDS_FOLDER / "broken.json").write_bytes(content)

    assert [one.name for one in reading.Collected.from_bundle(folder).left_out] == ["broken.json"]


def test_a_link_among_the_records_is_not_followed(folder, keep, make_record, tmp_path):
    path = keep(make_record("model"))
    (tmp_path / "elsewhere.json").write_bytes(path.read_bytes())
    path.with_name("link.json").symlink_to(tmp_path / "elsewhere.json")

    assert [one.name for one in reading.Collected.from_bundle(folder).left_out] == ["link.json"]


def test_a_record_of_more_than_the_limit_is_left_out(folder, keep, make_record):
    keep(make_record("model"))
    with (folder / contract.RECORDS_FOLDER / "large.json").open("wb") as stream:
        stream.truncate(record.RECORD_LIMIT_BYTES + 1)

    assert [one.name for one in reading.Collected.from_bundle(folder).left_out] == ["large.json"]


def test_a_bundle_without_records_is_not_compared(folder):
    with pytest.raises(errors.NothingCompared):
        reading.Collected.from_bundle(folder)


def test_a_record_that_was_made_elsewhere_is_added_and_an_equal_one_is_not_shown_twice(folder, keep, make_record):
    own = keep(make_record("model"))
    other = keep(make_record("portable-b1-s8"), "elsewhere.json")

    found = reading.Collected.from_bundle(folder, [own, other])

    assert [one.graph_id for one in found.records] == ["model", "portable-b1-s8"]


def test_an_added_record_of_another_bundle_is_refused(folder, keep, make_record):
    keep(make_record("model"))
    other = keep(make_record("model"), "elsewhere.json", manifest_sha256="9" * 64)

    with pytest.raises(errors.NotVerified):
        reading.Collected.from_bundle(folder, [other])


def test_record_files_are_taken_in_the_order_given_and_named_after_their_bundle(folder, keep, make_record):
    first, second = keep(make_record("portable-b1-s8")), keep(make_record("model"))

    found = reading.Collected.from_files([first, second])

    assert [one.graph_id for one in found.records] == ["portable-b1-s8", "model"]
    assert found.name == "bundle"


def test_record_files_of_two_bundles_are_refused(folder, keep, make_record):
    files = [keep(make_record("model")), keep(make_record("model"), "other.json", manifest_sha256="9" * 64)]

    with pytest.raises(errors.VerificationError, match="2 manifests"):
        reading.Collected.from_files(files)
