"""Drafts: what an interrupted run left is taken up, by the same question and one writer only."""

import subprocess
import sys

import pytest

from vela.graphs import errors
from vela.verify.parity import draft, jobs, lines, recording

PLAN = jobs.Plan((jobs.Job("j", "m", "r", "sequence", jobs.Options(), ("a", "b", "c")),), "5" * 64)
HEADER = lines.header_line(PLAN, "torch", {"threads": "2"})


def answer(name: str, **fields) -> bytes:
    return lines.answer_line(lines.Line("j", name, **(fields or {"result": {"probabilities": [0.9, 0.1]}})))


LOAD = b'{"job":"j","concurrency":4,"calls":1,"seconds":1.0,"latency_ns":[5]}\n'


@pytest.fixture
def target(tmp_path):
    return tmp_path / "answers.jsonl"


def partial(target):
    return target.with_name("answers.jsonl.partial")


def left_behind(target, content: bytes) -> None:
    partial(target).write_bytes(content)


def test_a_file_appears_under_its_name_only_when_it_is_finished(target):
    with draft.Draft.open(target, HEADER) as made:
        made.append(answer("a"))
        assert partial(target).read_bytes() == HEADER + answer("a")
        assert not target.exists()
        made.finish()

    assert not partial(target).exists()
    assert len(recording.Recording.from_file(target).answers) == 1


def test_what_is_there_is_taken_up_and_rejections_are_told_apart(target):
    rejected = answer("b", error=lines.Problem("max_length_exceeded"))
    left_behind(target, HEADER + answer("a") + rejected + LOAD)

    with draft.Draft.open(target, HEADER) as made:
        found = dict(made.answered), set(made.loads)
        made.append(answer("c"))
        made.finish()

    assert found == ({("j", "a"): True, ("j", "b"): False}, {"j"})
    assert target.read_bytes() == HEADER + answer("a") + rejected + LOAD + answer("c")


@pytest.mark.parametrize("torn", [answer("b")[:-1], answer("b")[:9], b"\x00" * 40, b"\x00" * 40 + b"\n", b"\xff\n"])
def test_a_torn_last_line_is_dropped(target, torn):
    left_behind(target, HEADER + answer("a") + torn)

    with draft.Draft.open(target, HEADER) as made:
        assert list(made.answered) == [("j", "a")]
        made.append(answer("b"))

    assert partial(target).read_bytes() == HEADER + answer("a") + answer("b")


@pytest.mark.parametrize("torn", [b"", HEADER[:20], HEADER[:-1]])
def test_a_draft_without_a_whole_header_begins_anew(target, torn):
    left_behind(target, torn)

    with draft.Draft.open(target, HEADER):
        pass

    assert partial(target).read_bytes() == HEADER


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (lines.header_line(PLAN, "bundle", {"threads": "2"}), "other side"),
        (lines.header_line(PLAN, "torch", {"threads": "4"}), "other threads"),
        (lines.header_line(jobs.Plan(PLAN.jobs, "6" * 64), "torch", {"threads": "2"}), "other inputs_sha256"),
        (lines.header_line(jobs.Plan((), "5" * 64), "torch", {"threads": "2"}), "other jobs"),
        (b'{"a": 1}\n', "its first line is no header"),
    ],
)
def test_a_draft_that_was_begun_otherwise_is_refused_and_kept(target, header, said):
    left_behind(target, header + answer("a"))

    with (
        pytest.raises(errors.VerificationError, match=f"{said}.*or remove answers.jsonl.partial"),
        draft.Draft.open(target, HEADER),
    ):
        pass

    assert partial(target).read_bytes() == header + answer("a")


@pytest.mark.parametrize("wrong", [b"{]\n", answer("a"), answer("z"), b"[1]\n"])
def test_a_draft_that_is_damaged_in_the_middle_is_refused(target, wrong):
    left_behind(target, HEADER + answer("a") + wrong + answer("b"))

    with (
        pytest.raises(errors.VerificationError, match=r"Remove answers\.jsonl\.partial"),
        draft.Draft.open(target, HEADER),
    ):
        pass


def test_a_recording_that_is_there_is_never_written_over(target):
    target.write_bytes(b"precious")

    with pytest.raises(errors.VerificationError, match="or remove it"), draft.Draft.open(target, HEADER):
        pass

    assert target.read_bytes() == b"precious"


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with (
        pytest.raises(errors.VerificationError, match="Make it first"),
        draft.Draft.open(tmp_path / "no" / "a", HEADER),
    ):
        pass


def test_two_writers_are_one_too_many(target):
    script = "import fcntl, sys; f = open(sys.argv[1], 'ab'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", script, str(partial(target))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()

        with pytest.raises(errors.VerificationError, match="another process writes"), draft.Draft.open(target, HEADER):
            pass

        other.kill()


def test_more_than_a_reader_takes_is_refused(target, monkeypatch):
    with draft.Draft.open(target, HEADER) as made:
        monkeypatch.setattr(recording, "FILE_LIMIT_BYTES", len(HEADER) + len(answer("a")))
        made.append(answer("a"))
        with pytest.raises(errors.VerificationError, match="--jobs-only"):
            made.append(answer("b"))
        monkeypatch.undo()
        monkeypatch.setattr(recording, "LINE_LIMIT_BYTES", len(answer("b")) - 1)
        with pytest.raises(errors.VerificationError, match="more bytes"):
            made.append(answer("b"))
