"""What becomes of a mutant beside a graph's inputs: killed, seen, alive, or not to be told from the checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pytest

from vela.graphs import contract, heads, manifest, mutation
from vela.verify import bars, cases, explaining, mutants, reference, runs, scoring

HEAD = heads.Head("default", "text", heads.SequenceDecoder(("no", "yes")), 64, "reject")
NOISE = 1e-6
LOGITS = np.array([0.5, -0.5])


def graph(sequence: int | None = None, *, takes_mask: bool = True) -> manifest.Graph:
    inputs = contract.graph_inputs(1, sequence or contract.SEQUENCE, takes_mask=takes_mask)
    outputs = (contract.TensorSpec("logits", "float32", (1, 2)),)
    return manifest.Graph(
        "g", "g.onnx", "0" * 64, 1, "ort", "fp32", "reference", 18, "default", 2, inputs, outputs, {}, ()
    )


def case(tokens: int) -> cases.Case:
    return cases.Case(f"c{tokens}", tuple(range(tokens)), "text", 1, ())


POOL = mutants.Pool(tuple(map(case, (8, 32, 48))), pads=35)
ANSWERS = {made.id: {"logits": LOGITS} for made in POOL.cases}


@dataclass(frozen=True)
class Shifted:
    """A mutant whose logits are off by so much on inputs of more than some tokens."""

    facts: mutants.Facts
    by: float
    beyond: int = 0

    def answer(self, rows: Sequence[tuple[int, ...]], *, pads: int = 0) -> list[reference.Answer]:
        return [{"logits": LOGITS + self.by * (len(row) > self.beyond) * np.array([1.0, -1.0])} for row in rows]


def judged(mutant: Shifted, planned: Sequence[runs.Run], bar: bars.Bar = bars.STRICT, **shape) -> mutation.Mutant:
    answers = dict(zip(ANSWERS, mutant.answer([made.ids for made in POOL.cases]), strict=True))
    measured = mutants.Measured(mutant.facts, {} if mutant.facts.equal_because else answers)
    found = mutants.Mutants(POOL, (measured,), (mutant,))
    yardstick = scoring.Yardstick(found, HEAD, ANSWERS, NOISE, bar)
    return yardstick.score(graph(**shape), planned).mutants[0]


WINDOW = mutants.Facts("a half-window of 15 instead of 16", "window")
EVERY = [runs.Run(made) for made in POOL.cases]


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_mutant_whose_answers_are_no_numbers_is_killed(number) -> None:
    found = judged(Shifted(mutants.Facts("weights rounded to float16", "precision"), number), EVERY)

    assert found.fate == "killed"


def test_nothing_is_added_for_a_graph_that_gives_other_outputs() -> None:
    made = Shifted(WINDOW, 0.1, beyond=40)
    answers = dict(zip(ANSWERS, made.answer([case.ids for case in POOL.cases]), strict=True))
    found = mutants.Mutants(POOL, (mutants.Measured(WINDOW, answers),), (made,))
    yardstick = scoring.Yardstick(found, HEAD, ANSWERS, NOISE, bars.STRICT)
    short = [runs.Run(POOL.cases[0])]
    renamed = msgspec.structs.replace(graph(), outputs=(contract.TensorSpec("output_0", "float32", (1, 2)),))

    assert [run.case.id for run in yardstick.separate(graph(), short)] == ["c48"]
    assert yardstick.separate(renamed, short) == ()


def test_a_mutant_is_killed_by_an_input_that_breaks_a_bound() -> None:
    found = judged(Shifted(WINDOW, 0.1, beyond=40), EVERY)

    assert found.fate == "killed"
    assert "c48 of 48 tokens" in found.reason
    assert found.max_abs_logit == pytest.approx(0.1)


def test_inputs_that_do_not_show_it_leave_it_alive_or_unseen() -> None:
    short = EVERY[:2]

    assert judged(Shifted(WINDOW, 0.1, beyond=40), short).fate == "alive"
    assert judged(Shifted(WINDOW, 0.1, beyond=40), short, sequence=32).fate == "indistinguishable"
    assert judged(Shifted(WINDOW, 1e-5), EVERY).fate == "tolerated"
    assert judged(Shifted(WINDOW, 2e-6), EVERY).fate == "indistinguishable"


def test_a_static_check_sees_what_no_answer_shows() -> None:
    facts = replace(WINDOW, cause="precision", seen_by="weights.identity")

    found = judged(Shifted(facts, 1e-5), EVERY)

    assert found.fate == "seen"
    assert "weights.identity" in found.reason


def test_a_mutant_that_config_makes_equal_is_listed_with_the_reason() -> None:
    found = judged(Shifted(replace(WINDOW, equal_because="config.json states it"), 0.0), EVERY)

    assert (found.fate, found.reason) == ("indistinguishable", "config.json states it")


def test_a_mutant_of_padding_counts_on_padded_runs_alone() -> None:
    facts = mutants.Facts("the padding mask ignored", "padding mask", needs_pads=True)

    assert judged(Shifted(facts, 0.1), EVERY).fate == "alive"
    assert judged(Shifted(facts, 0.1), [runs.Run(made, pad_to=60) for made in POOL.cases]).fate == "killed"
    assert judged(Shifted(facts, 0.1), EVERY, takes_mask=False).reason == "this graph takes no mask, so no pads"
    assert judged(Shifted(facts, 0.1), EVERY, sequence=64).fate == "killed"


def test_a_graph_of_one_length_without_a_mask_is_not_blamed_for_inputs_that_it_cannot_take() -> None:
    shown_by_short = Shifted(WINDOW, 0.1, beyond=4)

    assert judged(shown_by_short, EVERY[2:], sequence=48, takes_mask=False).fate == "killed"
    assert judged(shown_by_short, [], sequence=40, takes_mask=False).fate == "indistinguishable"


def test_a_looser_bar_kills_less() -> None:
    assert judged(Shifted(WINDOW, 1e-3), EVERY).fate == "killed"
    assert judged(Shifted(WINDOW, 1e-3), EVERY, bars.STRICT_GPU).fate == "tolerated"


def score(*fates: mutation.Fate) -> mutation.Mutation:
    made = (mutation.Mutant(f"mutant {fate}", "window", fate, "why", 0.0) for fate in fates)
    return mutation.Mutation(tuple(made), 3)


def test_one_mutant_alive_blocks_a_pass_and_is_named() -> None:
    found = explaining.check_probes(score("killed", "seen", "alive", "indistinguishable"), bars.STRICT)

    assert found.status == "not_run"
    assert "2 of 3" in found.detail
    assert "mutant alive" in found.detail


def test_what_the_bar_tolerates_blocks_nothing_and_is_counted() -> None:
    found = explaining.check_probes(score("killed", "tolerated"), bars.STRICT)

    assert found.status == "passed"
    assert "1 of 1" in found.detail
    assert "1 are within the bounds" in found.detail


def test_every_graph_is_asked_some_of_the_pool() -> None:
    listed = [
        runs.Planned(tuple(runs.Run(case(tokens)) for tokens in range(start, 900, 37)), ()) for start in range(2, 30)
    ]

    pool = mutants.choose_pool(listed, list(map(case, range(2, 700))), half_window=16, count=16)

    ids = {made.id for made in pool.cases}
    for planned in listed:
        fitting = [run.case for run in planned.required if run.case.tokens <= mutants.POOL_TOKENS]
        assert len(ids & {made.id for made in fitting}) >= mutants.OF_EACH_GRAPH
        assert max(fitting, key=lambda made: made.tokens).id in ids


def test_none_alive_is_a_pass_and_other_bars_only_state_the_score() -> None:
    assert explaining.check_probes(score("killed", "indistinguishable"), bars.STRICT).status == "passed"
    assert explaining.check_probes(score("alive"), bars.STRICT_GPU).status == "passed"


def test_the_pool_takes_every_length_up_to_four_windows() -> None:
    planned = [runs.Run(case(tokens)) for tokens in (*range(2, 200), 300, 512, 900)]

    pool = mutants.choose_pool([], [run.case for run in planned], half_window=16, count=10)

    lengths = [made.tokens for made in pool.cases]
    assert len(lengths) == 10
    assert (lengths[0], lengths[-1]) == (2, 512)
    assert pool.pads == 35


def test_the_corpus_fills_a_pool_that_probes_do_not() -> None:
    required = tuple(runs.Run(case(tokens)) for tokens in (2, 64))

    pool = mutants.choose_pool([runs.Planned(required, ())], list(map(case, range(3, 60))), half_window=16, count=8)

    assert [made.tokens for made in pool.cases[:2]] == [2, 64]
    assert len({made.tokens for made in pool.cases}) == 8
