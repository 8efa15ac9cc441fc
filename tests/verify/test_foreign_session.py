"""How a foreign graph is fed and read, and which runs fit it; no graph is run."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from vela.graphs import contract, manifest
from vela.verify import asked, cases, foreign, foreign_runs, foreign_session, ground, runs

NAMES = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
IDS = np.array([[5, 6, 7], [8, 9, 0]], np.int64)
MASK = np.array([[1, 1, 1], [1, 1, 0]], np.int64)
HIDDEN = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def entry(inputs: tuple[contract.TensorSpec, ...], outputs: tuple[contract.TensorSpec, ...]) -> manifest.Graph:
    return manifest.Graph("g", "g.onnx", "0", 1, "ort", "fp32", "embedded", 18, "default", 2, inputs, outputs, {}, ())


class Inner:
    """A session that keeps what it was fed and answers what it was given."""

    def __init__(self, outputs: dict[str, np.ndarray]) -> None:
        self.fed: dict[str, np.ndarray] = {}
        self.facts = SimpleNamespace(provider="CPUExecutionProvider")
        self._outputs = outputs

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.fed = inputs
        return self._outputs


def session(output: np.ndarray, role: asked.Role, dtype: str = "int64") -> tuple[foreign_session.ForeignSession, Inner]:
    inner = Inner({"out": output})
    inputs = tuple(contract.TensorSpec(name, dtype, ("batch", "sequence")) for name in NAMES)
    own = entry(inputs, (contract.TensorSpec("out", output.dtype.name, ("batch", "sequence", 4)[: output.ndim]),))
    presented = entry(
        contract.graph_inputs("batch", "sequence"), (contract.TensorSpec("embedding_l2", "float32", ("batch", 4)),)
    )
    interface = foreign.Foreign(Path("g.onnx"), own, presented, (role,), ())
    return foreign_session.ForeignSession(inner, interface), inner


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_a_graph_is_fed_zeros_for_token_types_and_places_from_0_in_the_type_that_it_takes(dtype):
    made, inner = session(HIDDEN, "hidden", dtype)

    made.run({"input_ids": IDS, "attention_mask": MASK})

    assert {name: value.dtype.name for name, value in inner.fed.items()} == dict.fromkeys(NAMES, dtype)
    assert inner.fed["token_type_ids"].tolist() == [[0, 0, 0], [0, 0, 0]]
    assert inner.fed["position_ids"].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert np.array_equal(inner.fed["input_ids"], IDS)
    assert np.array_equal(inner.fed["attention_mask"], MASK)


def test_a_hidden_state_is_the_mean_of_what_the_mask_shows():
    found = session(HIDDEN, "hidden")[0].run({"input_ids": IDS, "attention_mask": MASK})

    assert found["embedding_l2"].tolist() == [[4, 5, 6, 7], [14, 15, 16, 17]]


def test_what_lies_under_the_mask_changes_no_mean_but_a_nan_does():
    other, broken = HIDDEN.copy(), HIDDEN.copy()
    other[1, 2], broken[1, 2] = 1e6, np.nan

    means = [foreign_session.mean_over_mask(hidden, MASK) for hidden in (HIDDEN, other, broken)]

    assert np.array_equal(means[0], means[1])
    assert np.isnan(means[2][1]).all()


def test_an_answer_in_fp16_is_widened_and_not_pooled_again():
    pooled = HIDDEN[:, 0].astype(np.float16)

    found = session(pooled, "pooled")[0].run({"input_ids": IDS, "attention_mask": MASK})["embedding_l2"]

    assert found.dtype == np.float32
    assert np.array_equal(found, pooled)


def case(tokens: int) -> cases.Case:
    return cases.Case(f"c{tokens}", tuple(range(tokens)), "", 0, ())


def graph(batch: int | str, sequence: int | str, *, takes_mask: bool) -> manifest.Graph:
    return entry(contract.graph_inputs(batch, sequence, takes_mask=takes_mask), ())


def test_a_fixed_batch_keeps_as_many_companions_as_it_has_room_for():
    listed = runs.Planned((runs.Run(case(4), (case(5), case(6)), row=2), runs.Run(case(4))), (runs.Run(case(7)),))

    two = foreign_runs.fit_shape(graph(2, "sequence", takes_mask=True), listed)
    one = foreign_runs.fit_shape(graph(1, "sequence", takes_mask=True), listed)

    assert two.required == (runs.Run(case(4), (case(5),), row=1), runs.Run(case(4)))
    assert one.required == (runs.Run(case(4)),)
    assert one.corpus == (runs.Run(case(7)),)


def test_a_fixed_length_without_a_mask_takes_rows_of_that_length_only():
    listed = runs.Planned((runs.Run(case(8)), runs.Run(case(7)), runs.Run(case(8), (case(7),))), (runs.Run(case(6)),))

    found = foreign_runs.fit_shape(graph("batch", 8, takes_mask=False), listed)

    assert found == runs.Planned((runs.Run(case(8)),), ())
    assert foreign_runs.fit_shape(graph("batch", 8, takes_mask=True), listed) == listed


def test_a_reference_of_unit_length_keeps_directions_and_scales_its_noise():
    made = ground.Ground({"a": {"e": np.array([3.0, 4.0])}, "b": {"e": np.array([0.0, 2.0])}}, 1e-6, "reference")

    found = foreign_runs.of_unit_length(made)

    assert found.answers["a"]["e"].tolist() == pytest.approx([0.6, 0.8])
    assert found.answers["b"]["e"].tolist() == [0.0, 1.0]
    assert found.noise == pytest.approx(5e-7)
