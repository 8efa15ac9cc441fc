"""`vela publish` and `vela models` as a shell sees them."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from vela.graphs import errors, store
from vela.scripts.commands import models, publish


def test_publish_prints_model_digest_graphs_and_engines(make_bundle: Any, tmp_path: Path, migraphx: Any) -> None:
    made = make_bundle()
    added = made.write_record("model", to=tmp_path / "amd.json", engine=migraphx)
    arguments = [str(made.folder), "--store", str(tmp_path / "store"), "--add-record", str(added)]

    found = CliRunner().invoke(publish.command, arguments)

    digest = store.Store.open(tmp_path / "store").models()["fake"].digest
    cpu = "cpu (CPUExecutionProvider, ONNX Runtime 1.32.0, avx2)"
    assert found.exit_code == 0
    assert found.stdout.splitlines() == [
        f"published fake as {digest}",
        f"  model           {cpu}; migraphx (MIGraphXExecutionProvider, ONNX Runtime 1.27.1, gfx942)",
        f"  portable-b1-s8  {cpu}",
    ]


def test_publish_refuses_a_bundle_that_was_not_verified(make_bundle: Any, tmp_path: Path) -> None:
    arguments = [str(make_bundle(verified=False).folder), "--store", str(tmp_path / "store")]

    with pytest.raises(errors.NotVerified):
        CliRunner().invoke(publish.command, arguments, catch_exceptions=False)

    assert store.Store.open(tmp_path / "store").models() == {}


@pytest.mark.parametrize("arguments", [[], ["missing", "--store", "s"], ["."], [".", "--store", "s", "--bogus"]])
def test_misuse_of_publish_is_exit_code_2(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert CliRunner().invoke(publish.command, arguments).exit_code == 2


def test_models_prints_a_line_for_each_model_and_why_one_is_not_supported() -> None:
    lines = CliRunner().invoke(models.command, []).stdout.splitlines()

    assert len(lines) == 14
    assert lines[4].split() == ["Shield", "sequence", "text", "307,531,778", "32,768", "a981a99eeb05", "yes"]
    assert lines[13].endswith("not yet: a causal decoder with last-token pooling; Vela exports encoders")


def test_models_as_json_holds_the_digest_of_every_file() -> None:
    table = json.loads(CliRunner().invoke(models.command, ["--json"]).stdout)

    assert len(table["models"]) == 13
    assert all(len(sha256) == 64 for entry in table["models"] for sha256 in entry["files"].values())
