"""What can be wrong with a graph, in one word each: the vocabulary of everything that names a cause.

A failed check names one where what it saw can have no other; a diagnosis names one where a mutant of the checkpoint
answers like the graph. Records, reports and test suites say the same words, so that failures can be counted by kind.
"""

from typing import Literal

Cause = Literal[
    # another model
    "other weights",
    "stale layer",
    "tokenizer",
    "config altered",
    # exported wrongly
    "global theta",
    "local theta",
    "thetas exchanged",
    "RoPE scaling",
    "window",
    "padding mask",
    "pooling",
    "label order",
    "activation",
    "norm epsilon",
    "precision",
    "interface",
    "operators",
    "other computation",
    "invalid graph",
    # packed wrongly
    "file altered",
    "manifest altered",
    # run wrongly
    "fusion",
    "engine numerics",
    "engine fell back",
    "engine refuses",
    "not repeatable",
    "compile cache stale",
    # right, and of no use
    "no gain",
]
