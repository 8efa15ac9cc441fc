"""A graph that answers rightly in another way of running it: a wrong fusion, or an engine's own arithmetic."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from vela.graphs import errors, mutation
from vela.serve import device as devices
from vela.serve import engine
from vela.verify import cases, differential, runs

NOISE = 1e-6
EXPECTED = {"c4": {"logits": np.array([0.5, -0.5])}, "c8": {"logits": np.array([1.5, -1.0])}}
RUNS = [runs.Run(cases.Case(f"c{tokens}", tuple(range(tokens)), "text", 1, ())) for tokens in (4, 8)]
UNKNOWN = mutation.Diagnosis(None, "cause unknown", (), 2)


class Session:
    def __init__(self, graph, off: float) -> None:
        self.graph, self.off = graph, off

    def run(self, inputs):
        tokens = int(inputs["attention_mask"].sum())
        return {"logits": np.float32(EXPECTED[f"c{tokens}"]["logits"] + self.off)[None]}


@dataclass(frozen=True)
class Asked:
    """A graph that is off by so much on a device, with rewrites and without."""

    graph: object
    off: dict
    device: devices.Device = devices.CPU
    options: engine.SessionOptions = field(default_factory=lambda: engine.SessionOptions(threads=1))
    pad_id: int = 0

    def on_cpu(self):
        return replace(self, device=devices.CPU)

    def open(self, options=None):
        off = self.off[self.device.kind, (options or self.options).optimise]
        if off is None:
            raise errors.EngineError("a", expected="b", where="c", fix="d")
        return Session(self.graph, off)

    def answers(self):
        off = self.off[self.device.kind, True]
        return {run: {"logits": np.float32(EXPECTED[run.case.id]["logits"] + off)} for run in RUNS}


@pytest.fixture
def explain(bundles):
    from vela.graphs import bundle

    graph = bundle.Bundle.open(bundles["tiny-intent"]).graph("model")

    def run(off, device="cpu") -> mutation.Diagnosis:
        asked = Asked(graph, off, devices.Device(device, None if device == "cpu" else 0))
        return differential.explain(UNKNOWN, asked, asked.answers(), EXPECTED, NOISE)

    return run


def test_what_goes_away_without_rewrites_is_a_fusion(explain) -> None:
    found = explain({("cpu", True): 0.1, ("cpu", False): 1e-7})

    assert found.cause == "fusion"
    assert "answers like the checkpoint without rewrites, to" in found.statement
    assert "on 2 runs on which it is 0.1 away otherwise; cause unknown" in found.statement


def test_what_goes_away_on_the_cpu_is_the_engines(explain) -> None:
    off = {("cuda", True): 0.1, ("cuda", False): 0.1, ("cpu", True): 1e-7}

    assert explain(off, "cuda").cause == "engine numerics"


def test_what_stays_in_every_way_is_unknown(explain) -> None:
    found = explain({("cpu", True): 0.1, ("cpu", False): 0.1})

    assert (found.cause, found.statement) == (UNKNOWN.cause, UNKNOWN.statement)
    assert found.ways == (differential.UNOPTIMISED,)

    found = explain({("cuda", True): 0.1, ("cuda", False): 0.1, ("cpu", True): 0.1}, "cuda")

    assert found.cause is None
    assert found.ways == (differential.UNOPTIMISED, differential.ON_CPU)


def test_a_way_in_which_it_does_not_run_shows_nothing(explain) -> None:
    assert explain({("cuda", True): 0.1, ("cuda", False): None, ("cpu", True): 0.0}, "cuda").cause == "engine numerics"
    assert explain({("cpu", True): 0.1, ("cpu", False): None}) == UNKNOWN


def test_answers_that_are_no_numbers_differ(explain) -> None:
    assert explain({("cpu", True): np.nan, ("cpu", False): 0.0}).cause == "fusion"
    assert explain({("cpu", True): 0.1, ("cpu", False): np.nan}).cause is None


def test_a_cause_that_is_known_stays(bundles) -> None:
    known = mutation.Diagnosis("window", "window", (), 2)

    assert differential.explain(known, None, {}, {}, NOISE) is known
