"""One label per text and its windows."""

import numpy as np

from vela.serve.decode import sequence


def test_the_first_label_wins_a_tie() -> None:
    winner, _ = sequence.reduce_windows(sequence.decode_windows([np.array([1, 3, 3], dtype=np.float32)]))

    assert winner == 1


def test_windows_take_each_labels_maximum_and_then_the_arg_max() -> None:
    winner, merged = sequence.reduce_windows([[0.6, 0.4], [0.3, 0.7]])

    assert merged == [0.6, 0.7]
    assert winner == 1


def test_a_tie_between_windows_goes_to_the_first_label() -> None:
    winner, _ = sequence.reduce_windows([[0.2, 0.8], [0.8, 0.2]])

    assert winner == 0
