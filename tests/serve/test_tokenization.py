"""Content tokens, their places in the text, and the frame around them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import processors

from vela.graphs import bundle as bundles
from vela.graphs import errors, manifest
from vela.serve import tokenization
from vela.serve.model import ServedModel

BOS, EOS, PAD = 256, 257, 258


@pytest.fixture
def tokenizer(served: dict[str, ServedModel]) -> tokenization.Tokenizer:
    return served["names"].tokenizer


@pytest.fixture
def rewritten(bags: dict[str, Path], tmp_path: Path) -> Callable[[processors.TemplateProcessing], Path]:
    """Save the bundles' tokenizer with another frame."""

    def rewrite(frame: processors.TemplateProcessing) -> Path:
        inner = tokenizers.Tokenizer.from_file(str(bags["mood"] / "tokenizer.json"))
        inner.post_processor = frame
        path = tmp_path / "tokenizer.json"
        inner.save(str(path))
        return path

    return rewrite


def test_truncation_and_padding_of_the_file_are_off(tokenizer: tokenization.Tokenizer) -> None:
    content = tokenizer.encode(["more than four"], with_offsets=True)[0]

    assert len(content.ids) == len("more than four")
    assert PAD not in tokenizer.encode(["a"], with_offsets=True)[0].ids


def test_content_has_no_special_tokens_and_the_frame_adds_them(tokenizer: tokenization.Tokenizer) -> None:
    ids = tokenizer.encode(["ab"], with_offsets=False)[0].ids

    framed = tokenizer.frame(ids)

    assert framed.ids == (BOS, *ids, EOS)
    assert (framed.first, framed.count) == (1, 2)


def test_a_pair_is_framed_with_a_separator_and_the_answer_is_about_the_second(
    tokenizer: tokenization.Tokenizer,
) -> None:
    framed = tokenizer.frame_pair((1, 2), (3, 4, 5))

    assert framed.ids == (BOS, 1, 2, EOS, 3, 4, 5, EOS)
    assert framed.ids[framed.first : framed.first + framed.count] == (3, 4, 5)
    assert tokenizer.pair_special_count == 3


def test_a_literal_special_token_in_a_text_is_content(tokenizer: tokenization.Tokenizer) -> None:
    content = tokenizer.encode(["a<eos>b"], with_offsets=True)[0]

    assert content.ids[1] == EOS
    assert content.offsets == ((0, 1), (1, 6), (6, 7))
    assert tokenizer.frame(content.ids).count == 3


def test_bytes_of_one_character_share_its_place(tokenizer: tokenization.Tokenizer) -> None:
    content = tokenizer.encode(["a🙂b"], with_offsets=True)[0]

    assert content.offsets == ((0, 1), (1, 2), (1, 2), (1, 2), (1, 2), (2, 3))


@given(text=st.text(min_size=1))
def test_slices_at_token_places_make_up_the_text(served: dict[str, ServedModel], text: str) -> None:
    content = served["names"].tokenizer.encode([text], with_offsets=True)[0]

    pieces = dict.fromkeys(content.offsets)

    assert "".join(text[start:end] for start, end in pieces) == text


@given(text=st.text())
def test_ids_are_the_same_with_and_without_offsets(served: dict[str, ServedModel], text: str) -> None:
    tokenizer = served["names"].tokenizer

    with_places = tokenizer.encode([text], with_offsets=True)[0]

    assert tokenizer.encode([text], with_offsets=False)[0].ids == with_places.ids


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_a_lone_surrogate_is_an_error_of_its_input(tokenizer: tokenization.Tokenizer, text: str) -> None:
    with pytest.raises(errors.ItemError) as caught:
        tokenizer.encode([text], with_offsets=True)

    assert caught.value.code == "invalid_input"


def test_facts_name_the_frame(bags: dict[str, Path]) -> None:
    facts = tokenization.facts_from_tokenizer(bags["mood"] / "tokenizer.json", pad_id=PAD)

    assert (facts.prefix, facts.separator, facts.suffix) == ((BOS,), (EOS,), (EOS,))
    assert (facts.pad_id, facts.vocabulary_size) == (PAD, 259)


def test_a_tokenizer_without_special_tokens_has_an_empty_frame(
    rewritten: Callable[[processors.TemplateProcessing], Path],
) -> None:
    path = rewritten(processors.TemplateProcessing(single="$A", pair="$A $B", special_tokens=[]))

    facts = tokenization.facts_from_tokenizer(path, pad_id=PAD)

    assert (facts.prefix, facts.separator, facts.suffix) == ((), (), ())


def test_a_frame_that_depends_on_the_text_is_refused(
    rewritten: Callable[[processors.TemplateProcessing], Path],
) -> None:
    path = rewritten(
        processors.TemplateProcessing(single="$A <eos> $A", pair="$A <eos> $B", special_tokens=[("<eos>", EOS)])
    )

    with pytest.raises(errors.CheckpointError, match="move or change"):
        tokenization.facts_from_tokenizer(path, pad_id=PAD)


def test_pairs_with_another_outer_frame_are_not_framed(
    rewritten: Callable[[processors.TemplateProcessing], Path],
) -> None:
    path = rewritten(
        processors.TemplateProcessing(
            single="<bos> $A", pair="$A <eos> $B", special_tokens=[("<bos>", BOS), ("<eos>", EOS)]
        )
    )
    facts = tokenization.facts_from_tokenizer(path, pad_id=PAD)
    inner = tokenizers.Tokenizer.from_file(str(path))

    with pytest.raises(errors.CheckpointError, match="no framing of pairs"):
        tokenization.Tokenizer(inner, facts).frame_pair((1,), (2,))


@pytest.mark.parametrize("pad_id", [-1, 259])
def test_a_padding_id_outside_the_vocabulary_is_refused(bags: dict[str, Path], pad_id: int) -> None:
    with pytest.raises(errors.CheckpointError, match="pad id"):
        tokenization.facts_from_tokenizer(bags["mood"] / "tokenizer.json", pad_id=pad_id)


def test_a_manifest_with_another_frame_is_refused(bags: dict[str, Path]) -> None:
    opened = bundles.Bundle.open(bags["mood"])
    content = opened.manifest
    facts = manifest.msgspec.structs.replace(content.tokenizer, prefix=(EOS,))
    altered = bundles.Bundle(opened.folder, manifest.msgspec.structs.replace(content, tokenizer=facts), "0" * 64)

    with pytest.raises(errors.ManifestInvalid, match=r"prefix \(256,\)"):
        tokenization.Tokenizer.from_bundle(altered)
