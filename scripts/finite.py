"""A number of the command line that is one: click's ranges take nan, which no bound holds, and infinity."""

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A range of finite numbers."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read a number, and refuse one that is none."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value!r} is no finite number.", param, ctx)
        return found
