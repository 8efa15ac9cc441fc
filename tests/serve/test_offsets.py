"""Offsets in the unit that a caller counts in: a slice in that unit is the span's text."""

from hypothesis import given
from hypothesis import strategies as st

from vela.serve import answers, offsets

REPORT = answers.InputReport(1, 1, truncated=False)


def answer(text: str, start: int, end: int) -> answers.TokenAnswer:
    span = answers.Span("X", start, end, text[start:end], 0.5)
    return answers.TokenAnswer(0, [span], REPORT, [answers.TokenRow(start, end, [1.0])])


def cut(text: str, start: int, end: int, unit: offsets.OffsetUnit) -> str:
    match unit:
        case "utf16":
            return text.encode("utf-16-le")[2 * start : 2 * end].decode("utf-16-le")
        case "byte":
            return text.encode()[start:end].decode()
        case _:
            return text[start:end]


@given(st.data(), st.text(min_size=1), st.sampled_from(["code_point", "utf16", "byte"]))
def test_a_slice_in_the_callers_unit_is_the_spans_text(data, text, unit) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))

    found = offsets.in_unit(answer(text, start, end), text, unit)

    (span,), (token,) = found.spans, found.tokens
    assert cut(text, span.start, span.end, unit) == span.text == text[start:end]
    assert (token.start, token.end) == (span.start, span.end)


def test_by_hand() -> None:
    text = "é🙂x"

    places = {unit: offsets.in_unit(answer(text, 1, 3), text, unit).spans[0] for unit in ("utf16", "byte")}

    assert {unit: (span.start, span.end) for unit, span in places.items()} == {"utf16": (1, 4), "byte": (2, 7)}


def test_tokens_that_were_not_asked_for_stay_absent() -> None:
    bare = answers.TokenAnswer(0, [], REPORT)

    assert offsets.in_unit(bare, "é", "byte").tokens is None
