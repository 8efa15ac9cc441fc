"""Heads: what they refuse to be, and the kinds that the HTTP surface names."""

import pytest

from vela.graphs import heads

LABELS = ("no", "yes")


def test_a_window_needs_a_window_and_a_sane_one() -> None:
    with pytest.raises(ValueError, match="no window is given"):
        heads.Head("default", "text", heads.SequenceDecoder(LABELS), 512, "window")
    for tokens, overlap in ((1, 0), (8, -1), (8, 8)):
        with pytest.raises(ValueError, match="at least 2 tokens"):
            heads.Window(tokens, overlap)


def test_every_decoder_has_a_kind_that_the_surface_names() -> None:
    assert set(heads.SURFACE_KINDS) == set(heads.Decoder.__args__)
    assert set(heads.SURFACE_KINDS.values()) == {"sequence", "scores", "token", "embedding", "rerank"}


def test_only_classifiers_have_labels() -> None:
    assert heads.labels_of(heads.SequenceDecoder(LABELS)) == LABELS
    assert heads.labels_of(heads.EmbeddingDecoder((4,), (64,))) == ()
    assert heads.labels_of(heads.RerankDecoder((4,), (64,))) == ()
