"""The options that say which graphs are made, shared by `vela export` and `vela release`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from vela.graphs import ladder

if TYPE_CHECKING:
    from vela.export.shapes import Shapes
    from vela.export.specialise import Form
    from vela.graphs.contract import Precision

_OPTIONS = (
    click.option(
        "--buckets",
        default=",".join(map(str, ladder.DEFAULT_BUCKETS)),
        show_default=True,
        help="Token lengths of the fixed graphs, separated by commas; `vela plan-buckets` plans them.",
    ),
    click.option(
        "--batch",
        "batches",
        default=",".join(map(str, ladder.DEFAULT_BATCHES)),
        show_default=True,
        help="Batch sizes of the fixed graphs.",
    ),
    click.option(
        "--for",
        "forms",
        default="cpu,portable",
        show_default=True,
        help="Engines, separated by commas: cpu (dynamic graphs), portable (AMD and any other), cuda (one per bucket).",
    ),
    click.option(
        "--weights",
        type=click.Choice(["reference", "embedded"]),
        default="reference",
        show_default=True,
        help="Refer to the checkpoint's weights, or hold a copy in every graph.",
    ),
    click.option(
        "--reduced",
        default="",
        help="Copies of the fixed graphs that compute in 16 bits: fp16, bf16 or both, for the profile max_speed.",
    ),
)


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options; it takes `buckets`, `batches`, `forms`, `weights` and `reduced`, all texts."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def read(buckets: str, batches: str, forms: str, weights: str, reduced: str) -> "Shapes":
    """Read what was given.

    Raises:
        UsageError: a text does not say what it should.
    """
    from vela.export import shapes

    if reduced and set(forms.split(",")) == {"cpu"}:
        raise click.UsageError("--reduced copies fixed graphs, of which --for cpu has none: add cuda or portable")
    return shapes.Shapes(
        forms=_forms(forms),
        buckets=_numbers(buckets, "--buckets", 2),
        batches=_numbers(batches, "--batch", 1),
        storage="embedded" if weights == "embedded" else "reference",
        reduced=_reduced(reduced),
    )


def _forms(text: str) -> "tuple[Form, ...]":
    from vela.export import specialise

    wanted = set(text.split(","))
    if not wanted <= set(specialise.FORMS):
        raise click.BadParameter(f"{text!r}; there are {', '.join(specialise.FORMS)}", param_hint="--for")
    return tuple(form for form in specialise.FORMS if form in wanted)


def _reduced(text: str) -> "tuple[Precision, ...]":
    from vela.verify.static.reduction import TYPES

    wanted = set(filter(None, text.split(",")))
    if not wanted <= set(TYPES):
        raise click.BadParameter(f"{text!r}; there are {', '.join(TYPES)}", param_hint="--reduced")
    return tuple(precision for precision in TYPES if precision in wanted)


def _numbers(text: str, option: str, least: int) -> tuple[int, ...]:
    try:
        found = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError as cause:
        raise click.BadParameter(f"{text!r} is no list of numbers", param_hint=option) from cause
    if found[0] < least:
        raise click.BadParameter(f"{found[0]} is below {least}", param_hint=option)
    return found
