"""Read a ModernBERT's rotary positions from config.json, in both generations of its keys.

Transformers 5 writes `rope_parameters` with an entry per layer type; before, `global_rope_theta` and
`local_rope_theta` stood alone and one `rope_scaling` held for all layers. Libraries disagree on whatever is left out
or said twice, so what one of them would read otherwise is refused here with the reason.
Source: Transformers 4.57 and 5.24, vLLM; each trap has a test.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, Literal

from vela.graphs import errors
from vela.verify.architecture import rope
from vela.verify.architecture.keys import CONFIG, unsupported

LayerType = Literal["full_attention", "sliding_attention"]
Ropes = tuple[tuple[LayerType, rope.Rope], ...]

DEFAULT_THETAS: dict[LayerType, float] = {"full_attention": 160_000.0, "sliding_attention": 10_000.0}
THETA_KEYS: dict[LayerType, str] = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}
OF_EVERY_KIND = frozenset({"rope_type", "type", "rope_theta"})
NEEDED_KEYS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "yarn": ("factor", "original_max_position_embeddings"),
    "llama3": ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
}
OTHER_KEYS: dict[str, tuple[str, ...]] = {
    "yarn": ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
}
OF_THE_RUN = ("dynamic", "longrope")
# Source: YaRN, section 3.2, and its reference implementation.
BETA_FAST, BETA_SLOW = 32.0, 1.0


def read_ropes(config: Mapping[str, Any]) -> Ropes:
    """Read the rotary positions of each layer type.

    Raises:
        CheckpointError: a kind without a fixed table, keys that are unknown, missing or contradict each other.
    """
    stated = _by_layer_type(config)
    return tuple((kind, _read_rope(stated[kind], _theta(config, kind, stated[kind]))) for kind in DEFAULT_THETAS)


def _by_layer_type(config: Mapping[str, Any]) -> dict[LayerType, Mapping[str, Any]]:
    """Give the rope keys of each layer type, whichever generation wrote them."""
    parameters, scaling = _object(config, "rope_parameters"), _object(config, "rope_scaling")
    if parameters and scaling:
        raise unsupported("both rope_parameters and rope_scaling", "one of them")
    if scaling:
        _refuse_type_alone(scaling)
        return dict.fromkeys(DEFAULT_THETAS, scaling)
    if set(parameters) - set(DEFAULT_THETAS):
        raise unsupported(
            f"rope_parameters {json.dumps(parameters)}",
            f"an entry for each of {' and '.join(DEFAULT_THETAS)}: Transformers drops what stands beside them",
        )
    return {kind: _object(parameters, kind) for kind in DEFAULT_THETAS}


def _object(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Read a JSON object; absent and null are empty, as for every reader."""
    value = mapping.get(key) or {}
    if not isinstance(value, dict):
        raise unsupported(f"{key} {json.dumps(value)}", "an object")
    return value


def _refuse_type_alone(scaling: Mapping[str, Any]) -> None:
    """Refuse an old spelling that Transformers reads as no scaling at all, with no more than a line in the log."""
    if "rope_type" not in scaling and scaling.get("type", "default") != "default":
        raise errors.CheckpointError(
            f"rope_scaling {json.dumps(scaling)}, of which Transformers ignores `type` on this family",
            expected="`rope_type`, which readers of both generations understand",
            where=CONFIG,
            fix="Ask who trained it: write rope_type if the model was trained with this scaling, and remove "
            "rope_scaling if it was trained by a Transformers that ignored it.",
        )


def _theta(config: Mapping[str, Any], layer_type: LayerType, parameters: Mapping[str, Any]) -> float:
    old = THETA_KEYS[layer_type]
    places = [(key, place) for key, place in ((old, config), ("rope_theta", parameters)) if key in place]
    for key, place in places:
        if place[key] is None:
            raise unsupported(f"{key} null", "a number: readers of both generations differ on null")
    stated = [_number(place, key, 1.0) for key, place in places]
    if len(set(stated)) > 1:
        raise unsupported(f"two values of theta for {layer_type}: {stated}", "one")
    return stated[0] if stated else DEFAULT_THETAS[layer_type]


def _read_rope(parameters: Mapping[str, Any], theta: float) -> rope.Rope:
    kind = _kind(parameters)
    _check_keys(parameters, kind)
    match kind:
        case "linear":
            return rope.LinearRope(theta, _number(parameters, "factor", 1.0))
        case "yarn":
            return _read_yarn(parameters, theta)
        case "llama3":
            return _read_llama3(parameters, theta)
        case _:
            return rope.PlainRope(theta)


def _kind(parameters: Mapping[str, Any]) -> str:
    kinds = {json.dumps(parameters[key]): parameters[key] for key in ("rope_type", "type") if key in parameters}
    if len(kinds) > 1:
        raise unsupported(f"rope_type {parameters['rope_type']!r} and type {parameters['type']!r}", "one kind of RoPE")
    kind = next(iter(kinds.values()), "default")
    if kind in OF_THE_RUN:
        raise unsupported(
            f"RoPE of kind {kind!r}, whose frequencies depend on the length of the run",
            "a kind with one table for all lengths: a padded or batched row would answer otherwise than alone",
        )
    if kind not in NEEDED_KEYS:
        raise unsupported(f"RoPE of kind {kind!r}", f"one of {', '.join(NEEDED_KEYS)}")
    return str(kind)


def _check_keys(parameters: Mapping[str, Any], kind: str) -> None:
    known = {*OF_EVERY_KIND, *NEEDED_KEYS[kind], *OTHER_KEYS.get(kind, ())}
    unknown = sorted(set(parameters) - known)
    missing = [key for key in NEEDED_KEYS[kind] if parameters.get(key) is None]
    if unknown:
        raise unsupported(f"the unknown keys {', '.join(unknown)} of {kind} RoPE", f"only {', '.join(sorted(known))}")
    if missing:
        raise unsupported(
            f"{kind} RoPE without {', '.join(missing)}", "these keys: libraries put different values in their place"
        )


def _read_yarn(parameters: Mapping[str, Any], theta: float) -> rope.YarnRope:
    factor = _number(parameters, "factor", 1.0)
    fast, slow = _number(parameters, "beta_fast", 0.0, BETA_FAST), _number(parameters, "beta_slow", 0.0, BETA_SLOW)
    if fast <= slow:
        raise unsupported(f"beta_fast {fast:g} and beta_slow {slow:g}", "beta_fast above beta_slow")
    if theta <= 1.0:
        raise unsupported(f"yarn RoPE of theta {theta:g}", "a theta above 1")
    is_truncated = parameters.get("truncate", True)
    if not isinstance(is_truncated, bool):
        raise unsupported(f"truncate {is_truncated!r}", "true or false")
    return rope.YarnRope(
        theta, factor, _positions(parameters), fast, slow, is_truncated, _attention_scaling(parameters, factor)
    )


def _attention_scaling(parameters: Mapping[str, Any], factor: float) -> float:
    """Read YaRN's factor on cosines and sines: stated, by DeepSeek's two weights, or the paper's."""
    if parameters.get("attention_factor") is not None:
        return _number(parameters, "attention_factor", 0.0)
    weights = [key for key in ("mscale", "mscale_all_dim") if parameters.get(key) is not None]
    if len(weights) == 1:
        raise unsupported(f"yarn RoPE with {weights[0]} alone", "mscale and mscale_all_dim: libraries differ on one")
    if not weights:
        return rope.mscale(factor)
    above, below = (rope.mscale(factor, _number(parameters, key, 0.0)) for key in weights)
    return above / below


def _read_llama3(parameters: Mapping[str, Any], theta: float) -> rope.Llama3Rope:
    low, high = _number(parameters, "low_freq_factor", 0.0), _number(parameters, "high_freq_factor", 0.0)
    if low >= high:
        raise unsupported(f"low_freq_factor {low:g} and high_freq_factor {high:g}", "the low one below the high one")
    return rope.Llama3Rope(theta, _number(parameters, "factor", 1.0), _positions(parameters), low, high)


def _positions(parameters: Mapping[str, Any]) -> int:
    value = _number(parameters, "original_max_position_embeddings", 1.0)
    if not value.is_integer():
        raise unsupported(f"original_max_position_embeddings {value}", "a whole number")
    return int(value)


def _number(mapping: Mapping[str, Any], key: str, least: float, default: float | None = None) -> float:
    """Read a finite number above 0 and of at least `least`; null is the default where there is one."""
    value = mapping.get(key)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise unsupported(f"{key} {value!r}", "a number")
    if value <= 0.0 or value < least:
        raise unsupported(f"{key} {value!r}", f"a number of at least {least:g}" if least else "a number above 0")
    return float(value)
