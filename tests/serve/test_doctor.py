"""What `vela doctor` finds, on this machine and on machines that this one is made to look like."""

import json

import pytest

from vela.graphs import errors
from vela.serve import doctor, providers, runtime


def statuses(findings: list[doctor.Finding]) -> dict[str, str]:
    return {finding.about: finding.status for finding in findings}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path):
    """A machine with two GPUs of every kind, whose providers load."""
    node = tmp_path / "node"
    node.touch()
    monkeypatch.setattr(doctor, "NODES", dict.fromkeys(doctor.NODES, str(node)))
    monkeypatch.setattr(doctor, "_count", lambda *_: 2)
    monkeypatch.setattr(providers, "require_provider", lambda *_: None)
    return node


def test_the_cpu_of_this_machine_is_well() -> None:
    found = doctor.examine()

    assert doctor.is_well(found)
    assert {"python", "cores", "engine", "device"} <= statuses(found).keys()


@pytest.mark.parametrize("kind", ["cuda", "migraphx", "rocm"])
def test_a_gpu_that_is_there_is_well_and_the_next_one_is_not(kind: str, gpu) -> None:
    assert doctor.is_well(doctor.examine(f"{kind}:1"))

    found = {finding.about: finding for finding in doctor.examine(f"{kind}:2")}

    assert found["hardware"].status == "wrong"
    assert "below 2" in found["hardware"].fix


@pytest.mark.parametrize("kind", ["cuda", "migraphx", "rocm"])
def test_a_gpu_that_the_container_did_not_get_is_missed(kind: str, gpu) -> None:
    gpu.unlink()

    found = {finding.about: finding for finding in doctor.examine(f"{kind}:0")}

    assert found["driver"].status == "wrong"
    assert "Start the container with" in found["driver"].fix


def test_a_device_that_the_build_is_not_for_is_wrong_with_what_to_install() -> None:
    found = doctor.examine("migraphx:0")

    assert statuses(found)["device"] == "wrong"
    assert "vela-onnx[migraphx]" in found[-1].fix


def test_a_name_of_no_device_is_wrong() -> None:
    assert statuses(doctor.examine("gpu"))["device"] == "wrong"


def test_two_builds_are_wrong_and_nothing_more_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> tuple[str, str]:
        raise errors.ProviderUnavailable("two builds", expected="one", where="installed packages", fix="Uninstall one.")

    monkeypatch.setattr(runtime, "installed_build", refuse)

    found = doctor.examine()

    assert (found[-1].about, found[-1].status, found[-1].fix) == ("engine", "wrong", "Uninstall one.")


def test_a_variable_that_verdicts_are_about_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_DISABLE_FLASH_ATTENTION", "1")

    found = {finding.about: finding for finding in doctor.examine()}

    assert found["environment"].status == "note"
    assert "ORT_DISABLE_FLASH_ATTENTION=1" in found["environment"].found


def test_the_command_prints_and_exits_by_what_was_found(vela) -> None:
    status, out, _ = vela("doctor")
    assert status == 0
    assert "WRONG" not in out

    status, out, _ = vela("doctor", "--device", "cuda:0", "--json")
    assert status == 1
    assert {"fine", "wrong"} <= {finding["status"] for finding in json.loads(out)}
