"""Keys of config.json: every one is known, or refused by name.

*Maths* keys are used by a family's reading, *inert* keys cannot change an answer, and any other key is an error,
because a key nobody reads is how a model ends up half-configured.
"""

from collections.abc import Collection, Mapping
from typing import Any

from vela.graphs import errors, task

CONFIG = "config.json"


def refuse_unknown_keys(config: Mapping[str, Any], known: Collection[str], allowed: Collection[str]) -> None:
    """Refuse a config with keys whose effect is not known.

    Raises:
        CheckpointError: naming them.
    """
    unknown = sorted(set(config) - set(known) - set(allowed))
    if unknown:
        raise errors.CheckpointError(
            f"the unknown keys {', '.join(unknown)}",
            expected="only keys whose effect on the answer is known",
            where=CONFIG,
            fix="If a key cannot change an answer, pass --allow-key NAME; else this model is not supported.",
        )


def whole(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """Read a positive whole number.

    Raises:
        CheckpointError: it is none.
    """
    value = config.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise unsupported(f"{key} = {value!r}", "a positive whole number")
    return value


def label_count(config: Mapping[str, Any]) -> int:
    """Count the labels of a classifier; 0 for models without.

    Raises:
        CheckpointError: `id2label` cannot be read.
    """
    is_classifier = "Classification" in str(config["architectures"][0])
    return len(task.read_labels(dict(config))) if is_classifier else 0


def unsupported(found: str, expected: str) -> errors.CheckpointError:
    """Make the error for a config that cannot be read with certainty."""
    return errors.CheckpointError(
        found, expected=expected, where=CONFIG, fix="This checkpoint cannot be exported; do not edit it to fit."
    )
