import os
import platform
from pathlib import Path

from vela.serve import host


def test_cores_follow_the_affinity_of_this_process():
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert host.available_cores() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_a_quota_cuts_the_cores_and_never_below_one(monkeypatch):
    quota = {"text": "150000 100000"}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(Path, "read_text", lambda self: quota["text"])

    assert host.available_cores() == 1
    quota["text"] = "400000 100000"
    assert host.available_cores() == 4
    quota["text"] = "max 100000"
    assert host.available_cores() == 8
    quota["text"] = "50000 100000"
    assert host.available_cores() == 1
    quota["text"] = "nonsense"
    assert host.available_cores() == 8


def test_the_instruction_set_names_the_family_first_and_only_known_extensions():
    family, *extensions = host.instruction_set().split()

    assert family == platform.machine()
    assert set(extensions) <= set(host.KERNEL_FLAGS)
