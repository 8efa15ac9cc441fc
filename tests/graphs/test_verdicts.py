"""Which records are believed, what they prove, and what may be published or served on the strength of them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from vela.graphs import digests, errors, publication, record, verdicts

CPU = ("CPUExecutionProvider", "cpu")


def publishable(made: Any, added: tuple[Path, ...] = ()) -> publication.Contents:
    return publication.Contents.from_bundle(made.open(), added)


def edit(path: Path, **changes: Any) -> None:
    """Change fields of a record as a text editor would, past the checks of its constructor."""
    content = msgspec.json.decode(path.read_bytes()) | changes
    path.write_bytes(msgspec.json.encode(content))


def test_a_bundle_with_a_pass_on_the_cpu_for_every_graph_may_be_published(make_bundle: Any) -> None:
    made = make_bundle()

    assert sorted(publishable(made).files) == [
        "1_Pooling/config.json",
        "config.json",
        "manifest.json",
        "model.onnx",
        "model.safetensors",
        "portable-b1-s8.onnx",
        "tokenizer.json",
        "verification/model.cpu.json",
        "verification/portable-b1-s8.cpu.json",
    ]


def test_a_bundle_that_was_never_judged_is_refused_and_the_message_says_what_to_run(make_bundle: Any) -> None:
    with pytest.raises(errors.NotVerified, match=r"'model' with no record.*vela verify-graph"):
        publishable(make_bundle(verified=False))


def test_one_graph_without_a_record_is_enough_to_refuse(make_bundle: Any) -> None:
    made = make_bundle()
    (made.folder / "verification" / "portable-b1-s8.cpu.json").unlink()

    with pytest.raises(errors.NotVerified, match="portable-b1-s8"):
        publishable(made)


@pytest.mark.parametrize("verdict", ["failed", "not_compared"])
def test_a_graph_that_did_not_pass_is_refused_with_its_cause(make_bundle: Any, verdict: str) -> None:
    made = make_bundle()
    made.write_record("model", verdict=verdict, cause="41 of 138 tensors are from another checkpoint")

    with pytest.raises(errors.NotVerified, match=f"{verdict.replace('_', ' ')} on cpu.*41 of 138"):
        publishable(made)


def test_a_pass_on_another_engine_is_no_pass_on_the_cpu(make_bundle: Any, migraphx: Any) -> None:
    made = make_bundle(verified=False)
    for graph_id in ("model", "portable-b1-s8"):
        made.write_record(graph_id, engine=migraphx)

    with pytest.raises(errors.NotVerified, match="passed on migraphx:0"):
        publishable(made)


def test_a_failure_on_another_engine_does_not_take_back_the_pass_on_the_cpu(make_bundle: Any, migraphx: Any) -> None:
    made = make_bundle()
    made.write_record("model", engine=migraphx, verdict="failed", cause="engine numerics")

    publishable(made)

    with pytest.raises(errors.NotVerified, match="engine numerics"):
        verdicts.require_verified(made.open(), ["model"], "MIGraphXExecutionProvider", "migraphx")


def test_a_pass_and_a_failure_on_the_same_engine_prove_nothing(make_bundle: Any, tmp_path: Path) -> None:
    made = make_bundle()
    added = made.write_record("model", to=tmp_path / "other.json", verdict="failed", cause="window")

    with pytest.raises(errors.NotVerified, match=r"passed on cpu.*; failed on cpu.*window"):
        publishable(made, (added,))


def test_an_added_record_can_be_the_pass_that_was_missing(make_bundle: Any, tmp_path: Path) -> None:
    made = make_bundle()
    path = made.folder / "verification" / "model.cpu.json"
    path.rename(tmp_path / "model.json")

    contents = publishable(made, (tmp_path / "model.json",))

    sha256 = digests.sha256_of_file(tmp_path / "model.json")
    assert contents.files[f"verification/model.cpu.{sha256[:12]}.json"].sha256 == sha256


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"manifest_sha256": "1" * 64}, "stale, or of another bundle"),
        ({"graph_sha256": "1" * 64}, "a record for graph file 1111"),
        ({"graph_id": "ort-b1-s8"}, "a record for the graph 'ort-b1-s8'"),
        ({"graph_id": "../../../etc/x"}, "a record for the graph"),
        ({"engine": None}, "says passed with no engine"),
        ({"checks": []}, "none was made"),
        ({"checks": [{"name": "weights", "status": "not_run", "detail": "", "duration_s": 0}]}, "no record"),
        ({"compared": 0}, "no record"),
        ({"compared": 2, "runs": [["c", 3, "none", 0.0, 0.0]] * 2}, "2 of 3 cases compared"),
        ({"compared": 2}, "no record"),
        ({"compared": "three"}, "no record"),
        ({"bars": [{"bar": "strict", "verdict": "failed", "reasons": ["x"]}]}, "the deciding bar 'strict' not passed"),
        ({"schema_version": 3}, "schema version 3"),
        ({"remark": "trust me"}, "no record"),
        ({"verdict": "excellent"}, "no record"),
    ],
)
@pytest.mark.parametrize("added", [False, True])
def test_a_record_that_does_not_agree_is_refused_by_name(
    make_bundle: Any, tmp_path: Path, changes: dict[str, Any], message: str, *, added: bool
) -> None:
    made = make_bundle()
    path = made.folder / "verification" / "model.cpu.json"
    if added:
        path = made.write_record("model", to=tmp_path / "foreign.json")
    edit(path, **changes)

    with pytest.raises(errors.NotVerified, match=message) as caught:
        publishable(made, (path,) if added else ())

    assert path.name in caught.value.where


def test_a_record_of_the_bundle_before_it_was_exported_again_is_stale(make_bundle: Any) -> None:
    made = make_bundle()
    opened = made.open()
    tools = {"torch": "a later version"}
    made.write_manifest(msgspec.structs.replace(opened.manifest, tools=tools))

    with pytest.raises(errors.NotVerified, match="stale"):
        verdicts.passing_records(made.open())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_record_is_refused(make_bundle: Any, content: bytes) -> None:
    made = make_bundle()
    (made.folder / "verification" / "junk.json").write_bytes(content)

    with pytest.raises(errors.NotVerified, match=r"verification/junk\.json"):
        verdicts.passing_records(made.open())


def test_a_record_of_unreasonable_size_is_not_read(make_bundle: Any) -> None:
    made = make_bundle()
    with (made.folder / "verification" / "model.cpu.json").open("r+b") as stream:
        stream.truncate(record.RECORD_LIMIT_BYTES + 1)

    with pytest.raises(errors.NotVerified, match="more than"):
        verdicts.passing_records(made.open())


def test_a_device_that_is_no_file_name_does_not_become_one(make_bundle: Any, tmp_path: Path, migraphx: Any) -> None:
    made = make_bundle()
    engine = msgspec.structs.replace(migraphx, device="x/../../y")
    added = made.write_record("model", to=tmp_path / "added.json", engine=engine)

    with pytest.raises(errors.NotVerified, match="device"):
        publishable(made, (added,))


def test_passing_records_leave_out_what_did_not_pass(make_bundle: Any, migraphx: Any) -> None:
    made = make_bundle()
    made.write_record("model", engine=migraphx, verdict="not_compared")

    assert {found.graph_id for found in verdicts.passing_records(made.open())} == {"model", "portable-b1-s8"}
    assert all(found.engine.device == "cpu" for found in verdicts.passing_records(made.open()) if found.engine)


def test_proofs_name_provider_version_and_device_of_each_graph(make_bundle: Any, migraphx: Any) -> None:
    made = make_bundle()
    made.write_record("model", engine=migraphx)

    found = verdicts.proofs(verdicts.passing_records(made.open()))

    cpu = verdicts.Proof("cpu", "CPUExecutionProvider", "1.32.0", "avx2")
    gpu = verdicts.Proof("migraphx", "MIGraphXExecutionProvider", "1.27.1", "gfx942")
    assert found == {"model": (cpu, gpu), "portable-b1-s8": (cpu,)}


def test_an_engine_is_verified_only_for_the_graphs_that_were_proven_on_it(make_bundle: Any, migraphx: Any) -> None:
    made = make_bundle()
    made.write_record("model", engine=migraphx)
    opened = made.open()

    verdicts.require_verified(opened, ["model"], "MIGraphXExecutionProvider", "migraphx")
    verdicts.require_verified(opened, ["model", "portable-b1-s8"], *CPU)

    with pytest.raises(errors.NotVerified, match="portable-b1-s8"):
        verdicts.require_verified(opened, ["model", "portable-b1-s8"], "MIGraphXExecutionProvider", "migraphx")
    with pytest.raises(errors.NotVerified, match="CUDAExecutionProvider"):
        verdicts.require_verified(opened, ["model"], "CUDAExecutionProvider", "cuda")


def test_a_version_is_part_of_an_engine_where_it_is_asked_for(make_bundle: Any) -> None:
    opened = make_bundle().open()

    verdicts.require_verified(opened, ["model"], *CPU, version="1.32.0")

    with pytest.raises(errors.NotVerified, match=r"a pass on cpu \(CPUExecutionProvider, ONNX Runtime 1\.33\.0\)"):
        verdicts.require_verified(opened, ["model"], *CPU, version="1.33.0")
