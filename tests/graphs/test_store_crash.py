"""A publisher that dies anywhere leaves the store at its previous or its new content, never between."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vela.graphs import store

HERE = Path(__file__).parent


def deaths_of(path: Path, bundle: Path) -> list[dict[str, Any]]:
    command = [sys.executable, str(HERE / "publish_killed.py"), str(path), str(bundle)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_publisher_killed_at_any_call_leaves_the_old_models_or_the_new(tmp_path: Path, make_bundle: Any) -> None:
    opened = store.Store.create_or_open(tmp_path / "store")
    other = opened.publish(make_bundle("other").folder).digest
    old = opened.publish(make_bundle(weights=b"old").folder).digest
    twin = store.Store.create_or_open(tmp_path / "twin")
    bundle = make_bundle(weights=b"new").folder
    new = twin.publish(bundle).digest

    deaths = deaths_of(opened.path, bundle)

    before, after = {"fake": old, "other": other}, {"fake": new, "other": other}
    assert [death for death in deaths if death["models"] not in (before, after)] == []
    assert [death for death in deaths if death["again"] != after or death["junk"]] == []
    assert {tuple(death["bundles"]) for death in deaths} == {tuple(sorted([old, new, other]))}
    # The store changes at one call and never goes back: the rename of the pointer.
    states = [death["models"] == after for death in deaths if death["phase"] == "after"]
    assert states == sorted(states)
    assert [death["call"] for death in deaths if death["phase"] == "after"][states.index(True)] == "rename"
    assert {"open", "write", "fsync", "fchmod", "mkdir", "chmod", "rename", "ioctl"} <= {d["call"] for d in deaths}


def test_a_process_killed_while_it_makes_a_store_leaves_none_or_an_empty_one(tmp_path: Path, make_bundle: Any) -> None:
    bundle = make_bundle().folder
    new = store.Store.create_or_open(tmp_path / "twin").publish(bundle).digest

    deaths = deaths_of(tmp_path / "deep" / "store", bundle)

    assert {"open", "write", "fsync", "fchmod", "mkdir", "chmod", "rename"} <= {death["call"] for death in deaths}
    assert [death for death in deaths if death["models"]] == []
    assert [death for death in deaths if death["again"] != {"fake": new} or death["junk"]] == []


def test_no_file_changing_call_bypasses_the_durable_module(tmp_path: Path, make_bundle: Any) -> None:
    """The count of the tests above is complete: Python's own audit events name the caller of every change."""
    script = """
import os, sys
from pathlib import Path
from vela.graphs import durable, store
CHANGES = {"os.chmod", "os.chown", "os.link", "os.mkdir", "os.putenv", "os.remove", "os.rename", "os.rmdir",
           "os.setxattr", "os.symlink", "os.truncate", "os.utime", "tempfile.mkstemp", "tempfile.mkdtemp",
           "subprocess.Popen", "fcntl.ioctl"}
seen = []
def watch(event, arguments):
    writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes or event in CHANGES or event.startswith("shutil."):
        seen.append((event, sys._getframe(1).f_code.co_filename))
path, dead = Path(sys.argv[1]), Path(sys.argv[2])
sys.addaudithook(watch)
opened = store.Store.create_or_open(path)
(dead / "x").mkdir(parents=True)
ours = len(seen)
opened.publish(Path(sys.argv[3]))
opened.publish(Path(sys.argv[3]))
events = {event for event, _ in seen}
missing = {"open", "os.mkdir", "os.chmod", "os.rename", "os.rmdir", "fcntl.ioctl"} - events
others = {(event, file) for event, file in seen if file != durable.__file__ and "pathlib" not in file}
inside = {(event, file) for event, file in seen[ours:] if file != durable.__file__}
print(missing, others, inside)
"""
    bundle = make_bundle().folder
    path = tmp_path / "store"
    command = [sys.executable, "-B", "-c", script, str(path), str(path / "staging" / "dead"), str(bundle)]

    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set() set() set()"


PUBLISHER = """
import sys
from pathlib import Path
from vela.graphs import store
for turn in range(int(sys.argv[2])):
    store.Store.create_or_open(Path(sys.argv[1])).publish(Path(sys.argv[3 + turn % 2]))
"""


def test_a_reader_beside_two_publishers_always_sees_whole_bundles(tmp_path: Path, make_bundle: Any) -> None:
    path, turns = tmp_path / "store", 20
    folders = [str(make_bundle(weights=weights).folder) for weights in (b"one", b"two")]
    commands = [[sys.executable, "-c", PUBLISHER, str(path), str(turns), *order] for order in (folders, folders[::-1])]

    publishers = [subprocess.Popen(command, stderr=subprocess.PIPE) for command in commands]
    seen: set[str] = set()
    while any(publisher.poll() is None for publisher in publishers):
        if (path / "store.json").exists():
            models = store.Store.open(path).models()
            for published in models.values():
                published.check()
                seen.add(published.digest)
    errors = [publisher.communicate()[1] for publisher in publishers]

    assert errors == [b"", b""]
    assert [publisher.returncode for publisher in publishers] == [0, 0]
    assert len(seen) == 2
    assert len(list((path / "bundles").iterdir())) == 2
    assert list((path / "staging").iterdir()) == []


@pytest.mark.parametrize("kind", ["missing", "wrong"])
def test_a_store_whose_file_is_missing_or_wrong_says_so(tmp_path: Path, kind: str) -> None:
    opened = store.Store.create_or_open(tmp_path / "store")
    (opened.path / "store.json").unlink()
    if kind == "wrong":
        (opened.path / "store.json").write_text("[]")

    with pytest.raises(Exception, match=r"store\.json"):
        store.Store.open(opened.path)
