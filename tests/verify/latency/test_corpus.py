"""Requests as they are made, written and read: their lengths, their digest, and what is refused."""

import itertools
import json
import statistics

import msgspec
import pytest

from vela.graphs import errors
from vela.verify.latency import corpus, making

LINE = {"id": "a", "path": "/v1/classify", "body": {"input": "x"}}


def lengths(count=400):
    made = making.make_corpus(making.Wanted(texts=count))
    return sorted(len(request.body["input"]) for request in made.requests)


@pytest.mark.usefixtures("whole_corpus")
def test_lengths_are_those_of_real_traffic():
    found = lengths()

    assert abs(statistics.median(found) - 56) <= 4
    assert abs(found[int(0.95 * len(found))] - 456) <= 70
    assert found[0] <= 3
    assert 1 <= sum(length > 2_500 for length in found) <= 4


def test_long_texts_are_spread_over_the_corpus():
    made = making.make_corpus(making.Wanted(texts=200))
    places = [place for place, request in enumerate(made.requests) if len(request.body["input"]) > 300]

    assert max(later - earlier for earlier, later in itertools.pairwise(places)) < 60
    assert any(place < 100 for place in places)
    assert any(place >= 100 for place in places)


@pytest.mark.parametrize("kind", ["classify", "embed", "rerank", "grounded"])
def test_equal_options_make_equal_requests_no_two_alike(kind):
    wanted = making.Wanted(kind=kind, texts=150, model="m")
    made = making.make_corpus(wanted)

    assert made.sha256 == making.make_corpus(wanted).sha256
    assert len({json.dumps(request.body) for request in made.requests}) == 150
    assert {request.body["model"] for request in made.requests} == {"m"}


def test_more_texts_than_there_are_rows_are_made_of_pieces():
    made = making.make_corpus(making.Wanted(texts=1_500))
    texts = [request.body["input"] for request in made.requests]

    assert len(set(texts)) == 1_500
    assert abs(statistics.median(map(len, texts)) - 56) <= 4


def test_bodies_are_those_that_the_server_takes():
    from vela.serve.http import schema

    kinds = {
        "classify": schema.ClassifyRequest,
        "embed": schema.EmbeddingsRequest,
        "rerank": schema.RerankRequest,
        "grounded": schema.ClassifyRequest,
    }

    for kind, body in kinds.items():
        for request in making.make_corpus(making.Wanted(kind=kind, texts=80)).requests:
            msgspec.convert(request.body, body)


def test_a_users_texts_are_asked_as_they_are(tmp_path):
    own = tmp_path / "own.jsonl"
    own.write_text("".join(json.dumps({"id": f"u{number}", "text": f"own {number}"}) + "\n" for number in range(10)))

    made = making.make_corpus(making.Wanted(texts=5, corpus=own))

    assert [request.body["input"] for request in made.requests] == ["own 0", "own 2", "own 4", "own 6", "own 8"]
    with pytest.raises(errors.VerificationError, match="--corpus with --kind rerank"):
        making.make_corpus(making.Wanted(kind="rerank", corpus=own))


def test_what_was_written_is_read_back_with_its_digest(tmp_path):
    made = making.make_corpus(making.Wanted(texts=30))
    made.write(tmp_path / "c.jsonl")

    found = corpus.Corpus.from_file(tmp_path / "c.jsonl")

    assert found == made
    assert found.sha256 == made.sha256


def test_a_digest_does_not_depend_on_how_a_file_spells_it(tmp_path):
    (tmp_path / "a").write_text('{"id": "a", "path": "/x", "body": {"b": 1, "a": "\\u00e9"}}\n')
    (tmp_path / "b").write_text('\n{"body":{"a":"é","b":1},"path":"/x","id":"a"}')

    found = [corpus.Corpus.from_file(tmp_path / name).sha256 for name in "ab"]

    assert found[0] == found[1]


@pytest.mark.parametrize("damage", [lambda lines: lines[:-1], lambda lines: [lines[0], *lines[:0:-1]]])
def test_a_file_that_was_cut_or_reordered_is_refused(tmp_path, damage):
    path = tmp_path / "c.jsonl"
    making.make_corpus(making.Wanted(texts=5)).write(path)
    path.chmod(0o644)
    path.write_bytes(b"\n".join(damage(path.read_bytes().splitlines())))

    with pytest.raises(errors.VerificationError, match="as its first line says"):
        corpus.Corpus.from_file(path)


@pytest.mark.parametrize(
    "lines",
    [
        ["{"],
        [[1]],
        [LINE | {"path": "v1"}],
        [LINE | {"path": "/a b"}],
        [LINE | {"path": "/a\r\nx-evil: 1"}],
        [LINE | {"path": "/é"}],
        [LINE | {"path": "/" + "a" * 3000}],
        [LINE | {"body": "text"}],
        [LINE | {"extra": 1}],
        [LINE, LINE],
        [{"format": "vela-latency-corpus/2", "requests": 1, "sha256": "x"}, LINE],
    ],
)
def test_a_file_that_holds_something_else_is_refused(tmp_path, lines):
    path = tmp_path / "c.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))

    with pytest.raises(errors.VerificationError, match=r"c\.jsonl"):
        corpus.Corpus.from_file(path)


def test_an_empty_file_compares_nothing(tmp_path):
    (tmp_path / "c.jsonl").write_text("\n\n")

    with pytest.raises(errors.NothingCompared):
        corpus.Corpus.from_file(tmp_path / "c.jsonl")


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(errors.VerificationError, match="cannot be written"):
        making.make_corpus(making.Wanted(texts=1)).write(tmp_path / "none" / "c.jsonl")
