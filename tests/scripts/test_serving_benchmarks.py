"""The serving benchmarks run, and say what they measured; no test looks at a time, the machine may be busy."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"


@pytest.fixture(scope="module")
def bundle(bundles: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(bundles["tiny-guard"], tmp_path_factory.mktemp("bench") / "bundle"))


def run(script: str, *arguments: str | Path) -> dict:
    done = subprocess.run([sys.executable, BENCH / script, *arguments], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_rates_and_overhead_are_measured_and_answers_compared(bundle: Path) -> None:
    found = run("serving.py", bundle, "--rounds", "1", "--seconds", "0.2")

    assert found["load"]["compared_answers"] > 0
    assert all(rate > 0 for rates in found["load"]["rates_per_s"].values() for rate in rates.values())
    assert all(part["total_less_forward_ms"] > 0 for part in found["overhead"].values())


def test_load_is_given_at_a_rate_and_callers_that_leave_are_followed_by_answers(bundle: Path) -> None:
    found = run("overload.py", bundle, "--seconds", "1", "--capacity-s", "0.3", "--times", "0.2")

    assert found["statuses"].keys() <= {"200", "429", "503"}
    assert found["after_1000_left"] == {"200": 100}
    assert found["holds"].keys() == {"only 200, 429 and 503", "admitted in time", "memory", "recovers"}


def test_a_device_is_timed_bare_and_through_a_server(bundle: Path) -> None:
    found = run("device.py", bundle, "--device", "cpu", "--rounds", "5")

    assert [row["graph"] for row in found["graphs"]] == ["model-unpadded"]
    assert all(0 < row["p50_ms"] <= row["p95_ms"] for row in found["graphs"])
    assert all(told["client_p50_ms"] > told["forward_ms"] > 0 for told in found["served"]["lengths"].values())


def test_a_newer_bundle_is_published_under_load_and_no_answer_is_lost_or_changed(bundle: Path) -> None:
    found = run("reloading.py", bundle, "--tokens", "16", "--callers", "2")

    assert found["statuses"].keys() == {"200"}
    assert found["texts_whose_answer_changed"] == 0
    assert found["newer_bundle_served_after_s"] > 0
    assert found["milliseconds"].keys() >= {"before", "after"}


def test_what_the_gate_decided_is_listed_with_its_figures(
    bundle: Path, checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    found = run(
        "copies.py", tmp_path, checkpoints["tiny-guard"], "--device", "cpu", "--budget", "0.2", "--bundle", bundle
    )

    rows = found["models"]["tiny-guard"]
    assert {"model", "model-unpadded"} <= {row["graph"] for row in rows}
    assert all(row["verdict"] == "passed" and row["agreed"] == row["compared"] > 0 for row in rows)
    assert all(0 < row["max_abs_logit"] < 2e-5 and row["speed"] is None for row in rows)
