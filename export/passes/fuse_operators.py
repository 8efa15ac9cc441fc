"""Write GELU and rotary embedding as one operator each, for ONNX Runtime.

Exact: com.microsoft's Gelu is x/2 * (1 + erf(x / sqrt(2))), the expression that it replaces; RotaryEmbedding without
interleaving turns (a, b), the halves of a head, into (a*cos - b*sin, b*cos + a*sin), which is x*cos + (-b, a)*sin
because both halves of `cos` and of `sin` are equal. Only roundings differ. ONNX Runtime fuses neither by itself.
Source: measured; scripts/bench/README.md.
"""

import onnx_ir as ir
from onnxscript.rewriter import pattern

MICROSOFT = "com.microsoft"
SQRT_2 = 1.4142135381698608  # as float32 has it
LAST_AXIS = 3


def fuse_operators(model: ir.Model) -> None:
    """Fuse in place; a node that keeps another form is left as it is."""
    pattern.RewriteRuleSet([_GELU, _ROTARY]).apply_to_model(model)
    model.opset_imports[MICROSOFT] = 1


def _gelu_pattern(op, x):  # type: ignore[no-untyped-def]
    return op.Mul(x, op.Mul(0.5, op.Add(op.Erf(op.Div(x, SQRT_2)), 1.0)))


def _gelu(op, x):  # type: ignore[no-untyped-def]
    return op.Gelu(x, _domain=MICROSOFT)


def _rotary_pattern(op, x, cos, sin, start, middle, end):  # type: ignore[no-untyped-def]
    lower = op.Slice(x, start, middle, [LAST_AXIS], [1])
    upper = op.Slice(x, middle, end, [LAST_AXIS], [1])
    turned = op.Concat(op.Neg(upper), lower, axis=-1)
    return op.Add(op.Mul(x, cos), op.Mul(turned, sin))


def _is_halved(context, x, start, middle, end, **_):  # type: ignore[no-untyped-def]
    """Say whether a head of known width is cut in the middle."""
    if x.shape is None or len(x.shape) != LAST_AXIS + 1 or not isinstance(x.shape[LAST_AXIS], int):
        return False
    cuts = [ir.convenience.get_const_tensor(value) for value in (start, middle, end)]
    if any(cut is None for cut in cuts):
        return False
    first, half, last = (int(cut.numpy().item()) for cut in cuts)
    return first == 0 and 2 * half == x.shape[LAST_AXIS] <= last


def _rotary(op, x, cos, sin, middle, **_):  # type: ignore[no-untyped-def]
    """Rotate (B, A, T, D); `cos` and `sin` are (1, 1, T, D), of which the operator takes (T, D/2)."""
    zero, one, outer = (op.Constant(value_ints=values) for values in ([0], [1], [0, 1]))
    halves = [op.Slice(op.Squeeze(table, outer), zero, middle, one) for table in (cos, sin)]
    return op.RotaryEmbedding(x, zero, *halves, _domain=MICROSOFT)


_GELU = pattern.RewriteRule(_gelu_pattern, _gelu)
_ROTARY = pattern.RewriteRule(_rotary_pattern, _rotary, _is_halved)
