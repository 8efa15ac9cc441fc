"""Honest graphs pass in every session; the 220 of scripts/bench/faults.py pass in every form, shape and storage too."""

import shutil

import pytest

from vela.serve import engine

SAMPLE = "tiny-guard"
GRAPHS = ("model", "portable-b1-s64")


@pytest.mark.parametrize(("threads", "optimise"), [(1, False), (2, True), (2, False)])
def test_honest_graphs_pass_in_every_session(tmp_path, ground, judge, threads, optimise):
    folder = shutil.copytree(ground.bundles / SAMPLE, tmp_path / SAMPLE)
    session = engine.SessionOptions(threads=threads, optimise=optimise)

    outcomes = judge.judge(folder, ground.checkpoints / SAMPLE, GRAPHS, max_tokens=48, session=session)

    assert [(outcome.verdict, outcome.cause) for outcome in outcomes] == [("passed", "")] * len(GRAPHS)
    assert all(outcome.compared > 30 for outcome in outcomes)
