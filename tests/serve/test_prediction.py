"""What `vela predict` says of an input's length."""

import pytest

from vela.serve import answers, prediction
from vela.serve.model import ServedModel


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (answers.InputReport(7, 7, truncated=False), "(7 tokens)"),
        (answers.InputReport(70, 64, truncated=True), "(64 of 70 tokens)"),
        (answers.InputReport(70, 64, truncated=True, tokens_lower_bound=True), "(64 of at least 70 tokens)"),
        (answers.InputReport(90, 90, truncated=False, windows=3), "(90 tokens, 3 windows)"),
    ],
)
def test_the_length_is_said_as_far_as_it_is_known(
    served: dict[str, ServedModel], report: answers.InputReport, said: str
) -> None:
    (line,) = prediction.text_lines(served["mood"], answers.SequenceAnswer(0, "calm", [0.9, 0.1], report))

    assert line.endswith(said)
