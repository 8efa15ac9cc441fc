"""The bounds that a record's figures are held against."""

import pytest

from vela.verify.report import limits


def test_the_strict_bar_bounds_probabilities_their_tail_and_logits(make_record):
    found = limits.Limits.from_record(make_record(reference_noise=1e-5))

    assert (found.unit, found.maximum, found.percentile) == ("|Δp|", 5e-4, 1e-4)
    assert found.logit == pytest.approx(8e-5)


def test_embedders_have_bounds_of_their_own(make_record):
    found = limits.Limits.from_record(make_record(form="embedding"))

    assert (found.unit, found.maximum, found.percentile) == ("|Δ| of unit vectors", 1e-5, None)


def test_a_bar_that_bounds_no_logits_has_none(make_record):
    assert limits.Limits.from_record(make_record(bar="cpu")).logit is None


def test_an_infinite_bound_is_none(make_record):
    assert limits.Limits.from_record(make_record(bar="gpu", form="embedding")).maximum is None


def test_a_bar_that_the_table_does_not_know_bounds_nothing(make_record, make_statistics):
    found = limits.Limits.from_record(make_record(bar="generous"))

    assert found.bar is None
    assert found.measure(make_statistics()) == ()


def test_a_difference_that_no_bar_excuses_is_lost_and_a_near_tie_is_not(make_record, make_run):
    found = make_record()
    bounds = limits.Limits.from_record(found)

    assert not bounds.is_lost(make_run(), found)
    assert not bounds.is_lost(make_run(margin=1e-4), found)
    assert bounds.is_lost(make_run(margin=0.5), found)
    assert limits.Limits.from_record(make_record(bar="generous")).is_lost(make_run(margin=1e-4), found)


def test_a_share_above_one_is_broken_and_a_bound_of_nothing_allows_nothing():
    assert limits.Measured("x", 3.0, 2.0).share == 1.5
    assert limits.Measured("x", 1e-9, 0.0).share == float("inf")
    assert limits.Measured("x", 0.0, 0.0).share == 0.0


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("sequence", "decisions that agree"),
        ("token", "span sets that agree"),
        ("rerank", "places in an order that agree"),
        ("embedding", "cosine"),
    ],
)
def test_a_bar_is_explained_for_the_kind_of_head(make_record, form, said):
    found = make_record(form=form)

    assert limits.bar_facts(found, limits.Limits.from_record(found))[-1][0] == said
