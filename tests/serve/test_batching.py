"""The profile `batching`: rows of about one length share a padded run, and a row without company runs as in `exact`."""

import msgspec
import numpy as np
import pytest

from vela.graphs import bundle, errors, manifest
from vela.serve import batching, policy
from vela.serve.deployment import Deployment
from vela.serve.fair_queue import FairQueue
from vela.serve.job import Job, Run
from vela.serve.model import ServedModel

TEXTS = ("book a table for two", "play some old jazz now please", "what is on", "wake me at seven", "tell me a joke")
CLOSE = 2e-5  # what the strict bar allows logits


@pytest.fixture(scope="module")
def model(bundles) -> ServedModel:
    opened = bundle.Bundle.open(bundles["tiny-intent"])
    return ServedModel.open(opened, Deployment(profile="batching"), demand="nothing")


@pytest.fixture
def works(model) -> list[batching.BatchedForward]:
    rules = model.settle(policy.Options(profile="batching"), model.default_output)
    readings = model.read(TEXTS, rules)
    return [work for reading in readings for work in model.works(reading, model.default_output, "batching")]


def exact(works) -> list[np.ndarray]:
    return [work.alone.run() for work in works]


def lengths(works) -> list[int]:
    return [len(work.alone.framed.ids) for work in works]


def with_batch(graph: manifest.Graph, count: int) -> manifest.Graph:
    inputs = tuple(msgspec.structs.replace(tensor, shape=(count, *tensor.shape[1:])) for tensor in graph.inputs)
    return msgspec.structs.replace(graph, id=f"b{count}", inputs=inputs)


def test_a_model_offers_the_profile_only_where_it_was_opened_so(model, bundles) -> None:
    plain = ServedModel.open(bundle.Bundle.open(bundles["tiny-intent"]), demand="nothing")

    assert (plain.profiles, model.profiles) == (("exact",), ("exact", "batching"))
    assert set(model.loaded) - set(plain.loaded) == {"model"}
    with pytest.raises(errors.InvalidRequest) as caught:
        plain.settle(policy.Options(profile="batching"), plain.default_output)
    assert caught.value.where == "options.profile"


def test_rows_of_several_lengths_go_together_and_answer_within_the_strict_bar(works) -> None:
    assert len({*lengths(works)}) > 1
    assert len({work.key for work in works}) == 1

    together = works[0].run_with(works[1:])

    for found, expected in zip(together, exact(works), strict=True):
        assert float(np.abs(found - expected).max()) <= CLOSE
    assert {work.graph_id for work in works} == {"model"}
    assert [work.pads for work in works] == [max(lengths(works)) - length for length in lengths(works)]


def test_a_row_without_company_has_the_bits_and_the_graph_of_exact(works) -> None:
    (found,) = works[0].run_with([])

    assert found.tobytes() == exact(works)[0].tobytes()
    assert (works[0].graph_id, works[0].pads) == ("model-unpadded", 0)


def test_rows_of_one_length_share_the_run_of_exact(works) -> None:
    twins = [works[0], batching.BatchedForward.of(works[0].alone, works[0].padding)]

    found = twins[0].run_with(twins[1:])

    assert {values.tobytes() for values in found} == {exact(works)[0].tobytes()}
    assert {work.graph_id for work in twins} == {"model-unpadded"}


def test_rows_whose_lengths_are_far_apart_do_not_go_together(model) -> None:
    padding = model.padding[model.default_output]

    assert [padding.width(tokens) for tokens in (1, 15, 16, 17, 100)] == [16, 16, 16, 32, 112]
    assert [padding.most_rows(width) for width in (16, 32, 256, 512)] == [16, 8, 1, 1]


def test_a_fixed_graph_s_rows_go_together_as_far_as_its_batch_reaches(model) -> None:
    one = next(graph for graph in model.bundle.manifest.graphs if graph.sequence is not None)
    found = [with_batch(one, count) for count in (1, 2, 4)]
    padding = batching.Padding(batching.buckets.Ladder("logits", tuple(found)), {graph.id: graph.id for graph in found})

    assert padding.width(one.sequence - 1) == one.sequence
    assert padding.most_rows(one.sequence) == 4
    assert [padding.choose(rows, one.sequence) for rows in (1, 2, 3, 4)] == ["b1", "b2", "b4", "b4"]


def test_a_lane_joins_what_waits(works) -> None:
    queue, jobs = FairQueue(), [Job(work, lambda job: None) for work in works]
    for job in jobs:
        queue.push([job])

    run = Run(queue.pop())
    run.execute()

    assert len(run.jobs) == len(works)
    assert not len(queue)
    for job, expected in zip(run.jobs, exact(works), strict=True):
        assert float(np.abs(job.outcome.result() - expected).max()) <= CLOSE


def test_a_row_that_is_not_finite_fails_alone(works) -> None:
    first, second, *_ = works

    class Broken:
        graph = first.padding.choose(2, 20).session.graph

        def run(self, inputs, run_options=None):
            return {"logits": np.array([[1.0, 2.0], [np.nan, 0.0]], np.float32)}

    loaded = batching.Loaded(Broken(), first.alone.loaded.costs)
    ladder = batching.buckets.Ladder("logits", (Broken.graph,))
    padding = batching.Padding(ladder, {Broken.graph.id: loaded})
    joined = [batching.BatchedForward.of(work.alone, padding) for work in (first, second)]

    found = joined[0].run_with(joined[1:])

    assert found[0].tolist() == [1.0, 2.0]
    assert found[1].code == "invalid_model_output"
