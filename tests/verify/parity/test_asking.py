"""Recording: every input twice and in order, one answer held at a time, and what a dead server left taken up again."""

import itertools
import json
import threading

import pytest

from vela.graphs import errors
from vela.verify.parity import asking, inputs, jobs, lines, recording, side

NAMES = ("a", "b", "c", "d")


def job(name="j", **fields):
    return jobs.Job(name, "m", "r", "sequence", jobs.Options(512, "truncate"), NAMES, **fields)


def asked(*found):
    given = tuple(inputs.Given(name, text=f"text {name}") for name in NAMES)
    return inputs.Asked(jobs.Plan(found, "5" * 64), {one.job: given for one in found})


class Asked:
    """A side that counts; it rejects `rejects`, and is gone after so many questions."""

    def __init__(self, rejects=(), lives=None):
        self.name = "counted"
        self.context = {"device": "none"}
        self.opened: list[str] = []
        self.calls: list[str] = []
        self.closed = 0
        self.rejects = rejects
        self.lives = lives
        self._lock = threading.Lock()

    def state(self, found):
        return side.state_labels(found, ("x", "y"), (), "stated")

    def open(self, found):
        self.opened.append(found.job)
        return self

    def close(self):
        self.closed += 1

    def ask(self, given):
        with self._lock:
            if self.lives is not None and len(self.calls) >= self.lives:
                raise errors.EngineError("no answer", expected="one", where="server", fix="Look at it.")
            self.calls.append(given.id)
            number = len(self.calls)
        if given.id in self.rejects:
            return side.Call(number, lambda: side.Reply(error=lines.Problem("max_length_exceeded", "long")))
        return side.Call(number, lambda: side.Reply({"probabilities": [0.5, 0.5], "label": "x", "number": number}))


def record(out, system, plan=None, load_s=0.0, told=None):
    return asking.Asking(plan or asked(job()), system, load_s, ([] if told is None else told).append).record(out)


def lines_of(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_each_input_is_asked_twice_in_order_and_the_first_answer_is_kept(tmp_path):
    system = Asked(rejects={"b"})

    found = record(tmp_path / "out", system)

    header, *answers = lines_of(tmp_path / "out")
    assert system.calls == ["a", "a", "b", "b", "c", "c", "d", "d"]
    assert [(one["id"], one["latency_ns"]) for one in answers] == [
        ("a", [1, 2]),
        ("b", [3, 4]),
        ("c", [5, 6]),
        ("d", [7, 8]),
    ]
    assert [one["result"]["number"] for one in answers if "result" in one] == [1, 5, 7]
    assert answers[1]["error"]["code"] == "max_length_exceeded"
    assert (found, str(found[0])) == ([asking.Recorded("j", 3, 1, 0)], "j: 3 answered, 1 rejected")
    assert (header["side"], header["context"]["device"]) == ("counted", "none")
    assert {"processor", "system", "vela"} <= {*header["context"]}


def test_a_side_that_answers_once_and_fails_the_other_time_ends_the_run(tmp_path):
    class Wavering(Asked):
        def ask(self, given):
            found = super().ask(given)
            if len(self.calls) != 4:
                return found
            failed = side.Reply(error=lines.Problem("internal_error"))
            return side.Call(1, lambda: failed, is_answered=False)

    with pytest.raises(errors.EngineError, match="internal_error to b once, and an answer the other time"):
        record(tmp_path / "out", Wavering())
    assert not (tmp_path / "out").exists()


def test_the_header_states_what_the_model_says_of_itself(tmp_path):
    record(tmp_path / "out", Asked())

    (stated,) = recording.Recording.from_file(tmp_path / "out").header.plan.jobs
    assert (stated.labels, stated.revision) == (("x", "y"), "stated")


def test_a_server_that_dies_leaves_what_it_answered_and_the_same_command_asks_only_the_rest(tmp_path):
    dying, living = Asked(lives=5), Asked()

    with pytest.raises(errors.EngineError, match="2 of 4 answers are recorded; the same command goes on from there"):
        record(tmp_path / "out", dying)
    left = [path.name for path in tmp_path.iterdir()]
    found = record(tmp_path / "out", living)

    assert left == ["out.partial"]
    assert dying.closed == 1
    assert living.calls == ["c", "c", "d", "d"]
    assert str(found[0]) == "j: 4 answered, 0 rejected, 2 of them before"
    assert [one["id"] for one in lines_of(tmp_path / "out")[1:]] == list(NAMES)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_each_answer_is_in_the_file_before_the_next_question(tmp_path):
    seen = []

    class Watching(Asked):
        def ask(self, given):
            seen.append(len((tmp_path / "out.partial").read_bytes().splitlines()) - 1)
            return super().ask(given)

    record(tmp_path / "out", Watching())

    assert seen == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_job_that_is_whole_is_not_loaded_again(tmp_path):
    plan = asked(job("one"), job("two"))
    with pytest.raises(errors.EngineError):
        record(tmp_path / "out", Asked(lives=8), plan)

    system = Asked()
    record(tmp_path / "out", system, plan)

    assert system.opened == ["two"]


def test_several_callers_ask_what_was_answered_each_its_share(tmp_path):
    system = Asked(rejects={"b"})

    record(tmp_path / "out", system, load_s=0.05)

    load = lines_of(tmp_path / "out")[-1]
    under_load = system.calls[8:]
    assert (load["concurrency"], load["calls"]) == (4, len(load["latency_ns"]))
    assert load["calls"] == len(under_load) > 0
    assert {*under_load} <= {"a", "c", "d"}
    assert load["seconds"] >= 0.05


def test_callers_stop_when_their_time_is_up():
    ticks = itertools.count(0, 1_000_000_000)
    lock = threading.Lock()

    def clock():
        with lock:
            return next(ticks)

    system = Asked()
    found = asking.measure_load(job(), system, asked(job()).given["j"], 20.0, clock)

    assert found.calls == len(system.calls) == 19
    assert found.seconds >= 20


def test_a_job_of_rejections_has_no_load(tmp_path):
    system = Asked(rejects={*NAMES})

    record(tmp_path / "out", system, load_s=5.0)

    assert len(system.calls) == 8
    assert not recording.Recording.from_file(tmp_path / "out").loads


def test_a_load_that_was_stopped_is_measured_again(tmp_path):
    with pytest.raises(errors.EngineError, match="4 of 4 answers are recorded"):
        record(tmp_path / "out", Asked(lives=9), load_s=5.0)

    system = Asked()
    record(tmp_path / "out", system, load_s=0.02)

    assert len(recording.Recording.from_file(tmp_path / "out").loads) == 1
    assert len(lines_of(tmp_path / "out")) == 6


def test_another_question_does_not_go_on_from_there(tmp_path):
    with pytest.raises(errors.EngineError):
        record(tmp_path / "out", Asked(lives=2))

    with pytest.raises(errors.VerificationError, match="other inputs_sha256"):
        record(tmp_path / "out", Asked(), inputs.Asked(jobs.Plan((job(),), "6" * 64), asked(job()).given))


def test_a_model_of_other_labels_than_the_jobs_file_says_is_refused(tmp_path):
    with pytest.raises(errors.VerificationError, match="found the labels x, y; expected y, x"):
        record(tmp_path / "out", Asked(), asked(job(labels=("y", "x"))))


def test_progress_is_told(tmp_path):
    told: list[str] = []

    record(tmp_path / "out", Asked(), load_s=0.01, told=told)

    assert told == ["j: 4 of 4 asked", "j: 4 callers for 0.01 s"]


def test_failing_quickly_under_load_does_not_pass_for_speed(tmp_path):
    class Overwhelmed(Asked):
        def ask(self, given):
            found = super().ask(given)
            if len(self.calls) <= 8:
                return found
            return side.Call(1, lambda: side.Reply(error=lines.Problem("internal_error", "no memory")), False)

    with pytest.raises(errors.EngineError, match=r"internal_error: no memory to [abcd] from one of 4 callers"):
        record(tmp_path / "out", Overwhelmed(), load_s=5.0)


def test_a_name_that_is_taken_is_refused_before_anything_is_read(tmp_path):
    class Unread(Asked):
        def state(self, found):
            raise AssertionError("read")

    (tmp_path / "out").write_text("precious")

    with pytest.raises(errors.VerificationError, match="or remove it"):
        record(tmp_path / "out", Unread())
