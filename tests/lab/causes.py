"""Which kind of fault the gate must take a fault for, where it names any: a wrong name is worse than none.

Faults that are not listed are like no single mistake of the gate's mutants, so any name for them is wrong.
"""

NAMED = {
    "global and local rotations are exchanged": "thetas exchanged",
    "sliding layers have theta": "local theta",
    "full layers have theta": "global theta",
    "windows are one token": "window",
    "windows reach less far": "window",
    "there is no window": "window",
    "padding is seen everywhere": "padding mask",
    "the mask was frozen to ones": "padding mask",
    "pads count in a mean": "padding mask",
    "every norm has an epsilon": "norm epsilon",
    "every GELU is the tanh approximation": "activation",
    "the session approximates GELU": "activation",
    "a mean is taken over by the first token": "pooling",
    "the first token is taken over by the mean": "pooling",
    "two labels change places behind the classifier": "label order",
    "two rows of the classifier are exchanged": "label order",
    "weights rounded to": "precision",
    "all weights are rounded to": "precision",
}


def cause_of(fault: str) -> str:
    """Give the only name that a fault may get; empty where every name is wrong."""
    return next((cause for start, cause in NAMED.items() if fault.startswith(start)), "")
