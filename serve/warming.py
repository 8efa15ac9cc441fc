"""A model's first runs, made before any caller's: by the thread that callers' forwards run in, in their turn.

A model that is loaded beside others must not take the cores from them, and CUDA records a graph's run for each thread.
"""

import threading

from vela.serve.lane import Lane
from vela.serve.model import ServedModel


def warm_up(model: ServedModel, lane: Lane) -> None:
    """Let a lane make a model's first runs; each waits as long as it takes.

    Raises:
        ItemError: a graph gives no usable output.
        NotReady: the lane died or is closing.
    """
    for forward in model.warm_up_runs():
        ended = threading.Event()
        (job,) = lane.submit([forward], ended.set, is_patient=True)
        ended.wait()
        job.outcome.result()
