"""The store: what it takes, what it holds afterwards, what a reader sees."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from vela.graphs import digests, durable, errors, member, store


def content_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in member.list_members(folder)}


@pytest.fixture
def opened(tmp_path: Path) -> store.Store:
    return store.Store.create_or_open(tmp_path / "store")


def test_a_new_store_holds_no_models(opened: store.Store) -> None:
    assert store.Store.open(opened.path).models() == {}


def test_a_folder_that_is_no_store_does_not_open(tmp_path: Path) -> None:
    with pytest.raises(errors.StoreError, match=r"store\.json: no such file"):
        store.Store.open(tmp_path)


def test_a_folder_with_other_things_is_not_made_into_a_store(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")

    with pytest.raises(errors.StoreError, match=r"thesis\.txt"):
        store.Store.create_or_open(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_store_of_a_later_layout_is_refused(opened: store.Store) -> None:
    (opened.path / "store.json").chmod(0o644)
    (opened.path / "store.json").write_text('{"layout_version": 2}')

    with pytest.raises(errors.StoreError, match="layout version 2"):
        store.Store.open(opened.path)


def test_a_publish_copies_the_named_files_and_nothing_else(opened: store.Store, make_bundle: Any) -> None:
    made = make_bundle()
    expected = content_of(made.folder)
    (made.folder / "notes.txt").write_text("not named by the manifest")
    (made.folder / "verification" / "model.cpu.html").write_text("nor is this")

    published = opened.publish(made.folder)

    assert content_of(published.folder) == expected
    assert opened.models() == {"fake": published}
    assert published.digest == digests.digest_of_listing(
        {name: digests.sha256_of_bytes(content) for name, content in expected.items()}
    )


def test_reports_golden_answers_and_attestations_are_published_where_there_are_any(
    opened: store.Store, make_bundle: Any
) -> None:
    made = make_bundle()
    extra = {"report.html", "golden.json", "attestation.json", "verification/report.html"}
    for name in extra:
        (made.folder / name).write_text("x")

    published = opened.publish(made.folder)

    assert extra <= set(content_of(published.folder))


def test_published_files_are_read_only_and_folders_are_open_to_readers(opened: store.Store, make_bundle: Any) -> None:
    mask = os.umask(0o077)
    try:
        folder = opened.publish(make_bundle().folder).folder
    finally:
        os.umask(mask)

    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}
    assert modes == {0o444}
    assert {stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")] if path.is_dir()} == {0o755}


def test_what_happens_to_the_bundle_later_does_not_reach_the_store(opened: store.Store, make_bundle: Any) -> None:
    made = make_bundle()
    published = opened.publish(made.folder)

    with (made.folder / "model.safetensors").open("r+b") as stream:
        stream.write(b"X")

    published.check()


def test_publishing_the_same_bundle_again_changes_nothing(opened: store.Store, make_bundle: Any) -> None:
    made = make_bundle()
    first = opened.publish(made.folder)
    before = {path: path.stat().st_mtime_ns for path in opened.path.rglob("*") if path.name not in ("lock", "staging")}

    second = opened.publish(made.folder)

    assert second == first
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_publishing_the_same_bundle_again_still_reads_its_files(opened: store.Store, make_bundle: Any) -> None:
    made = make_bundle()
    opened.publish(made.folder)
    (made.folder / "model.safetensors").write_bytes(b"Weights")

    with pytest.raises(errors.DigestMismatch, match=r"model\.safetensors"):
        opened.publish(made.folder)


def test_a_newer_bundle_replaces_the_model_and_leaves_the_older_one_whole(
    opened: store.Store, make_bundle: Any
) -> None:
    old = opened.publish(make_bundle(weights=b"old").folder)

    new = opened.publish(make_bundle(weights=b"new").folder)

    assert opened.models() == {"fake": new}
    old.check()
    new.check()


def test_models_are_published_side_by_side(opened: store.Store, make_bundle: Any) -> None:
    for name in ("shield", "Domain"):
        opened.publish(make_bundle(name).folder)

    assert list(opened.models()) == ["Domain", "shield"]
    assert [bundle.open().manifest.model.name for bundle in opened.models().values()] == ["Domain", "shield"]


@pytest.mark.parametrize("name", ["model.safetensors", "model.onnx", "config.json", "1_Pooling/config.json"])
def test_a_flipped_byte_is_refused_and_leaves_no_trace(opened: store.Store, make_bundle: Any, name: str) -> None:
    made = make_bundle()
    content = bytearray((made.folder / name).read_bytes())
    content[-1] ^= 1
    (made.folder / name).write_bytes(content)

    with pytest.raises(errors.DigestMismatch, match=name):
        opened.publish(made.folder)

    assert opened.models() == {}
    assert list((opened.path / "bundles").iterdir()) == list((opened.path / "staging").iterdir()) == []


@pytest.mark.parametrize("name", ["model.safetensors", "1_Pooling", "manifest.json", "verification/model.cpu.json"])
def test_a_symbolic_link_is_refused_even_to_the_right_bytes(
    opened: store.Store, make_bundle: Any, tmp_path: Path, name: str
) -> None:
    made = make_bundle()
    (made.folder / name).rename(tmp_path / "elsewhere")
    (made.folder / name).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(errors.BundleError, match="a symbolic link"):
        opened.publish(made.folder)

    assert opened.models() == {}


def test_a_missing_file_and_a_fifo_are_refused(opened: store.Store, make_bundle: Any) -> None:
    made = make_bundle()
    (made.folder / "tokenizer.json").unlink()
    with pytest.raises(errors.DigestMismatch, match="no such file"):
        opened.publish(made.folder)

    os.mkfifo(made.folder / "tokenizer.json")
    with pytest.raises(errors.DigestMismatch, match="no regular file"):
        opened.publish(made.folder)


def test_a_file_that_changes_while_it_is_copied_is_refused(
    opened: store.Store, make_bundle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_bundle()
    copy = durable.copy_file

    def change_then_copy(source: int, path: Path) -> str:
        if path.name == "model.safetensors":
            (made.folder / "model.safetensors").write_bytes(b"WEIGHTS")  # in place: the open descriptor sees it
        return copy(source, path)

    monkeypatch.setattr(durable, "copy_file", change_then_copy)

    with pytest.raises(errors.DigestMismatch, match=r"model\.safetensors"):
        opened.publish(made.folder)


def test_a_full_disk_is_one_clear_error_and_leaves_no_trace(
    opened: store.Store, make_bundle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_bundle()

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(durable.os, "write", refuse)
        patch.setattr(durable, "overwrite", lambda *_: None)
        with pytest.raises(errors.StoreError, match="No space left"):
            opened.publish(made.folder)

    assert list((opened.path / "staging").iterdir()) == []
    assert opened.publish(made.folder).check()


def test_a_record_made_elsewhere_is_published_with_the_bundle(
    opened: store.Store, make_bundle: Any, tmp_path: Path, migraphx: Any
) -> None:
    made = make_bundle()
    path = made.write_record("model", to=tmp_path / "from-amd.json", engine=migraphx)

    published = opened.publish(made.folder, [path])

    names = [name for name in content_of(published.folder) if "migraphx-0" in name]
    assert names == [f"verification/model.migraphx-0.{digests.sha256_of_file(path)[:12]}.json"]
    assert published.digest != opened.publish(made.folder).digest


def test_a_record_that_the_bundle_has_already_is_not_added_twice(opened: store.Store, make_bundle: Any) -> None:
    made = make_bundle()
    own = made.folder / "verification" / "model.cpu.json"

    assert opened.publish(made.folder, [own]).digest == opened.publish(made.folder).digest


def test_left_over_staging_is_cleaned_by_the_next_publisher(opened: store.Store, make_bundle: Any) -> None:
    junk = opened.path / "staging" / "dead" / "1_Pooling"
    junk.mkdir(parents=True)
    (junk / "config.json").write_text("half")
    (opened.path / "staging" / "link").symlink_to("/nonexistent")

    opened.publish(make_bundle().folder)

    assert list((opened.path / "staging").iterdir()) == []


def test_a_damaged_bundle_in_the_store_is_named_and_not_published_over(opened: store.Store, make_bundle: Any) -> None:
    made = make_bundle()
    published = opened.publish(made.folder)
    (published.folder / "config.json").chmod(0o644)
    (published.folder / "config.json").write_text("{}")

    with pytest.raises(errors.DigestMismatch, match=r"config\.json"):
        published.check()
    with pytest.raises(errors.DigestMismatch, match=r"config\.json"):
        opened.publish(made.folder)


def test_a_file_that_was_added_to_a_published_bundle_is_noticed(opened: store.Store, make_bundle: Any) -> None:
    published = opened.publish(make_bundle().folder)
    (published.folder / "extra.json").write_text("{}")

    with pytest.raises(errors.DigestMismatch, match="over its listing"):
        published.check()


@pytest.mark.parametrize(
    "pointer",
    [
        '{"model": "other", "bundle": "%s"}',
        '{"model": "fake", "bundle": "../../outside"}',
        '{"model": "fake", "bundle": "' + "0" * 64 + '"}',
        '{"model": "fake"',
        "",
        "x" * 5000,
    ],
)
def test_a_damaged_pointer_is_refused(opened: store.Store, make_bundle: Any, pointer: str) -> None:
    published = opened.publish(make_bundle().folder)
    path = opened.path / "current" / "fake"
    path.chmod(0o644)
    path.write_text(pointer.replace("%s", published.digest))

    with pytest.raises(errors.StoreError):
        opened.models()
