"""An opened bundle: its files are what the manifest says, or the first that is not is named."""

import os
from pathlib import Path
from typing import Any

import pytest

from vela.graphs import errors


def test_a_bundle_as_it_was_written_passes(make_bundle: Any) -> None:
    make_bundle().open().check_files()


def test_a_graph_that_is_not_there_is_answered_with_those_that_are(make_bundle: Any) -> None:
    opened = make_bundle().open()

    assert opened.graph("model").file == "model.onnx"
    with pytest.raises(errors.ManifestInvalid, match="one of model, portable-b1-s8"):
        opened.graph("ort-b1-s8")


def test_a_changed_file_is_named_with_both_digests(make_bundle: Any) -> None:
    made = make_bundle()
    expected = made.open().expected_digests()["config.json"]
    (made.folder / "config.json").write_bytes(b"{}")

    with pytest.raises(errors.DigestMismatch, match=rf"^config\.json: found sha256 44136f.*expected sha256 {expected}"):
        made.open().check_files()


def test_only_the_files_asked_for_are_read(make_bundle: Any) -> None:
    made = make_bundle()
    (made.folder / "config.json").write_bytes(b"{}")

    made.open().check_files(["model.safetensors", "model.onnx"])


@pytest.mark.parametrize("name", ["model.safetensors", "1_Pooling"])
def test_a_symbolic_link_is_refused_even_to_the_right_bytes(make_bundle: Any, tmp_path: Path, name: str) -> None:
    made = make_bundle()
    (made.folder / name).rename(tmp_path / "elsewhere")
    (made.folder / name).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(errors.DigestMismatch, match="a symbolic link"):
        made.open().check_files()


def test_a_hard_link_is_a_file_like_any_other(make_bundle: Any, tmp_path: Path) -> None:
    made = make_bundle()
    os.link(made.folder / "model.safetensors", tmp_path / "checkpoint.safetensors")

    made.open().check_files()


def test_a_missing_file_is_refused(make_bundle: Any) -> None:
    made = make_bundle()
    (made.folder / "model.onnx").unlink()

    with pytest.raises(errors.DigestMismatch, match=r"model\.onnx: found no such file"):
        made.open().check_files()
