"""`vela plan-buckets` as a shell sees it, and the cost table that the benchmark measures for it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vela.graphs import costs, ladder

BENCHMARK = Path(__file__).resolve().parents[2] / "scripts" / "bench" / "costs.py"


@pytest.fixture
def lengths(tmp_path: Path) -> str:
    path = tmp_path / "lengths"
    path.write_text('{"tokens": 20, "count": 90}\n{"tokens": 300, "count": 9}\n900\n2000\n')
    return str(path)


def test_the_plan_is_printed_for_people_with_the_line_to_paste(vela, lengths):
    status, out, _ = vela("plan-buckets", "--lengths", lengths, "--buckets", "3", "--max-tokens", "1000")

    lines = out.splitlines()
    assert status == 0
    assert lines[0].split() == ["TOKENS", "REQUESTS", "SHARE", "PADDED/REAL"]
    assert [line.split() for line in lines[1:5]] == [
        ["32", "90", "90.0%", "1.60"],
        ["304", "9", "9.0%", "1.01"],
        ["1,000", "1", "1.0%", "1.11"],
        ["all", "100", "100.0%", "1.23"],
    ]
    assert lines[5].startswith("above 1,000 tokens: 1 of 101 requests")
    assert "the default ladder's (64,128,256,512,1000)" in lines[6]
    assert "one bucket of 1,000 tokens" in lines[7]
    assert "reckoned for 22 layers of 768" in lines[8]
    assert lines[9] == "vela export --buckets 32,304,1000"


def test_the_plan_as_json_holds_the_same_and_ends_at_the_longest_request_by_default(vela, lengths):
    status, out, _ = vela("plan-buckets", "--lengths", lengths, "--buckets", "2", "--json")

    found = json.loads(out)
    assert status == 0
    assert found["ladder"][-1] == 2000
    assert [bucket["tokens"] for bucket in found["buckets"]] == found["ladder"]
    assert sum(bucket["requests"] for bucket in found["buckets"]) == found["requests"] == 101
    assert found["requests_above"] == 0
    assert found["export"] == f"vela export --buckets {','.join(map(str, found['ladder']))}"


def test_costs_are_reckoned_for_the_checkpoint_that_is_named(vela, lengths, checkpoints):
    sample = ("--checkpoint", str(checkpoints["tiny-intent"]))

    _, out, _ = vela("plan-buckets", "--lengths", lengths, *sample)

    assert "reckoned for 6 layers of 96, 4 of them local" in out


@pytest.mark.parametrize(
    "arguments",
    [[], ["--lengths", "missing"], ["--buckets", "0"], ["--granularity", "1"], ["--max-tokens", "1"], ["--bogus"]],
)
def test_misuse_is_exit_code_2(vela, lengths, arguments):
    given = arguments if arguments in ([], ["--lengths", "missing"]) else ["--lengths", lengths, *arguments]

    assert vela("plan-buckets", *given)[0] == 2


def test_two_sources_of_costs_are_misuse(vela, lengths, checkpoints):
    both = ("--costs", lengths, "--checkpoint", str(checkpoints["tiny-intent"]))

    status, _, err = vela("plan-buckets", "--lengths", lengths, *both)

    assert status == 2
    assert "give one" in err


def test_a_bad_file_is_exit_code_1_and_names_the_line(vela, tmp_path):
    path = tmp_path / "lengths"
    path.write_text("12\ntwelve\n")

    status, out, err = vela("plan-buckets", "--lengths", str(path))

    assert (status, out) == (1, "")
    assert f"{path}, line 2: found a line that is no length" in err


def test_export_s_defaults_are_those_of_the_one_table(vela):
    _, out, _ = vela("export", "--help")

    assert ",".join(map(str, ladder.DEFAULT_BUCKETS)) in "".join(out.split())


def test_costs_that_the_benchmark_measures_on_a_bundle_plan_a_ladder(vela, bundles, tmp_path):
    (tmp_path / "lengths").write_text("20\n" * 9 + "60\n")
    command = [sys.executable, str(BENCHMARK), str(bundles["tiny-intent"]), "--runs", "3", "--lengths", "16,32,64"]

    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (tmp_path / "costs.json").write_text(done.stdout)
    table = costs.read_costs(tmp_path / "costs.json")
    arguments = ("--lengths", str(tmp_path / "lengths"), "--costs", str(tmp_path / "costs.json"))
    status, out, _ = vela("plan-buckets", *arguments)
    refused, _, err = vela("plan-buckets", *arguments, "--max-tokens", "128")

    assert [point.tokens for point in table.points] == [16, 32, 64]
    assert (table.model, table.target, table.engine.device, table.runs) == ("tiny-intent", "ort", "cpu", 3)
    assert (status, refused) == (0, 1)
    assert "measured with tiny-intent on cpu" in out
    assert "costs measured up to 64 tokens" in err
