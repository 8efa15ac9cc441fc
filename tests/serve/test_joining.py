"""Rows share a run only where it was tried that not a bit differs."""

import numpy as np
import pytest
from msgspec.structs import replace

from vela.graphs import bundle
from vela.serve import joining, policy
from vela.serve.forward import Loaded
from vela.serve.model import ServedModel

IDS = list(range(5, 90))


def rules(model: ServedModel) -> policy.Policy:
    return model.settle(policy.Options(), model.default_output)


@pytest.fixture(scope="module")
def model(bundles) -> ServedModel:
    return ServedModel.open(bundle.Bundle.open(bundles["tiny-intent"]), demand="nothing")


class Other:
    """A session that answers otherwise in company, in one row, by one bit."""

    def __init__(self, inner, row: int) -> None:
        self._inner, self._row, self.graph = inner, row, inner.graph

    def run(self, inputs, run_options=None):
        found = self._inner.run(inputs, run_options)
        if len(inputs["input_ids"]) > self._row > 0:
            found = {name: values.copy() for name, values in found.items()}
            for values in found.values():
                values[self._row] = np.nextafter(values[self._row], np.float32(9))
        return found


def test_a_graph_whose_rows_answer_alike_in_company_may_share(model) -> None:
    session = next(iter(model.loaded.values())).session

    assert joining.proven_rows(session, IDS, 0) == joining.MOST_ROWS
    assert all(loaded.proven_rows == joining.MOST_ROWS for loaded in model.loaded.values())


@pytest.mark.parametrize("row", [1, 8, 15])
def test_one_bit_in_one_row_of_one_shape_forbids_it(model, row) -> None:
    session = Other(next(iter(model.loaded.values())).session, row)

    assert joining.proven_rows(session, IDS, 0) == 1


def test_long_rows_run_alone_and_short_ones_share() -> None:
    assert [joining.rows_that_may_share(16, tokens) for tokens in (8, 16, 64, 200, 512, 8192)] == [16, 16, 4, 1, 1, 1]
    assert joining.rows_that_may_share(1, 8) == 1


def test_rows_that_shared_a_run_have_the_bits_of_rows_that_did_not(model) -> None:
    readings = model.read(["book a table for two", "play some old jazz now", "a b c d e"], rules(model))
    forwards = [model.forwards(reading, model.default_output)[0] for reading in readings]
    alike = [forward for forward in forwards if forward.key == forwards[0].key]
    assert alike

    together = alike[0].run_with(alike[1:])

    assert [values.tobytes() for values in together] == [forward.run().tobytes() for forward in alike]


def test_a_row_that_is_not_finite_fails_alone(model) -> None:
    (reading,) = model.read(["book a table"], rules(model))
    forward = model.forwards(reading, model.default_output)[0]
    inner = forward.loaded

    class Broken:
        graph = inner.session.graph

        def run(self, inputs, run_options=None):
            found = inner.session.run(inputs, run_options)
            return {
                name: np.where(np.arange(len(values))[:, None] == 1, np.nan, values) for name, values in found.items()
            }

    broken = replace(forward, loaded=Loaded(Broken(), inner.costs, 16))

    first, second, third = broken.run_with([broken, broken])

    assert first.tobytes() == third.tobytes() == forward.run().tobytes()
    assert second.code == "invalid_model_output"
