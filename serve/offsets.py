"""Offsets in the unit that a caller counts in: code points as Python does, UTF-16 as browsers do, or bytes of UTF-8.

A caller that counts otherwise than the server redacts the wrong characters, so the unit is asked for and converted
here, never guessed there.
Source: reference/serving.md §6, failure 15 (four reports of personal data left in the clear).
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Literal, TypeVar

import msgspec

from vela.serve import answers

Placed = TypeVar("Placed", answers.Span, answers.TokenRow)
OffsetUnit = Literal["code_point", "utf16", "byte"]
WIDTHS: dict[OffsetUnit, Callable[[str], int]] = {
    "utf16": lambda character: 1 + (ord(character) > 0xFFFF),
    "byte": lambda character: len(character.encode("utf-8")),
}


def in_unit(answer: answers.TokenAnswer, text: str, unit: OffsetUnit) -> answers.TokenAnswer:
    """Give an answer with its offsets in a unit.

    Args:
        answer: With offsets in code points.
        text: What its spans are slices of.
        unit: The caller's.
    """
    if unit == "code_point" or text.isascii():
        return answer
    places = [0, *accumulate(map(WIDTHS[unit], text))]
    spans = [_moved(span, places) for span in answer.spans]
    tokens = None if answer.tokens is None else [_moved(token, places) for token in answer.tokens]
    moved: answers.TokenAnswer = msgspec.structs.replace(answer, spans=spans, tokens=tokens)
    return moved


def _moved(placed: Placed, places: Sequence[int]) -> Placed:
    moved: Placed = msgspec.structs.replace(placed, start=places[placed.start], end=places[placed.end])
    return moved
