"""Inputs of jobs: what a mode cannot read is refused before anybody is asked, with the input's name."""

import json

import pytest

from vela.graphs import errors
from vela.serve.reading import Grounded, Pair
from vela.verify.parity import inputs, jobs

TEXT = {"id": "a", "text": "é"}
TRIPLE = {"id": "a", "context": "c", "question": "q", "answer": "a"}
QUERY = {"id": "a", "query": "q", "documents": ["d", "e"]}


def spec(*given, job="j", mode="sequence", overflow="reject"):
    return {
        "Job": job,
        "Repo": "m",
        "Revision": "r",
        "Mode": mode,
        "MaxTokens": 512,
        "Overflow": overflow,
        "Inputs": list(given),
    }


@pytest.fixture
def read(tmp_path):
    def run(*specs, only=()):
        path = tmp_path / "a.jobs.json"
        path.write_text(json.dumps(specs))
        return inputs.Asked.from_file(path, only)

    return run


@pytest.mark.parametrize(
    ("mode", "given", "items"),
    [
        ("sequence", TEXT | {"query": "q", "documents": ["d"]}, ("é",)),
        ("grounded", TRIPLE, (Grounded("c", "q", "a"),)),
        ("rerank", QUERY, (Pair("q", "d"), Pair("q", "e"))),
    ],
)
def test_an_input_is_read_as_its_mode_says(read, mode, given, items):
    asked = read(spec(given, mode=mode))

    assert asked.given["j"][0].items(mode) == items


@pytest.mark.parametrize(
    ("mode", "given", "said"),
    [
        ("sequence", TRIPLE, "other parts than a text"),
        ("grounded", TEXT, "other parts than context, question and answer"),
        ("rerank", QUERY | {"documents": []}, "other parts than a query and 1 to 1,024 documents"),
        ("rerank", QUERY | {"documents": ["d"] * 1025}, "1 to 1,024 documents"),
        ("sequence", {"id": "a", "text": "\ud800"}, "half of a surrogate pair"),
        ("rerank", QUERY | {"documents": ["\udfff"]}, "half of a surrogate pair"),
        ("sequence", {"id": "a", "text": 7}, "inputs of job j that are none"),
    ],
)
def test_an_input_that_a_job_cannot_read_is_refused(read, mode, given, said):
    with pytest.raises(errors.VerificationError, match=said):
        read(spec(given, mode=mode))


def test_pairs_are_read_whole(read):
    with pytest.raises(errors.VerificationError, match="where pairs are read whole"):
        read(spec(QUERY, mode="rerank", overflow="truncate"))


def test_jobs_that_are_chosen_have_a_digest_of_their_own_inputs(read):
    both = (spec(TEXT, job="one"), spec(TRIPLE, job="two", mode="grounded"))

    found = read(*both, only=["two"])

    assert [job.job for job in found.plan.jobs] == ["two"]
    assert found.plan.inputs_sha256 == jobs.digest_of_inputs([[TRIPLE]])
    assert read(*both).plan.inputs_sha256 == jobs.digest_of_inputs([[TEXT], [TRIPLE]])


def test_a_job_that_is_not_there_and_no_job_at_all_are_refused(read):
    with pytest.raises(errors.VerificationError, match="no job 'two'; expected one of one"):
        read(spec(TEXT, job="one"), only=["two"])
    with pytest.raises(errors.VerificationError, match="no job at all"):
        read()
