"""Files of lengths: both kinds of lines are added up, and a line that is neither is named."""

import pytest

from vela.graphs import errors, lengths


def test_lengths_and_counts_are_added_up(tmp_path):
    path = tmp_path / "lengths"
    path.write_bytes(b'12\r\n\n7\n{"tokens": 12, "count": 3}\n  7 \n512')

    found = lengths.Lengths.from_file(path)

    assert found.counts == ((7, 2), (12, 4), (512, 1))
    assert (found.requests, found.tokens) == (7, 574)
    assert found.requests_up_to([6, 7, 12, 511, 512]) == [0, 2, 6, 6, 7]
    assert found.between(7, 512).counts == ((12, 4), (512, 1))


@pytest.mark.parametrize(
    "line",
    [
        *("0", "-3", "1.5", "twelve", "12 13", "true", "null", "1e3", "[12]", '"12"', "10000001", "[" * 100_000),
        *('{"tokens": 3}', '{"tokens": 3, "count": 0}', '{"tokens": 0, "count": 1}'),
        '{"tokens": 3, "count": 1, "more": 1}',
    ],
    ids=lambda line: line[:40],
)
def test_a_line_that_is_no_length_is_named_by_its_number(tmp_path, line):
    path = tmp_path / "lengths"
    path.write_text(f"12\n\n{line}\n")

    with pytest.raises(errors.PlanError, match="a line that is no length") as refused:
        lengths.Lengths.from_file(path)

    assert refused.value.where == f"{path}, line 3"


def test_a_file_without_a_length_or_of_absurd_size_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "lengths"
    path.write_text("\n \n")
    with pytest.raises(errors.PlanError, match="found no length"):
        lengths.Lengths.from_file(path)

    monkeypatch.setattr(lengths, "LENGTHS_LIMIT_BYTES", 8)
    path.write_text("12\n" * 3)
    with pytest.raises(errors.PlanError, match="more than 8 bytes"):
        lengths.Lengths.from_file(path)


@pytest.mark.parametrize("counts", [((3, 1), (2, 1)), ((3, 1), (3, 1)), ((0, 1),), ((3, 0),)])
def test_a_histogram_that_is_none_is_our_callers_misuse(counts):
    with pytest.raises(ValueError, match="ascend"):
        lengths.Lengths(counts)
