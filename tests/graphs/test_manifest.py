"""manifest.json: what it refuses to be, and that nobody edits it unseen."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vela.graphs import contract, errors, heads, manifest


def raw(made: Any) -> dict[str, Any]:
    content: dict[str, Any] = msgspec.json.decode((made.folder / "manifest.json").read_bytes())
    return content


def write(made: Any, content: Any) -> None:
    (made.folder / "manifest.json").write_bytes(msgspec.json.encode(content))


def reseal(made: Any, content: dict[str, Any]) -> None:
    """Write a manifest as a tool would that knows how seals are made, past the constructors' checks."""
    content = content | {"seal": ""}
    compact = msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"
    from vela.graphs import digests

    write(made, content | {"seal": digests.sha256_of_bytes(compact)})


def test_a_manifest_survives_writing_and_reading(make_bundle: Any) -> None:
    made = make_bundle()

    opened = made.open()
    made.write_manifest(opened.manifest)

    assert made.open() == opened


def test_a_seal_depends_on_the_content_and_not_on_an_earlier_seal(make_bundle: Any) -> None:
    content = make_bundle().open().manifest

    assert content.sealed() == content
    assert msgspec.structs.replace(content, seal="x").sealed() == content
    assert msgspec.structs.replace(content, tools={"torch": "2"}).sealed().seal != content.seal


EDITS: dict[str, Any] = {
    "a digest": lambda content: content["graphs"][0].update(sha256="1" * 64),
    "an offset": lambda content: content["weights"][0].update(offset=4),
    "a label": lambda content: content["heads"][0]["decoder"].update(labels=["yes", "no"]),
    "a limit": lambda content: content["heads"][0].update(max_tokens=64),
    "the name": lambda content: content["model"].update(name="other"),
    "the seal": lambda content: content.update(seal="0" * 64),
    "no seal": lambda content: content.pop("seal"),
    "a source that is gone": lambda content: content["sources"].pop("config.json"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_field_breaks_the_seal(make_bundle: Any, edit: Any) -> None:
    made = make_bundle()
    content = raw(made)
    edit(content)
    write(made, content)

    with pytest.raises(errors.ManifestInvalid, match="edited after export"):
        made.open()


INVALID: dict[str, Any] = {
    "an unknown field": lambda content: content.update(remark="x"),
    "an unknown field within": lambda content: content["graphs"][0].update(remark="x"),
    "a missing field": lambda content: content.pop("tokenizer"),
    "a wrong type": lambda content: content["graphs"][0].update(opset="18"),
    "an unknown target": lambda content: content["graphs"][0].update(target="tensorrt"),
    "an unknown decoder": lambda content: content["heads"][0]["decoder"].update(type="oracle"),
    "two graphs of one id": lambda content: content["graphs"][1].update(id="model"),
    "two graphs in one file": lambda content: content["graphs"][1].update(file="model.onnx"),
    "a head that is not listed": lambda content: content["graphs"][0].update(head="other"),
    "a tensor that is not listed": lambda content: content["graphs"][0]["external"].update(w="other"),
    "weights in a file that is not listed": lambda content: content["weights"][0].update(file="other.safetensors"),
    "a tokenizer that is not listed": lambda content: content["tokenizer"].update(file="other.json"),
    "a tokenizer of another digest": lambda content: content["tokenizer"].update(sha256="1" * 64),
    "a graph called like a checkpoint file": lambda content: content["graphs"][0].update(file="config.json"),
    "a graph called like the manifest": lambda content: content["graphs"][0].update(file="manifest.json"),
    "a source among the records": lambda content: content["sources"].update(
        {"verification/model.cpu.json": {"sha256": "1" * 64, "size_bytes": 1}}
    ),
    "a model name that is a path": lambda content: content["model"].update(name="../x"),
    "a hidden model name": lambda content: content["model"].update(name=".x"),
    "an empty model name": lambda content: content["model"].update(name=""),
    "a graph id that is a path": lambda content: content["graphs"][0].update(id="a/b"),
    "a repeated label": lambda content: content["heads"][0]["decoder"].update(labels=["a", "a"]),
    "a window that is missing": lambda content: content["heads"][0].update(overflow="window"),
    "a dimension of zero": lambda content: content["graphs"][0]["inputs"][0].update(shape=[0, 1]),
}


@pytest.mark.parametrize("edit", INVALID.values(), ids=INVALID)
def test_a_manifest_that_contradicts_itself_is_refused_even_with_a_good_seal(make_bundle: Any, edit: Any) -> None:
    made = make_bundle()
    content = raw(made)
    edit(content)
    reseal(made, content)

    with pytest.raises(errors.ManifestInvalid, match="does not validate"):
        made.open()


ESCAPES = ["../model.safetensors", "/etc/passwd", "a/../../b", "a\\b", "a\0b", "./config.json", "a//b", "a/", ""]


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("place", ["source", "graph"])
def test_a_file_name_that_may_leave_the_folder_is_refused(make_bundle: Any, name: str, place: str) -> None:
    made = make_bundle()
    content = raw(made)
    if place == "source":
        content["sources"][name] = {"sha256": "1" * 64, "size_bytes": 1}
    else:
        content["graphs"][0]["file"] = name
    reseal(made, content)

    with pytest.raises(errors.ManifestInvalid, match="may leave the folder"):
        made.open()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"schema_version": "1"}'])
def test_content_that_is_no_manifest_is_refused(make_bundle: Any, content: bytes) -> None:
    made = make_bundle()
    (made.folder / "manifest.json").write_bytes(content)

    with pytest.raises(errors.ManifestInvalid, match="does not validate"):
        made.open()


def test_another_schema_version_is_named_before_its_fields_are_looked_at(make_bundle: Any) -> None:
    made = make_bundle()
    write(made, {"schema_version": 2, "everything": "else"})

    with pytest.raises(errors.ManifestInvalid, match="schema version 2"):
        made.open()


def test_a_missing_manifest_and_one_of_unreasonable_size_are_refused(make_bundle: Any, tmp_path: Path) -> None:
    with pytest.raises(errors.ManifestInvalid, match="sane size"):
        manifest.read_manifest(tmp_path / "manifest.json")

    made = make_bundle()
    with (made.folder / "manifest.json").open("r+b") as stream:
        stream.truncate(manifest.MANIFEST_LIMIT_BYTES + 1)
    with pytest.raises(errors.ManifestInvalid, match="sane size"):
        made.open()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_changed_byte_is_noticed(make_bundle: Any, data: st.DataObject) -> None:
    made = make_bundle()
    content = (made.folder / "manifest.json").read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    changed = content[:at] + bytes([data.draw(st.integers(0, 255))]) + content[at + 1 :]
    (made.folder / "manifest.json").write_bytes(changed)

    try:
        found, _ = manifest.read_manifest(made.folder / "manifest.json")
    except errors.ManifestInvalid:
        return
    assert manifest.encode_manifest(found) == content  # only white space differed


def test_a_graph_knows_what_it_can_be_fed(make_bundle: Any) -> None:
    dynamic = make_bundle().open().graph("model")
    bucket = msgspec.structs.replace(dynamic, inputs=contract.graph_inputs(2, 8))
    unpadded = msgspec.structs.replace(dynamic, inputs=contract.graph_inputs("batch", "sequence")[:1])

    assert (dynamic.batch, dynamic.sequence, dynamic.takes_mask) == (None, None, True)
    assert (bucket.batch, bucket.sequence, unpadded.takes_mask) == (2, 8, False)
    assert dynamic.fits(1000, 1000)
    assert [bucket.fits(2, 8), bucket.fits(3, 8), bucket.fits(2, 9)] == [True, False, False]


def test_heads_and_weights_are_found_by_name(make_bundle: Any) -> None:
    content = make_bundle().open().manifest

    assert content.head().name == heads.DEFAULT_HEAD
    assert content.weight("classifier.weight").file == "model.safetensors"
    with pytest.raises(KeyError):
        content.weight("other")
