"""What a failed graph is nearest to, and what became of the mutants, as the page says it."""

import msgspec
import pytest

from vela.graphs import mutation

LAYERS = (mutation.Layer("layer 1", 1.25e-07), mutation.Layer("layer 2", 0.03125))
DIAGNOSIS = mutation.Diagnosis(
    "window",
    "window: it answers like this checkpoint with a half-window of 63 instead of 64",
    (
        mutation.Hypothesis("a half-window of 63 instead of 64", "window", 4.25e-07),
        mutation.Hypothesis("the checkpoint as it is", None, 0.125),
    ),
    24,
    LAYERS,
)
MUTANTS = mutation.Mutation(
    (
        mutation.Mutant("no window", "window", "killed", "by made-300", 0.5),
        mutation.Mutant("weights rounded to int8", "precision", "seen", "by weights.identity", 1.5e-05),
        mutation.Mutant("tanh GELU", "activation", "alive", "breaks no bound", 1.75e-05),
        mutation.Mutant("theta 10,000", "local theta", "indistinguishable", "it is 10,000 here", 0.0),
    ),
    32,
)


def test_every_hypothesis_is_listed_with_its_distance(read_page, make_failed):
    shown = read_page(make_failed(diagnosis=DIAGNOSIS))

    assert DIAGNOSIS.statement in shown.text
    assert {4.25e-07, 0.125} <= set(shown.figures)
    assert "none: the checkpoint itself" in shown.text


def test_the_states_are_drawn_and_the_first_layer_that_differs_is_said_to_readers_who_do_not_see(
    read_page, make_failed
):
    labels = [
        svg["aria-label"] for svg in read_page(make_failed(diagnosis=DIAGNOSIS)).all("svg") if "aria-label" in svg
    ]

    assert "distance of states after 2 layers; the first that differs: layer 2" in labels


def test_what_each_layer_brings_in_is_explained_where_it_was_measured(read_page, make_failed):
    fed = tuple(mutation.Layer(layer.name, layer.distance, layer.distance / 2) for layer in LAYERS)

    assert "given the checkpoint's own state" not in read_page(make_failed(diagnosis=DIAGNOSIS)).text
    assert (
        "given the checkpoint's own state"
        in read_page(make_failed(diagnosis=msgspec.structs.replace(DIAGNOSIS, layers=fed))).text
    )


def test_the_word_for_what_is_wrong_stands_before_the_sentence(read_page, make_failed):
    assert "local theta:" in read_page(make_failed(named="local theta")).text


def test_without_layers_nothing_is_drawn_of_them(read_page, make_failed):
    bare = mutation.Diagnosis(None, "cause unknown", DIAGNOSIS.hypotheses, 24)

    assert "States after each layer" not in read_page(make_failed(diagnosis=bare)).text


@pytest.mark.parametrize("mutant", MUTANTS.mutants, ids=lambda mutant: mutant.fate)
def test_every_mutant_is_shown_with_what_became_of_it(read_page, make_record, mutant):
    shown = read_page(make_record(mutants=MUTANTS)).text

    assert "Mutants killed: 2 of 3" in shown
    assert mutant.statement in shown
    assert mutant.reason in shown


def test_a_record_without_mutants_says_nothing_of_them(read_page, make_record):
    assert "Mutants killed" not in read_page(make_record()).text
