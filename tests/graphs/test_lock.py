"""One publisher at a time; who waits too long is told for whom."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from vela.graphs import errors, lock, store


@pytest.fixture
def opened(tmp_path: Path) -> store.Store:
    return store.Store.create_or_open(tmp_path / "store")


def test_a_publisher_waits_for_another_and_then_names_it(opened: store.Store, make_bundle: Any) -> None:
    made = make_bundle()

    with (
        lock.hold(opened.path / "lock", 0.0),
        pytest.raises(errors.StoreError, match=rf"process {os.getpid()} on .* since 2.*lock within 0\.1 s"),
    ):
        opened.publish(made.folder, lock_timeout_s=0.1)

    assert opened.publish(made.folder, lock_timeout_s=0.1).check()


def test_the_lock_of_a_killed_publisher_is_free(opened: store.Store, make_bundle: Any) -> None:
    script = (
        "import sys, time, pathlib\nfrom vela.graphs import lock\n"
        "with lock.hold(pathlib.Path(sys.argv[1]), 0.0):\n print('held', flush=True)\n time.sleep(60)"
    )
    command = [sys.executable, "-c", script, str(opened.path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        started = time.monotonic()
        with pytest.raises(errors.StoreError, match=f"process {holder.pid} "):
            opened.publish(make_bundle().folder, lock_timeout_s=0.0)
        assert time.monotonic() - started < 5

        holder.kill()

    assert opened.publish(make_bundle().folder, lock_timeout_s=5.0).check()
