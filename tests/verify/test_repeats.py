"""Two runs of one input: equal to the bit on the CPU, within a stated bound on a GPU, never a number and nan."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from vela.graphs import contract
from vela.verify import answering, bars, cases

CASE = cases.Case("p1", (2, 7, 1), "a", 0, ())


class Unsteady:
    """A session whose second answer to everything is another."""

    def __init__(self, second: float) -> None:
        self._answers = [1.0, second]
        self.graph = SimpleNamespace(
            outputs=(contract.TensorSpec("logits", "float32", ("batch", 2)),),
            takes_mask=True,
            batch=None,
            sequence=None,
            fits=lambda rows, tokens: True,
        )

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        value = self._answers.pop(0)
        return {"logits": np.full((len(inputs["input_ids"]), 2), value, np.float32)}


def verdict(second: float, device_kind: str) -> str:
    run = cases.Run(CASE)
    return answering._repeat(Unsteady(second), [run], 0, bars.repeat_bound(device_kind)).status


@pytest.mark.parametrize(
    ("second", "device_kind", "expected"),
    [
        (1.0, "cpu", "passed"),
        (float(np.nextafter(np.float32(1), np.float32(2))), "cpu", "failed"),
        (1.00001, "cuda", "passed"),
        (1.0001, "cuda", "failed"),
        (math.nan, "cuda", "failed"),
        (math.inf, "cuda", "failed"),
    ],
)
def test_a_graph_that_differs_from_itself_fails(second: float, device_kind: str, expected: str) -> None:
    assert verdict(second, device_kind) == expected


def test_two_answers_of_nan_are_left_to_the_check_of_finite_outputs() -> None:
    session = Unsteady(math.nan)
    session._answers = [math.nan, math.nan]

    assert answering._repeat(session, [cases.Run(CASE)], 0, 0.0).status == "passed"
