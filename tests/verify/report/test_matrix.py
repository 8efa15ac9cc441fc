"""Graphs by classes of inputs."""

import pytest

from vela.verify.report import limits, matrix


def laid_out(*records):
    return matrix.Matrix.from_records(records, [limits.Limits.from_record(found) for found in records])


def test_columns_are_ordered_by_length_and_then_by_padding(make_record, make_statistics):
    classes = [("129-512", "window"), ("1-16", "some"), ("17-64", "none"), ("1-16", "none"), ("32769+", "none")]
    found = laid_out(make_record(statistics=tuple(make_statistics(*one) for one in classes)))

    assert [(column.length_class, column.padding_class) for column in found.columns] == [
        ("1-16", "none"),
        ("1-16", "some"),
        ("17-64", "none"),
        ("129-512", "window"),
        ("32769+", "none"),
    ]
    assert found.lengths == (("1-16", 2), ("17-64", 1), ("129-512", 1), ("32769+", 1))


def test_a_graph_without_inputs_of_a_class_has_no_cell_there(make_record, make_statistics):
    short, long = make_statistics("1-16"), make_statistics("65-128")
    found = laid_out(make_record(statistics=(short, long)), make_record(statistics=(long,)))

    assert [cell is None for cell in found.rows[1]] == [True, False]


@pytest.mark.parametrize(
    ("figures", "name", "level"),
    [
        ({}, "Max |Δlogit|", "calm"),
        ({"max_abs_logit": 7e-5}, "Max |Δlogit|", "near"),
        ({"max_abs_logit": 1.0}, "Max |Δlogit|", "broken"),
        ({"max_abs_probability": 5.1e-4}, "Max |Δp|", "broken"),
        ({"p99_abs_probability": 9e-4}, "p99 |Δp|", "broken"),
    ],
)
def test_a_cell_shows_the_figure_that_is_closest_to_its_bound(make_record, make_statistics, figures, name, level):
    ((cell,),) = laid_out(make_record(statistics=(make_statistics(**figures),))).rows

    assert (cell.worst.name, cell.level) == (name, level)


def test_a_figure_at_its_bound_is_not_broken(make_record, make_statistics):
    ((cell,),) = laid_out(make_record(bar="cpu", statistics=(make_statistics(max_abs_probability=1e-3),))).rows

    assert (cell.worst.share, cell.level) == (1.0, "near")


def test_decisions_that_differ_are_counted_in_the_cell(make_record, make_statistics):
    ((cell,),) = laid_out(make_record(statistics=(make_statistics(agreed=1),))).rows

    assert cell.lost == 2
    assert "2 decisions differ" in cell.detail


def test_a_cell_of_an_unknown_bar_is_not_judged(make_record):
    ((cell,),) = laid_out(make_record(bar="generous")).rows

    assert (cell.level, cell.worst) == ("unbounded", None)


def test_names_of_classes_that_nobody_knows_come_last_and_columns_are_bounded(make_record, make_statistics):
    odd = tuple(make_statistics(f"odd{index}", "sideways") for index in range(100))
    found = laid_out(make_record(statistics=(*odd, make_statistics("1-16"))))

    assert found.columns[0].length_class == "1-16"
    assert (len(found.columns), found.hidden) == (matrix.COLUMN_LIMIT, 101 - matrix.COLUMN_LIMIT)
