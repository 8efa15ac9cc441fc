"""Unsupported spans of an answer."""

from vela.serve.decode import grounded

ANSWER = "It was completed in 1889 in Rome."


def spans(offsets: list[tuple[int, int]], probabilities: list[float]) -> list[tuple[str, int, int, float]]:
    found = grounded.decode_spans(ANSWER, tuple(offsets), probabilities, 0.5, "hallucinated")
    return [(span.text, span.start, span.end, span.probability) for span in found]


def test_a_run_keeps_its_white_space_and_its_highest_probability() -> None:
    offsets = [(24, 27), (27, 30), (30, 32), (32, 33)]

    assert spans(offsets, [0.1, 0.6, 0.9, 0.2]) == [(" Rome", 27, 32, 0.9)]


def test_the_threshold_itself_does_not_pass() -> None:
    assert spans([(0, 2), (2, 6)], [0.5, 0.5000001]) == [(" was", 2, 6, 0.5000001)]


def test_a_token_without_width_neither_extends_nor_breaks_a_run() -> None:
    assert spans([(0, 2), (2, 2), (2, 6)], [0.8, 0.0, 0.7]) == [("It was", 0, 6, 0.8)]
    assert spans([(0, 2), (2, 2), (2, 6)], [0.1, 0.9, 0.1]) == []


def test_a_supported_token_ends_a_run() -> None:
    assert [text for text, *_ in spans([(0, 2), (2, 6), (6, 16)], [0.8, 0.2, 0.7])] == ["It", " completed"]


def test_a_run_is_open_until_the_answer_ends() -> None:
    assert spans([(32, 33)], [0.9]) == [(".", 32, 33, 0.9)]
