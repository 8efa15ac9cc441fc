"""Is it the graph that is wrong, or what runs it: a graph that failed is asked again without rewrites, and on the CPU.

Where the very same file then answers like the checkpoint, its operators are right, and what ONNX Runtime made of them
is not: a wrong fusion, or the arithmetic of an engine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed

import msgspec
import numpy as np

from vela.graphs import causes, errors, mutation
from vela.serve import engine
from vela.verify import asked as asking
from vela.verify import bars, engine_checks, reference, runs

MOST_RUNS = 6
UNOPTIMISED, ON_CPU = "without rewrites", "on the CPU"


@dataclass(frozen=True, slots=True)
class Right:
    """A way of running the graph under which it answers like the checkpoint.

    Attributes:
        cause: What is wrong then.
        how: The way.
        distance: Largest difference to the checkpoint in that way.
        before: In the way that failed.
        count: Runs compared.
    """

    cause: causes.Cause
    how: str
    distance: float
    before: float
    count: int

    def __str__(self) -> str:
        return (
            f"{self.cause}: this very graph answers like the checkpoint {self.how}, to {self.distance:.1e} on "
            f"{self.count} runs on which it is {self.before:.2g} away otherwise"
        )


def explain(
    found: mutation.Diagnosis,
    asked: asking.Asked,
    answers: Mapping[runs.Run, engine_checks.Answer],
    expected: Mapping[str, reference.Answer],
    noise: float,
) -> mutation.Diagnosis:
    """Ask a graph whose cause is unknown in other ways; name what they show.

    Args:
        found: What is known.
        asked: The graph and where it failed.
        answers: What it answered there.
        expected: The checkpoint's answers, by case id.
        noise: The reference's own.
    """
    if found.cause is not None:
        return found
    right, ways = find_right_way(asked, answers, expected, noise)
    if right is None:
        return msgspec.structs.replace(found, ways=ways)
    return msgspec.structs.replace(found, cause=right.cause, statement=f"{right}; {found.statement}", ways=ways)


def find_right_way(
    asked: asking.Asked,
    answers: Mapping[runs.Run, engine_checks.Answer],
    expected: Mapping[str, reference.Answer],
    noise: float,
) -> tuple[Right | None, tuple[str, ...]]:
    """Give the first way in which the graph answers like the checkpoint, and those in which it was wrong too.

    Args:
        asked: The graph and where it failed.
        answers: What it answered there.
        expected: The checkpoint's answers, by case id.
        noise: The reference's own.
    """
    bound = bars.rewrite_bound(noise)
    wrong = {run: _apart(answer, expected[run.case.id]) for run, answer in answers.items() if run.poison is None}
    worst = sorted((run for run in wrong if not wrong[run] <= bound), key=lambda run: -np.nan_to_num(wrong[run]))
    chosen = worst[:MOST_RUNS]
    ways: list[tuple[causes.Cause, str, asking.Asked, bool]] = [("fusion", UNOPTIMISED, asked, False)]
    if asked.device.kind != "cpu":
        ways.append(("engine numerics", ON_CPU, asked.on_cpu(), asked.options.optimise))
    wrong_too: list[str] = []
    for cause, how, way, is_optimised in ways if chosen else ():
        options = changed(asked.options, optimise=is_optimised)
        try:
            distance = _ask(way, options, chosen, expected)
        except (errors.VelaError, ValueError):
            continue  # a way in which it does not run shows nothing
        if distance <= bound:
            return Right(cause, how, distance, max(wrong[run] for run in chosen), len(chosen)), tuple(wrong_too)
        wrong_too.append(how)
    return None, tuple(wrong_too)


def _ask(
    asked: asking.Asked,
    options: engine.SessionOptions,
    chosen: Sequence[runs.Run],
    expected: Mapping[str, reference.Answer],
) -> float:
    session = asked.open(options)
    return max(_apart(engine_checks.answer(session, run, asked.pad_id), expected[run.case.id]) for run in chosen)


def _apart(answer: engine_checks.Answer, expected: reference.Answer) -> float:
    return float(np.max([np.max(np.abs(values - expected[name])) for name, values in answer.items()]))
