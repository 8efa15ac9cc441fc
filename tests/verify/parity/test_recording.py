"""Answer files are somebody else's: what is refused, with the line that is wrong, and what upstream's files need."""

import hashlib
import json

import pytest

from vela.graphs import errors
from vela.verify.parity import comparison, jobs, lines, recording

CLEAR = {"probabilities": [0.9, 0.1]}
INPUTS = [{"id": "p0000", "text": "é"}, {"text": "x", "id": "p0001"}]
SPEC = {
    "Job": "j",
    "Repo": "m",
    "Path": "somewhere",
    "Revision": "r",
    "Mode": "sequence",
    "MaxTokens": 512,
    "Overflow": "truncate",
    "WindowSize": 0,
    "WindowOverlap": 0,
    "Labels": ["a", "b"],
    "Inputs": INPUTS,
}


def read(path, plan=None):
    return recording.Recording.from_file(path, plan)


def refusal(recorded, *added, job=None):
    """Read a file of a good header, one good line and those added; give the error's text."""
    head = recorded.header([job or recorded.job("sequence", 3)])
    path = recorded.write("answers.jsonl", [head, *recorded.answers([CLEAR]), *added])
    with pytest.raises(errors.VerificationError) as refused:
        read(path)
    return str(refused.value)


def test_what_a_recorder_writes_is_read_back(tmp_path):
    plan = jobs.Plan((jobs.Job("j", "m", "r", "sequence", jobs.Options(), ("p",)),), "5" * 64)
    line = lines.Line("j", "p", result={"probabilities": [1, 0]}, latency_ns=(5, 7))
    path = tmp_path / "answers.jsonl"
    path.write_bytes(lines.header_line(plan, "torch", {"torch": "2.13.0"}) + lines.answer_line(line))

    found = read(path)

    assert (found.header.side, found.header.plan, found.header.context) == ("torch", plan, {"torch": "2.13.0"})
    assert found.answers["j", "p"].result.probabilities == (1.0, 0.0)
    assert found.answers["j", "p"].latency_ns == (5, 7)


def test_fields_that_are_not_compared_are_ignored_in_answers_and_refused_in_a_header(recorded):
    more = {"index": 0, "text": "x", "input": {"tokens": 3, "processed_tokens": 3, "truncated": False}}
    head = recorded.header([recorded.job("sequence", 1)])

    assert read(recorded.write("a", [head, *recorded.answers([CLEAR | more])])).answers
    with pytest.raises(errors.VerificationError, match="line 1"):
        read(recorded.write("b", [head | {"thresholds": {}}, *recorded.answers([CLEAR])]))


def test_an_answer_twice_is_refused(recorded):
    assert "line 3: found an answer to 'p0000' of job 'j'" in refusal(recorded, *recorded.answers([CLEAR]))


@pytest.mark.parametrize("line", [{"job": "j", "id": "p0009"}, {"job": "k", "id": "p0000"}])
def test_an_answer_to_what_was_not_asked_is_refused(recorded, line):
    assert "expected one answer to each input that was asked" in refusal(recorded, line | {"result": CLEAR})


@pytest.mark.parametrize("rest", [{}, {"result": CLEAR, "error": "no"}, {"result": None, "error": None}])
def test_an_answer_is_a_result_or_an_error(recorded, rest):
    assert "both or neither of result and error" in refusal(recorded, {"job": "j", "id": "p0001", **rest})


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"scores": [0.5]},
        {"probabilities": 0.5},
        {"probabilities": ["0.5"]},
        {"probabilities": [True]},
        {"probabilities": [10**400]},
        {"probabilities": "NaN"},
        {"probabilities": [0.5], "windows": [{"start": -1, "end": 3}]},
        [],
        7,
    ],
)
def test_a_result_of_another_form_is_refused_with_its_line(recorded, result):
    assert "answers.jsonl, line 3" in refusal(recorded, {"job": "j", "id": "p0001", "result": result})


@pytest.mark.parametrize(
    "line", [b"{", b"[1]", b"null", b"[" * 100_000, b"\xff", b'{"job": "\\ud800", "id": "p0001", "error": "x"}']
)
def test_a_line_that_is_no_answer_is_refused(recorded, line):
    path = recorded.write("answers.jsonl", [recorded.header([recorded.job("sequence", 3)])])
    path.write_bytes(path.read_bytes() + line + b"\n")

    with pytest.raises(errors.VerificationError, match=r"answers\.jsonl, line 2"):
        read(path)


def test_a_rejection_s_reason_is_kept_short_and_without_control_characters(recorded):
    head = recorded.header([recorded.job("sequence", 1)])
    path = recorded.write("answers.jsonl", [head, {"job": "j", "id": "p0000", "error": "\x1b[2J" + "x" * 1000}])

    (answer,) = read(path).answers.values()
    assert answer.error == " [2J" + "x" * (recording.ERROR_SHOWN - 4)


def test_empty_lines_are_skipped(recorded):
    path = recorded.write("answers.jsonl", [recorded.header([recorded.job("sequence", 1)]), *recorded.answers([CLEAR])])
    path.write_bytes(path.read_bytes().replace(b"\n", b"\n\n"))

    assert len(read(path).answers) == 1


def test_lines_and_files_are_bounded(recorded, monkeypatch):
    lines_ = [recorded.header([recorded.job("sequence", 3)]), *recorded.answers([CLEAR] * 3)]
    path = recorded.write("answers.jsonl", lines_)
    longest = max(map(len, path.read_bytes().splitlines(keepends=True)))

    monkeypatch.setattr(recording, "LINE_LIMIT_BYTES", longest)
    assert len(read(path).answers) == 3
    monkeypatch.setattr(recording, "LINE_LIMIT_BYTES", longest - 1)
    with pytest.raises(errors.VerificationError, match="line 1: found more bytes"):
        read(path)
    monkeypatch.setattr(recording, "LINE_LIMIT_BYTES", longest)
    monkeypatch.setattr(recording, "FILE_LIMIT_BYTES", path.stat().st_size - 1)
    with pytest.raises(errors.VerificationError, match="line 4: found more bytes"):
        read(path)


def test_a_load_is_one_for_a_job(recorded):
    load = {"job": "j", "concurrency": 4, "calls": 8, "seconds": 2.0, "latency_ns": [1_000_000] * 8}

    assert "a load of job 'j'" in refusal(recorded, load, load)
    assert "a load of job 'k'" in refusal(recorded, load | {"job": "k"})
    assert "line 3" in refusal(recorded, load | {"seconds": 0})


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "guess"},
        {"inputs": ["a", "a"]},
        {"inputs": ["\x1b[2J"]},
        {"job": "a\nb"},
        {"labels": ["a", "a"]},
        {"labels": ["a"], "thresholds": [0.5, 0.5]},
        {"options": {"window": [512, -1]}},
    ],
)
def test_a_header_that_contradicts_itself_is_refused(recorded, change):
    assert "line 1: found a line that is not of the format" in refusal(
        recorded, job=recorded.job("sequence", 3) | change
    )


def test_a_side_with_control_characters_is_refused(recorded):
    with pytest.raises(errors.VerificationError, match="control characters"):
        read(recorded.write("answers.jsonl", [recorded.header([], side="\x1b[2J")]))


def test_two_jobs_of_one_name_are_refused(recorded):
    job = recorded.job("sequence", 1)

    with pytest.raises(errors.VerificationError, match="jobs repeat"):
        read(recorded.write("answers.jsonl", [recorded.header([job, job])]))


def test_files_of_other_inputs_are_refused(recorded):
    job = recorded.job("sequence", 1)
    one = read(recorded.write("a", [recorded.header([job])]))
    other = read(recorded.write("b", [recorded.header([job]) | {"inputs_sha256": "6" * 64}]))

    with pytest.raises(errors.VerificationError, match="found inputs of sha256 666"):
        comparison.Comparison.from_recordings(one, other)


@pytest.mark.parametrize(
    "change",
    [{"mode": "tokens"}, {"options": {"max_tokens": 512}}, {"inputs": ["p0001"]}, {"labels": ["b", "a"]}, {"job": "k"}],
)
def test_files_that_were_asked_otherwise_are_refused(recorded, change):
    job = recorded.job("sequence", 1, labels=["a", "b"])
    one = read(recorded.write("a", [recorded.header([job])]))
    other = read(recorded.write("b", [recorded.header([job | change])]))

    with pytest.raises(errors.VerificationError, match="Both sides must be asked in the same way"):
        comparison.Comparison.from_recordings(one, other)


def test_another_model_or_revision_is_what_is_compared_and_not_refused(recorded):
    job = recorded.job("sequence", 1)
    one = read(recorded.write("a", [recorded.header([job])]))
    other = read(recorded.write("b", [recorded.header([job | {"model": "n", "revision": "s"}])]))

    assert comparison.Comparison.from_recordings(one, other).plan == one.header.plan


def test_upstream_s_files_have_no_header_and_take_their_jobs_file(recorded):
    jobs_file = recorded.write("answers.jobs.json", [[SPEC]])
    answers = recorded.write("answers.jsonl", recorded.answers([CLEAR, CLEAR]))
    plan = jobs.Plan.from_file(jobs_file)

    found = comparison.compare(
        comparison.Comparison.from_recordings(read(answers, plan), read(answers, plan), plan), "cpu"
    )

    assert found.passed
    assert found.inputs_sha256 == hashlib.sha256(json.dumps([INPUTS], sort_keys=True).encode()).hexdigest()
    assert (found.jobs[0].model, found.jobs[0].options.max_tokens, found.jobs[0].options.window) == ("m", 512, None)
    with pytest.raises(errors.VerificationError, match="--jobs FILE"):
        read(answers)


def test_a_header_must_agree_with_the_jobs_file(recorded):
    plan = jobs.Plan.from_file(recorded.write("answers.jobs.json", [[SPEC]]))
    path = recorded.write("answers.jsonl", [recorded.header([recorded.job("sequence", 2)])])

    with pytest.raises(errors.VerificationError, match="as in --jobs"):
        read(path, plan)


@pytest.mark.parametrize(
    "content",
    [b"{", b"{}", b'[{"Job": "j"}]', b"[" * 100_000, b"[NaN]"],
)
def test_a_jobs_file_that_is_none_is_refused(tmp_path, content):
    path = tmp_path / "x.jobs.json"
    path.write_bytes(content)

    with pytest.raises(errors.VerificationError, match=r"x\.jobs\.json"):
        jobs.Plan.from_file(path)


def test_a_jobs_file_is_bounded(tmp_path, monkeypatch):
    path = tmp_path / "x.jobs.json"
    path.write_bytes(json.dumps([SPEC]).encode())
    monkeypatch.setattr(jobs, "JOBS_LIMIT_BYTES", path.stat().st_size - 1)

    with pytest.raises(errors.VerificationError, match="more than"):
        jobs.Plan.from_file(path)
