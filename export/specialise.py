"""Turn a symbolic graph into one for an engine and a shape: expand attention, fuse, fix, fold.

The only place that knows which graph gets which form of which pass. What was measured to choose a form, and what lost,
is in scripts/bench/README.md.
"""

from typing import Literal, assert_never

import onnx_ir as ir

from vela.export.passes import (
    divide_products,
    expand_fused,
    expand_portable,
    fix_shape,
    fuse_operators,
    order_gelu,
    order_products,
    remove_unused,
    simplify,
)
from vela.graphs import contract

# Whom a graph is for: `cpu` is dynamic, `cuda` and `portable` have one graph for each bucket.
Form = Literal["cpu", "cuda", "portable"]
FORMS: tuple[Form, ...] = ("cpu", "portable", "cuda")
TARGETS: dict[Form, contract.Target] = {"cpu": "ort", "cuda": "ort", "portable": "portable"}

# On a GPU few tokens cost launches and many cost bytes. Source: H200, 307M shape, CUDA graph, 16 to 8,192 tokens.
CUDA_ROTATES_WHOLE_TOKENS = 64
CUDA_SMALL_BLOCK_TOKENS = 1024
CUDA_BIAS_TOKENS = 8192
CUDA_COLUMN_WIDTH = 8  # its kernels want heads of a multiple of 8


def specialise(
    model: ir.Model,
    form: Form,
    rows: int | None,
    tokens: int | None,
    *,
    takes_mask: bool,
    storage: contract.WeightStorage = "reference",
) -> dict[str, divide_products.Rows]:
    """Specialise in place.

    Args:
        model: A joined graph with symbolic attention and dynamic dimensions.
        form: For whom.
        rows: B of a fixed graph, else None.
        tokens: T of a fixed graph, else None.
        takes_mask: Whether it looks at padding.
        storage: Whether weights will be references: only those can be of a part of a tensor without a copy.

    Returns:
        Weight inputs that are rows of another, by name.

    Raises:
        ValueError: a form that is fixed got no shape, or a dynamic one got one.
    """
    if (form == "cpu") != (rows is None or tokens is None):
        raise ValueError(f"{form} with the shape ({rows}, {tokens})")
    if rows is None or tokens is None:
        expand_fused.expand_fused(model, expand_fused.Policy(takes_mask=takes_mask, gathers_heads=True))
        fuse_operators.fuse_gelu(model)
        remove_unused.remove_unused(model)
        parts = divide_products.divide_products(model) if storage == "reference" else {}
        simplify.fold_shapes(model, 0)
        return parts
    fix_shape.fix_inputs(model, rows, tokens)
    match form:
        case "portable":
            expand_portable.expand_portable(model, rows, tokens)
            order_gelu.order_gelu(model)
        case "cuda":
            expand_fused.expand_fused(model, cuda_policy(tokens))
            fuse_operators.fuse_gelu(model)
            fuse_operators.fuse_residuals(model)
            order_products.order_products(model, rows * tokens)
        case "cpu":
            raise ValueError("the graph for the CPU is dynamic")
        case _:
            assert_never(form)
    fix_shape.clear_shapes(model)
    simplify.fold_shapes(model, tokens)
    return {}


def cuda_policy(tokens: int) -> expand_fused.Policy:
    """Choose the form of attention for a fixed graph on CUDA."""
    return expand_fused.Policy(
        takes_mask=True,
        tokens=tokens,
        block_tokens=64 if tokens <= CUDA_SMALL_BLOCK_TOKENS else 128,
        bias_tokens=CUDA_BIAS_TOKENS,
        column_width=CUDA_COLUMN_WIDTH,
        rotates_whole=tokens <= CUDA_ROTATES_WHOLE_TOKENS,
    )
