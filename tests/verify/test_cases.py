from pathlib import Path

import pytest

from vela.graphs import errors, heads
from vela.serve import tokenization
from vela.verify import cases, rows

pytestmark = pytest.mark.usefixtures("whole_corpus")
TOKENIZER = Path(__file__).resolve().parents[2] / "golden" / "checkpoints" / "tiny-intent" / "tokenizer.json"
TEXT = heads.Head("default", "text", heads.SequenceDecoder(("no", "yes")), 512, "reject")
GROUNDED = heads.Head("default", "grounded", heads.GroundedDecoder(("no", "yes"), 1, 0.5, "0" * 64), 512, "reject")


@pytest.fixture(scope="module")
def tokenizer() -> tokenization.Tokenizer:
    return tokenization.Tokenizer.from_file(TOKENIZER, pad_id=0)


@pytest.fixture(scope="module")
def made(tokenizer: tokenization.Tokenizer, thin_corpus) -> list[cases.Case]:
    return cases.make_cases(TEXT, tokenizer, thin_corpus(), half_window=16, max_tokens=512)


def test_the_corpus_has_hundreds_of_texts_with_unique_ids():
    corpus = rows.read_corpus()

    assert len(corpus.texts) >= 600
    assert len({row.id for row in corpus.texts}) == len(corpus.texts)
    assert len(corpus.grounded) >= 60
    assert len(corpus.pairs) >= 40


def test_every_length_that_matters_is_made_exactly(made):
    lengths = {case.tokens for case in made if case.id.startswith("made-")}

    assert {2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512} <= lengths
    assert all(case.tokens == int(case.id.removeprefix("made-")) for case in made if case.id.startswith("made-"))


def test_no_case_is_longer_than_asked(made):
    assert max(case.tokens for case in made) == 512


def test_offsets_point_at_content_tokens(made):
    assert all(case.first + len(case.offsets) < case.tokens for case in made)
    assert all(len(case.offsets) == case.tokens - 2 for case in made)


def test_grounded_heads_get_framed_triples(tokenizer):
    made = cases.make_cases(GROUNDED, tokenizer, rows.read_corpus(), half_window=16, max_tokens=512)

    assert len(made) >= 40
    assert all(case.first > 3 for case in made)


def test_nothing_that_fits_is_an_error_and_not_an_empty_pass(tokenizer):
    head = heads.Head("default", "text", heads.SequenceDecoder(("no", "yes")), 512, "reject")

    with pytest.raises(errors.NothingCompared):
        cases.make_cases(head, tokenizer, rows.Corpus((), (), (), "0" * 64), half_window=16, max_tokens=1)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"id": "p001", "text": "twice"}', b'{"id": 1, "text": "x"}', b"nonsense"]
)
def test_a_user_corpus_that_cannot_be_trusted_is_refused(tmp_path, content):
    path = tmp_path / "mine.jsonl"
    path.write_bytes(content)

    with pytest.raises(errors.VerificationError, match=r"mine\.jsonl"):
        rows.read_corpus(path)


def test_user_rows_are_judged_as_well(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"id": "mine-1", "text": "hello", "label": "ignored"}\n\n', encoding="utf-8")

    corpus = rows.read_corpus(path)

    assert corpus.texts[-1] == rows.TextRow("mine-1", "hello")
    assert corpus.sha256 != rows.read_corpus().sha256


def test_rerankers_get_every_document_under_its_query_and_long_documents_of_each_length(tokenizer):
    head = heads.Head("default", "pair", heads.RerankDecoder((4,), (8,)), 512, "reject")
    corpus = rows.read_corpus()

    made = cases.make_cases(head, tokenizer, corpus, half_window=16, max_tokens=512)

    documents = {row.id: len(row.documents) for row in corpus.pairs}
    counts = {row_id: sum(case.query == row_id for case in made) for row_id in documents}
    assert counts == documents
    assert {64, 65, 128, 129, 512} <= {case.tokens for case in made if case.query == "made"}
    assert all(case.tokens == int(case.id.removeprefix("made-")) for case in made if case.query == "made")
