"""Windows over content tokens and the rules that merge them."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vela.graphs import heads
from vela.serve import windows
from vela.serve.windows import Slice


def test_windows_advance_by_width_less_overlap_and_the_last_is_short() -> None:
    planned = windows.plan_windows(11, 2, heads.Window(tokens=6, overlap=1))

    assert planned == (Slice(0, 4), Slice(3, 7), Slice(6, 10), Slice(9, 11))


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (4, 1), (5, 2), (7, 2), (8, 3)])
def test_a_window_more_starts_where_the_content_outgrows_the_last(count: int, expected: int) -> None:
    assert len(windows.plan_windows(count, 2, heads.Window(tokens=6, overlap=1))) == expected


def test_the_family_policy_has_width_2046_and_stride_1023() -> None:
    planned = windows.plan_windows(5000, 2, heads.Window(tokens=2048, overlap=1023))

    assert planned[:2] == (Slice(0, 2046), Slice(1023, 3069))
    assert planned[-1] == Slice(3069, 5000)


@pytest.mark.parametrize(
    ("count", "window"),
    [(0, heads.Window(6, 1)), (5, heads.Window(2, 0)), (5, heads.Window(6, 4)), (5, heads.Window(6, 5))],
)
def test_windows_that_cannot_cover_are_refused(count: int, window: heads.Window) -> None:
    with pytest.raises(ValueError, match="cannot be cut"):
        windows.plan_windows(count, 2, window)


@st.composite
def plans(draw: st.DrawFn) -> tuple[int, heads.Window]:
    width = draw(st.integers(1, 40))
    overlap = draw(st.integers(0, width - 1))
    return draw(st.integers(1, 300)), heads.Window(width + 2, overlap)


@given(plan=plans())
def test_windows_cover_every_token_and_each_adds_one(plan: tuple[int, heads.Window]) -> None:
    count, window = plan

    planned = windows.plan_windows(count, 2, window)

    assert {place for piece in planned for place in range(piece.start, piece.end)} == set(range(count))
    assert all(later.end > earlier.end for earlier, later in itertools.pairwise(planned))
    assert all(piece.end - piece.start <= window.tokens - 2 for piece in planned)


def test_the_maximum_is_taken_for_each_label_apart() -> None:
    merged = windows.merge_maximum([[0.7, 0.1, 0.2], [0.2, 0.5, 0.3]])

    assert merged == [0.7, 0.5, 0.3]


def test_a_token_follows_the_window_with_more_context_and_the_earlier_on_ties() -> None:
    slices = (Slice(0, 5), Slice(2, 7))
    first, second = np.full((5, 1), 1.0), np.full((5, 1), 2.0)

    merged = windows.merge_tokens(slices, [first, second])

    # Shorter sides in the first window: 0 1 2 1 0; in the second, from token 2 on: 0 1 2 1 0. Token 3 is a tie.
    assert merged[:, 0].tolist() == [1, 1, 1, 1, 2, 2, 2]


@given(plan=plans(), seed=st.integers(0, 2**32 - 1))
def test_merged_tokens_equal_the_rule_applied_token_by_token(plan: tuple[int, heads.Window], seed: int) -> None:
    count, window = plan
    slices = windows.plan_windows(count, 2, window)
    rng = np.random.default_rng(seed)
    rows = [rng.random((piece.end - piece.start, 2)) for piece in slices]

    merged = windows.merge_tokens(slices, rows)

    for place in range(count):
        sides = [
            (min(place - piece.start, piece.end - 1 - place), -number)
            for number, piece in enumerate(slices)
            if piece.start <= place < piece.end
        ]
        chosen = -max(sides)[1]
        assert merged[place].tolist() == rows[chosen][place - slices[chosen].start].tolist()


def test_rows_that_do_not_fit_their_window_are_refused() -> None:
    with pytest.raises(ValueError, match="3 rows"):
        windows.merge_tokens((Slice(0, 4),), [np.zeros((3, 2))])


def test_windows_that_leave_a_token_out_are_refused() -> None:
    with pytest.raises(ValueError, match="leave tokens out"):
        windows.merge_tokens((Slice(0, 2), Slice(3, 5)), [np.zeros((2, 1)), np.zeros((2, 1))])
