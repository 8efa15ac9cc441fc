"""`vela parity compare` as a shell sees it: the table, the record, the exit codes."""

import json
import re
from pathlib import Path

import click
import pytest

from vela.scripts.commands import parity

IDS = [f"p{index}" for index in range(5)]
OPTIONS = {"max_tokens": 512, "overflow": "window", "window": [512, 255]}
REJECTED = {"error": {"code": "invalid_input", "message": "empty"}}


def answer_file(folder: Path, name: str, answers: dict[str, list[dict]], latency_ms: int = 2) -> str:
    """Write a file with one job for each entry; an answer is a list of probabilities or a rejection."""
    jobs = [
        {"job": job, "model": job, "revision": "r", "mode": "sequence", "options": OPTIONS, "inputs": IDS}
        for job in answers
    ]
    head = {"format": "vela-answers/1", "side": name, "inputs_sha256": "5" * 64, "jobs": jobs}
    lines = [head | {"context": {"device": "cpu"}}]
    for job, found in answers.items():
        for item_id, answer in zip(IDS, found, strict=False):
            body = answer if "error" in answer else {"result": answer}
            lines.append({"job": job, "id": item_id, "latency_ns": [9_000_000, latency_ms * 1_000_000], **body})
        lines.append({"job": job, "concurrency": 4, "calls": 40, "seconds": 2.0, "latency_ns": [50_000_000] * 40})
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def label(*probabilities: float) -> dict:
    return {"probabilities": list(probabilities)}


SAME = [label(0.9, 0.1)] * 5
MOVED = [label(0.9, 0.1)] * 4 + [label(0.8993, 0.1007)]
FLIPPED = [label(0.9, 0.1)] * 4 + [label(0.1, 0.9)]


@pytest.fixture
def pair(tmp_path):
    """Write a baseline that always answers the same, and a candidate that answers as told."""

    def make(answers: dict[str, list[dict]], baseline: list[dict] = SAME) -> tuple[str, str]:
        return (
            answer_file(tmp_path, "torch", dict.fromkeys(answers, baseline), latency_ms=150),
            answer_file(tmp_path, "bundle", answers),
        )

    return make


def test_equal_answers_exit_with_0_and_print_the_table(vela, pair):
    status, out, err = vela("parity", "compare", *pair({"shield": SAME}))

    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert lines[0] == "1 of 1 jobs passed the strict bar for cpu: bundle against torch"
    assert re.split(r"  +", lines[1].strip()) == [
        *("JOB", "INPUTS", "COMPARED", "REJECTED", "AGREED", "TIES", "MAX |Δ|", "P50 MS", "P95 MS", "UPSTREAM")
    ]
    assert lines[2].split() == [
        *("shield", "PASS", "5", "5", "0", "100.00%", "0", "0.0e+00", "150.0→2.0", "150.0→2.0", "PASS")
    ]


def test_a_flip_exits_with_1_and_names_the_job_the_figure_and_the_input(vela, pair):
    status, out, err = vela("parity", "compare", *pair({"shield": FLIPPED, "guard": SAME}), "--bar", "upstream")

    assert status == 1
    assert "1 of 2 jobs passed the upstream bar" in out
    assert "  shield: 1 of 5 labels differ where 0 may: p4" in out
    assert err.startswith("vela: shield (1 of 2 jobs): found 1 of 5 labels differ where 0 may: p4")


def test_the_bar_that_was_asked_for_decides_and_the_other_is_stated(vela, pair):
    files = pair({"shield": MOVED})

    upstream = vela("parity", "compare", *files, "--bar", "upstream")
    strict = vela("parity", "compare", *files)

    assert (upstream[0], strict[0]) == (0, 1)
    assert "PASS" in upstream[1].splitlines()[2]
    assert upstream[1].splitlines()[2].endswith("FAIL")
    assert strict[1].splitlines()[2].endswith("PASS")


def test_the_device_class_chooses_the_bounds(vela, pair):
    files = pair({"shield": [label(0.9, 0.1)] * 4 + [label(0.885, 0.115)]})

    found = {
        name: vela("parity", "compare", *files, "--bar", "upstream", "--device-class", name)[0]
        for name in ("cpu", "rocm", "reduced")
    }

    assert found == {"cpu": 1, "rocm": 0, "reduced": 0}


def test_nothing_compared_exits_with_3_even_beside_a_job_that_passed(vela, pair):
    rejected = [REJECTED] * 5
    files = pair({"shield": rejected}, baseline=rejected)

    status, out, err = vela("parity", "compare", *files, "--bar", "upstream")

    assert status == 3
    assert "NOT COMPARED" in out
    assert "vela: not compared: shield (1 of 1 jobs): found none of 5 inputs compared, 5 rejected by both sides" in err


def test_a_failed_job_outranks_one_that_was_not_compared(vela, tmp_path):
    one = answer_file(tmp_path, "a", {"shield": SAME, "guard": [REJECTED] * 5})
    other = answer_file(tmp_path, "b", {"shield": FLIPPED, "guard": [REJECTED] * 5})

    assert vela("parity", "compare", one, other)[0] == 1


def test_no_job_at_all_is_not_compared(vela, tmp_path):
    one, other = answer_file(tmp_path, "a", {}), answer_file(tmp_path, "b", {})

    assert vela("parity", "compare", one, other)[0] == 3


def test_nan_fails_the_upstream_bar_from_the_command_line(vela, pair):
    status, out, _ = vela(
        "parity", "compare", *pair({"shield": [label(float("nan"), float("nan"))] * 5}), "--bar", "upstream"
    )

    assert status == 1
    assert "non-finite: probabilities[0] of the candidate is nan (p0, and 4 more)" in out


def test_the_record_has_upstream_s_shape_and_ours_under_one_key(vela, pair, tmp_path):
    out = tmp_path / "record.json"

    status, printed, _ = vela("parity", "compare", *pair({"shield": FLIPPED}), "--json", "--out", str(out))

    found = json.loads(out.read_text())
    assert (status, json.loads(printed)) == (1, found)
    assert set(found) == {
        *("format", "baseline", "device_class", "thresholds", "inputs_sha256", "context", "jobs", "passed", "vela")
    }
    assert (found["format"], found["baseline"], found["device_class"]) == ("vela1-legacy-parity/1", "legacy", "cpu")
    assert found["thresholds"] == {"probability": 1e-3, "near_tie": 1e-3, "label": 1.0, "spans": 0.995}
    assert found["context"] == {"legacy": {"device": "cpu"}, "runtime": {"device": "cpu"}}
    assert found["passed"] is False
    (job,) = found["jobs"]
    assert set(job) == {
        *("job", "model", "revision", "mode", "options", "inputs", "compared", "both_rejected", "agreement"),
        *("near_ties", "max_abs_delta", "passed", "disagreements", "latency_ms", "throughput"),
    }
    assert job["options"] == OPTIONS
    assert job["disagreements"] == [
        {"id": "p4", "reason": "label", "near_tie": False, "delta": pytest.approx(0.8)},
        {"id": "p4", "reason": "probability", "delta": pytest.approx(0.8)},
    ]
    assert job["latency_ms"] == {"legacy": {"p50": 150.0, "p95": 150.0}, "runtime": {"p50": 2.0, "p95": 2.0}}
    assert job["throughput"]["runtime"] == {"concurrency": 4, "calls_per_s": 20.0, "p50_ms": 50.0, "p95_ms": 50.0}
    assert found["vela"]["verdicts"] == {"upstream": "failed", "strict": "failed"}
    assert found["vela"]["jobs"][0]["verdicts"]["upstream"]["reasons"][0].startswith("1 of 5 labels differ")


def test_an_infinite_bound_is_null_in_the_record(vela, pair):
    _, out, _ = vela("parity", "compare", *pair({"shield": SAME}), "--device-class", "reduced", "--json")

    assert json.loads(out)["thresholds"] == {"probability": None, "near_tie": 0.0, "label": 0.99, "spans": 0.99}


def test_a_record_replaces_an_older_one_and_leaves_nothing_beside_it(vela, pair, tmp_path):
    files = pair({"shield": SAME})
    folder = tmp_path / "records"
    folder.mkdir()

    for _ in range(2):
        assert vela("parity", "compare", *files, "--out", str(folder / "record.json"))[0] == 0

    assert [path.name for path in folder.iterdir()] == ["record.json"]


def test_a_folder_for_the_record_that_is_not_there_is_an_error(vela, pair, tmp_path):
    status, _, err = vela("parity", "compare", *pair({"shield": SAME}), "--out", str(tmp_path / "no" / "record.json"))

    assert status == 1
    assert "Make it first" in err


@pytest.mark.parametrize(
    "arguments", [["compare"], ["compare", "missing", "missing"], ["judge"], ["compare", "--bogus"]]
)
def test_misuse_exits_with_2(vela, arguments):
    assert vela("parity", *arguments)[0] == 2


def test_a_bar_that_is_not_there_is_misuse(vela, pair):
    assert vela("parity", "compare", *pair({"shield": SAME}), "--bar", "generous")[0] == 2


def test_files_of_other_inputs_exit_with_1(vela, pair):
    baseline, candidate = pair({"shield": SAME})
    Path(candidate).write_text(Path(candidate).read_text().replace("5" * 64, "6" * 64))

    status, out, err = vela("parity", "compare", baseline, candidate)

    assert (status, out) == (1, "")
    assert "record them once, and replay them to each" in err


def test_every_subcommand_and_option_has_help_and_is_in_the_documentation():
    group = parity.command
    text = (Path(__file__).resolve().parents[2] / "docs" / "parity.md").read_text()

    assert isinstance(group, click.Group)
    for name, command in group.commands.items():
        options = [option for option in command.params if isinstance(option, click.Option)]
        assert command.help
        assert [option.name for option in options if not option.help] == []
        assert f"vela parity {name}" in text
        assert [option.opts[0] for option in options if option.opts[0] not in text] == []
