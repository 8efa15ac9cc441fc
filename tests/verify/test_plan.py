"""What a budget leaves of a plan: probes and laws first, the same share of the corpus for all, and nothing hidden."""

import pytest

from vela.graphs import contract, errors, manifest
from vela.verify import cases, plan, runs

OUTPUTS = (contract.TensorSpec("logits", "float32", ("batch", 2)),)


def graph(name: str, sequence: int | None) -> manifest.Graph:
    inputs = contract.graph_inputs(1 if sequence else "batch", sequence or "sequence")
    return manifest.Graph(
        name, name, "0" * 64, 1, "portable", "fp32", "reference", 18, "default", 4, inputs, OUTPUTS, {}, ()
    )


def listed(name: str, required: int, corpus: int) -> runs.Planned:
    made = [runs.Run(cases.Case(f"{name}-{index}", (1, 2), "", 0, ())) for index in range(required + corpus)]
    return runs.Planned(tuple(made[:required]), tuple(made[required:]))


SHORT, LONG = graph("short", 64), graph("long", 8192)
PLANNED = {"short": (SHORT, listed("s", 10, 90)), "long": (LONG, listed("l", 10, 10))}
# a run of the short graph takes a second, of the long one ten, an answer of the reference two
DURATIONS = plan.Durations(
    of_case=lambda case: 2.0,
    of_run=lambda graph, run: 1.0 if graph is SHORT else 10.0,
    of_graph=lambda graph, kept: 5.0 if kept else 0.0,
    of_noise=7.0,
)
WHOLE_S = 100 * (1 + 2) + 20 * (10 + 2) + 2 * 5 + 7
LEAST_S = 10 * (1 + 2) + 10 * (10 + 2) + 2 * 5 + 7


def counts(made: plan.Plan) -> dict[str, int]:
    return {part.graph.id: len(part.kept) for part in made.graphs}


def test_without_a_budget_everything_runs() -> None:
    made = plan.make_plan(PLANNED, DURATIONS, None)

    assert counts(made) == {"short": 100, "long": 20}
    assert made.seconds == pytest.approx(WHOLE_S)
    assert len(made.cases) == 120


@pytest.mark.parametrize("budget", [LEAST_S, LEAST_S + 1, 300, 400, WHOLE_S - 1, WHOLE_S, 10_000])
def test_a_budget_holds_and_is_used(budget: float) -> None:
    made = plan.make_plan(PLANNED, DURATIONS, budget)

    assert made.seconds <= budget
    assert all(len(part.kept) >= part.minimum for part in made.graphs)
    if budget < WHOLE_S:
        assert made.seconds > budget - 16  # not another run of both graphs fits
    else:
        assert counts(made) == {"short": 100, "long": 20}


def test_graphs_keep_the_same_share_of_the_corpus() -> None:
    made = counts(plan.make_plan(PLANNED, DURATIONS, 400))

    assert (made["short"] - 10) / 90 == pytest.approx((made["long"] - 10) / 10, abs=0.1)
    assert made["short"] > 10


def test_what_is_kept_is_the_beginning_of_the_order_of_importance() -> None:
    made = plan.make_plan(PLANNED, DURATIONS, 400)

    for part in made.graphs:
        assert part.kept == PLANNED[part.graph.id][1].all[: len(part.kept)]


def test_where_not_even_probes_fit_the_dearest_graph_is_left_out_and_said_so() -> None:
    made = plan.make_plan(PLANNED, DURATIONS, LEAST_S - 1)

    assert counts(made)["long"] == 0
    assert counts(made)["short"] >= 10
    assert "long: 0 of 20 runs" in "\n".join(made.lines())
    assert "not compared" in "\n".join(made.lines())
    assert next(part for part in made.graphs if part.graph is LONG).lowest_s == pytest.approx(10 * 10 + 5)


def test_a_budget_for_nothing_leaves_nothing() -> None:
    made = plan.make_plan(PLANNED, DURATIONS, 1)

    assert counts(made) == {"short": 0, "long": 0}
    assert made.cases == ()
    assert made.seconds == 0


@pytest.mark.parametrize("budget", [0, -1])
def test_a_budget_of_nothing_is_refused(budget: float) -> None:
    with pytest.raises(errors.VerificationError, match="--budget"):
        plan.make_plan(PLANNED, DURATIONS, budget)


def test_a_plan_is_made_again_from_its_counts() -> None:
    first = plan.make_plan(PLANNED, DURATIONS, 400)

    assert plan.make_plan_of_counts(PLANNED, DURATIONS, counts(first), 400) == first


def test_the_plan_names_every_graph_and_its_time() -> None:
    text = "\n".join(plan.make_plan(PLANNED, DURATIONS, None).lines())

    assert "120 of 120 runs on 2 graphs in about 9 min" in text
    assert "short: 100 of 100 runs, about 2 min" in text


@pytest.mark.parametrize(("seconds", "said"), [(0.4, "0 s"), (89, "89 s"), (100, "2 min"), (5400, "1.5 h")])
def test_durations_are_said_in_the_unit_of_people(seconds: float, said: str) -> None:
    assert plan.say_seconds(seconds) == said
