"""Failures that come with texts: offsets that are moved, counted in another unit, or of the first of several places.

Their numbers are in test_failure_catalogue.py.
"""

import itertools
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient
from tokenizers import normalizers

from vela.graphs import bundle as bundles
from vela.graphs import heads
from vela.serve import policy, question, tokenization
from vela.serve.model import ServedModel
from vela.serve.reading import Grounded

NAME = "Xyyy"


def test_sixteen_threads_that_cut_differently_read_as_one_does(served: dict[str, ServedModel]) -> None:
    names = served["names"]
    options = [
        policy.Options(),
        *(policy.Options(overflow="truncate", max_tokens=limit) for limit in range(3, 64, 4)),
        *(policy.Options(overflow="window", window=heads.Window(width, 1)) for width in (4, 9, 20)),
    ]
    asked = list(itertools.product(["hello", "Größe 🙂 " * 4, "x" * 500, "a b " * 12], options)) * 8

    def read(what: tuple[str, policy.Options]) -> str:
        return repr(names.read([what[0], what[0][::-1]], names.settle(what[1], names.default_output)))

    expected = [*map(read, asked)]
    with ThreadPoolExecutor(16) as threads:
        found = [*threads.map(read, asked)]

    assert found == expected


# Emoji of one and of several code points, a letter with a combining accent, and scripts of two and three bytes, some
# of them written from the right.
PIECES = ("a", " ", "é", "🙂", "👨‍👩‍👧", "e\u0301", "中文", "שלום", "عربى", "\u200f", "\r\n", "ﬁ")


@pytest.mark.parametrize("unit", ["code_point", "utf16", "byte"])
@given(text=st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join))
@settings(max_examples=40, deadline=None)
def test_a_slice_in_the_unit_that_was_asked_for_is_the_span_s_text(client: TestClient, unit: str, text: str) -> None:
    options = {"overflow": "truncate", "offset_unit": unit, "return_tokens": True}
    width, encoding = {"code_point": (4, "utf-32-le"), "utf16": (2, "utf-16-le"), "byte": (1, "utf-8")}[unit]
    coded = text.encode(encoding)

    (result,) = client.post("/v1/classify", json={"model": "names", "input": text, "options": options}).json()[
        "results"
    ]

    for span in result["spans"]:
        assert coded[width * span["start"] : width * span["end"]].decode(encoding) == span["text"]
    for token in result["tokens"]:
        assert coded[width * token["start"] : width * token["end"]].decode(encoding)


def id_of(letter: str) -> int:
    """Give a printable letter's id in the byte alphabet, which begins with `!`."""
    return ord(letter) - ord("!")


def one(asked: ServedModel, item: object, **options: object) -> Any:
    return question.answer(question.classify(asked, policy.Options(**options)), [item])[0]  # type: ignore[arg-type,list-item]


@pytest.fixture(scope="module")
def finder(make_bundle: Callable[..., Path]) -> ServedModel:
    """A token model to which X begins a name, y continues one, and nothing else is any."""
    table = np.zeros((259, 3), np.float32)
    table[:, 0] = 9.0
    table[id_of("X")], table[id_of("y")] = (0.0, 9.0, 0.0), (0.0, 0.0, 9.0)
    head = heads.Head("default", "text", heads.BioDecoder(("O", "B-NAME", "I-NAME")), 4096, "reject")
    return ServedModel.open(bundles.Bundle.open(make_bundle("finder", head, table)))


def places(text: str) -> list[tuple[int, int, str]]:
    return [(match.start(), match.end(), NAME) for match in re.finditer(NAME, text)]


NORMALISERS = {
    "nfkc": normalizers.NFKC(),
    "nfd without accents": normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]),
    "clean": normalizers.BertNormalizer(lowercase=False),
    "stripped": normalizers.Sequence([normalizers.Strip(), normalizers.Replace(tokenizers.Regex(r"\s+"), " ")]),
    "nmt": normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()]),
}
REWRITTEN = (
    "…",
    "ﬁ",
    "①",
    "㌔",
    "ﷺ",
    "e\u0301",
    "é",
    "\x00\x01",
    "\u200b\ufeff",
    "\u00ad",
    " \t\r\n ",
    "中",
    "🙂",
    "½",
)


@pytest.mark.parametrize(
    "options", [{}, {"overflow": "window", "window": heads.Window(12, 7)}], ids=["whole", "windows"]
)
@pytest.mark.parametrize("before", REWRITTEN)
@pytest.mark.parametrize("normaliser", NORMALISERS)
def test_a_span_behind_what_a_normaliser_rewrites_stands_where_it_stood(
    finder: ServedModel, tmp_path: Path, normaliser: str, before: str, options: dict[str, object]
) -> None:
    inner = tokenizers.Tokenizer.from_file(str(finder.bundle.path("tokenizer.json")))
    inner.normalizer = NORMALISERS[normaliser]
    inner.save(str(tmp_path / "tokenizer.json"))
    other = replace(finder, tokenizer=tokenization.Tokenizer.from_file(tmp_path / "tokenizer.json", pad_id=258))
    text = f"{before}{NAME}{before} a {before}{NAME} {before}"

    spans = one(other, text, **options).spans

    assert [(span.start, span.end, span.text) for span in spans] == places(text)


def test_text_that_comes_again_is_found_in_each_place(finder: ServedModel) -> None:
    text = f"{NAME}, {NAME} and 🙂{NAME}; {NAME}"

    spans = one(finder, text).spans

    assert len(spans) == 4
    assert [(span.start, span.end, span.text) for span in spans] == places(text)


@pytest.mark.parametrize("context", ["", "z", "z a z ", "z" * 200, "é🙂" * 500])
def test_an_answer_s_spans_stay_whatever_its_context(make_bundle: Callable[..., Path], context: str) -> None:
    """Neither what it says again nor its length, cut or not, moves or drops what the answer is blamed for."""
    table = np.zeros((259, 2), np.float32)
    table[:, 0], table[id_of("z")] = 9.0, (0.0, 9.0)
    decoder = heads.GroundedDecoder(("supported", "hallucinated"), 1, 0.5, "ef" * 32)
    head = heads.Head("default", "grounded", decoder, 256, "truncate")
    judge = ServedModel.open(bundles.Bundle.open(make_bundle("judge", head, table)))

    found = one(judge, Grounded(context, "z?", "z a z"))

    assert found.input.truncated is (len(context.encode()) > 200)
    assert [(span.start, span.end) for span in found.spans] == [(0, 1), (4, 5)]
    assert [span.probability for span in found.spans] == pytest.approx([1 / (1 + np.exp(-9.0))] * 2)
