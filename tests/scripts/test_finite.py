"""Numbers of the command line: what is no number is misuse, of every command that takes one."""

import pytest

COMMANDS = {
    "latency run": ["latency", "run", "CORPUS", "--url", "http://127.0.0.1:1", "--out", "OUT", "--timeout"],
    "parity run": ["parity", "run", "CORPUS", "--side", "http", "--out", "OUT", "--load-seconds"],
    "release": ["release", "--store", "OUT", "--memory"],
    "verify-graph": ["verify-graph", "OUT", "--budget"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("value", ["nan", "inf", "1e999"])
def test_what_is_no_finite_number_is_misuse(vela, tmp_path, command, value):
    (tmp_path / "CORPUS").write_text("")
    places = {name: str(tmp_path / name) for name in ("CORPUS", "OUT")}

    code, _, said = vela(*(places.get(word, word) for word in COMMANDS[command]), value)

    assert code == 2
    assert "is no finite number" in said or "is not in the range" in said
    assert not (tmp_path / "OUT").exists()
