"""Plots: what is drawn, in the page's own colours, the same for equal records."""

import re

import matplotlib as mpl
import pytest

from vela.graphs import record
from vela.verify.report import figures

DECADES = (12, 0, 345, 0, 6, 0, 7, 0, 0)


@pytest.fixture(autouse=True)
def plain_style():
    with figures.plain_style():
        yield


def texts_of(svg):
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_every_decade_with_a_difference_shows_its_count_and_the_bound_is_named():
    found = texts_of(figures.draw_decades(DECADES, 5e-4, "|Δp|"))

    assert [text for text in ("12", "345", "6", "7") if text not in found] == []
    assert "0" not in found
    assert "bound 5.0e-04" in found


def test_a_decade_wholly_beyond_the_bound_has_another_colour():
    within = figures.draw_decades((1, 0, 0, 0, 0, 0, 0, 0, 0), 5e-4, "|Δp|")
    beyond = figures.draw_decades((1, 0, 0, 0, 0, 0, 1, 0, 0), 5e-4, "|Δp|")
    straddling = figures.draw_decades((1, 0, 0, 0, 0, 1, 0, 0, 0), 5e-4, "|Δp|")

    assert ["var(--failed)" in drawn for drawn in (within, beyond, straddling)] == [False, True, False]


def test_a_bar_without_a_bound_has_no_line():
    drawn = figures.draw_decades(DECADES, None, "|Δp|")

    assert "bound" not in " ".join(texts_of(drawn))
    assert "var(--bound)" not in drawn


def test_each_padding_class_has_a_shape_and_a_colour(make_run):
    runs = [make_run(tokens=size, padding_class=name) for size, name in ((8, "none"), (16, "some"), (32, "window"))]
    drawn = figures.draw_runs(runs, "max_abs_logit", 7e-5, [], "max |Δlogit|")

    circle = re.search(r'<path d="[^"]*h0" style="[^"]*var\(--padding-none\)[^"]*linecap: round', drawn)
    square = re.search(r'<path d="[^"]*h0" style="[^"]*var\(--padding-some\)[^"]*linecap: square', drawn)
    assert circle
    assert square
    assert "fill: var(--padding-window)" in drawn


def test_every_run_is_drawn_once_where_no_two_share_a_place(make_run):
    runs = [make_run(tokens=tokens) for tokens in (4, 8, 16, 32, 64)]

    drawn = figures.draw_runs([*runs, *runs], "max_abs_logit", 7e-5, [], "max |Δlogit|")

    assert drawn.count("h0") == 5
    assert 'aria-label="max |Δlogit| of 10 runs by tokens, 0 of them beyond the bound"' in drawn


def test_a_decision_that_differs_is_ringed(make_run):
    lost = make_run(margin=0.5)

    assert "var(--failed)" not in figures.draw_runs([lost], "max_abs_logit", 7e-5, [], "x")
    assert "var(--failed)" in figures.draw_runs([lost], "max_abs_logit", 7e-5, [lost], "x")


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-300, 1e300])
@pytest.mark.parametrize("tokens", [-5, 0, 1, 2**62])
def test_figures_that_no_gate_writes_are_drawn_at_the_edge(make_run, value, tokens):
    run = make_run(tokens=tokens, max_abs_logit=value)

    assert figures.draw_runs([run], "max_abs_logit", 7e-5, [run], "x").startswith("<svg")
    assert figures.draw_decades(DECADES, max(value, 1e-300), "x").startswith("<svg")


def test_equal_records_give_equal_plots_whatever_the_users_style_is(make_run):
    runs = [make_run(tokens=tokens) for tokens in (4, 8, 16)]

    first = figures.draw_runs(runs, "max_abs_logit", 7e-5, [], "x"), figures.draw_decades(DECADES, 1e-3, "x")
    with mpl.rc_context({"axes.facecolor": "red", "axes.grid": True, "font.size": 30}), figures.plain_style():
        second = figures.draw_runs(runs, "max_abs_logit", 7e-5, [], "x"), figures.draw_decades(DECADES, 1e-3, "x")

    assert first == second


def test_a_plot_has_only_colours_of_the_page_and_nothing_that_needs_an_id(make_run):
    lost = make_run(tokens=9, padding_class="window", margin=1.0)
    runs = [make_run(), make_run(tokens=70, padding_class="some"), lost]
    drawn = figures.draw_runs(runs, "max_abs_logit", 7e-5, [lost], "x") + figures.draw_decades(DECADES, 5e-4, "x")

    assert re.findall(r"#[0-9a-f]{3,}|url\(|\bid=|<use|<style|<metadata|font-family", drawn) == []


def test_the_plot_of_a_large_record_stays_small(make_run):
    runs = [
        make_run(
            tokens=2 + index % 2000, max_abs_logit=1e-6 * (1 + index % 97), padding_class=("none", "some")[index % 2]
        )
        for index in range(20_000)
    ]

    assert len(figures.draw_runs(runs, "max_abs_logit", 7e-5, [], "x")) < 250_000
    assert len(record.DECADES) == 8
