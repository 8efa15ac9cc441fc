"""Texts far longer than what is kept of them: read no further than that, and kept as if they had been read whole."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vela.graphs import errors, heads
from vela.serve import policy, reading, tokenization
from vela.serve.model import ServedModel
from vela.serve.reading import Grounded, Reading

FEW = 40  # characters that are read at least, here


@pytest.fixture
def lengths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Read little at a time; gives the lengths of all that is tokenised."""
    monkeypatch.setattr(reading, "READ_CHARACTERS", FEW)
    monkeypatch.setattr(tokenization, "JOINED_TOKENS", 4)
    read, inner = list[int](), tokenization.Tokenizer.encode

    def encode(self: tokenization.Tokenizer, texts: Sequence[str], *, with_offsets: bool) -> Any:
        read.extend(map(len, texts))
        return inner(self, texts, with_offsets=with_offsets)

    monkeypatch.setattr(tokenization.Tokenizer, "encode", encode)
    return read


def read_one(model: ServedModel, item: reading.Item, limit: int) -> Reading:
    rules = model.settle(policy.Options(overflow="truncate", max_tokens=limit), model.default_output)
    (found,) = model.read([item], rules)
    assert isinstance(found, Reading), found
    return found


@pytest.mark.parametrize("name", ["mood", "names"])
def test_the_end_of_a_long_text_is_not_read(served: dict[str, ServedModel], lengths: list[int], name: str) -> None:
    found = read_one(served[name], "abcdefgh" * 100_000, 12)

    assert max(lengths) < 200
    assert found.report.truncated
    assert found.report.tokens_lower_bound
    assert 12 < found.report.tokens < 200
    assert found.report.processed_tokens == 12


def test_a_text_that_is_read_to_its_end_says_no_lower_bound(served: dict[str, ServedModel]) -> None:
    found = read_one(served["mood"], "a" * 1000, 12)

    assert (found.report.tokens, found.report.tokens_lower_bound) == (1002, False)


def test_the_context_of_an_answer_is_read_no_further_than_may_be_kept(
    served: dict[str, ServedModel], lengths: list[int]
) -> None:
    found = read_one(served["claims"], Grounded("c" * 1_000_000, "q", "answer"), 30)

    assert max(lengths) < 400
    assert found.rows[0].count == len("answer")
    assert (found.report.processed_tokens, found.report.tokens_lower_bound) == (30, True)


def test_an_answer_that_cannot_be_kept_is_refused_by_a_part_of_it(
    served: dict[str, ServedModel], lengths: list[int]
) -> None:
    model = served["claims"]
    rules = model.settle(policy.Options(overflow="truncate", max_tokens=30), model.default_output)

    (found,) = model.read([Grounded("c", "q", "a" * 1_000_000)], rules)

    assert isinstance(found, errors.ItemError)
    assert found.code == "max_length_exceeded"
    assert max(lengths) < 400


def word_pieces() -> tokenizers.Tokenizer:
    """Words of more than ten characters are one token, beginnings of them up to ten."""
    pieces = ["[UNK]", *"abc ", *(f"##{letter}" for letter in "abc"), "ab", "##ab", "##bc"]
    vocabulary = {piece: place for place, piece in enumerate(pieces)}
    model = tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=10)
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return made


def merged_pairs() -> tokenizers.Tokenizer:
    """Pairs are merged over the whole text, spaces included, so that a cut changes tokens before it."""
    merges = [("a", "b"), ("ab", "c"), ("b", "c"), ("c", " "), ("abc", "a"), ("bc", "bc"), (" ", " ")]
    pieces = dict.fromkeys([*"abc ", *(first + second for first, second in merges)])
    return tokenizers.Tokenizer(tokenizers.models.BPE({piece: place for place, piece in enumerate(pieces)}, merges))


def read_text(tokenizer: tokenization.Tokenizer, text: str, limit: int) -> Reading:
    head = heads.Head("default", "text", heads.SequenceDecoder(("a", "b")), limit, "truncate")
    rules = policy.Policy("truncate", limit, None, None, return_tokens=False)
    (found,) = reading.read_items([text], head, tokenizer, rules)
    assert isinstance(found, Reading), found
    return found


@given(text=st.text("abc ", min_size=FEW, max_size=400), limit=st.integers(2, 20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("make", [word_pieces, merged_pairs])
def test_what_is_kept_is_what_is_kept_of_the_whole(
    tmp_path: Path, lengths: list[int], make: Callable[[], tokenizers.Tokenizer], text: str, limit: int
) -> None:
    make().save(str(tmp_path / "tokenizer.json"))
    tokenizer = tokenization.Tokenizer.from_file(tmp_path / "tokenizer.json", pad_id=0)
    all_tokens = len(tokenizer.encode([text], with_offsets=False)[0].ids)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reading, "READ_CHARACTERS", 10_000)
        whole = read_text(tokenizer, text, limit)

    found = read_text(tokenizer, text, limit)

    assert found.rows == whole.rows
    assert found.report.processed_tokens == whole.report.processed_tokens
    assert found.report.truncated == whole.report.truncated
    assert found.report.tokens <= all_tokens
    assert found.report.tokens_lower_bound or found.report.tokens == all_tokens


def test_a_text_of_long_words_is_read_until_enough_tokens_are_found(tmp_path: Path, lengths: list[int]) -> None:
    word_pieces().save(str(tmp_path / "tokenizer.json"))
    tokenizer = tokenization.Tokenizer.from_file(tmp_path / "tokenizer.json", pad_id=0)
    lengths.clear()

    found = read_text(tokenizer, ("c" * 99 + " ") * 1000, 8)

    assert found.rows[0].ids == (0,) * 8
    assert 1000 < max(lengths) < 4000
    assert found.report.tokens_lower_bound
