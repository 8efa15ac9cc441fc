"""Read config.json independently of Transformers, whatever the family of the model.

The same file read by one library on both sides of a comparison agrees with itself even when it is misread:
Transformers 4.57 reads a config that 5.x wrote with a local theta of 10,000 instead of 160,000, silently. So the
gate reads config.json a second time, here, and export compares the built model with it (export/effective.py).
"""

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from vela.graphs import costs, heads
from vela.verify.architecture import bert, modernbert, rope
from vela.verify.architecture.keys import unsupported


class Architecture(Protocol):
    """What the forward pass depends on, as every family has it; each family's dataclass adds its own values."""

    @property
    def hidden_size(self) -> int:
        """H."""
        ...

    @property
    def layers(self) -> int:
        """L."""
        ...

    @property
    def half_window(self) -> int:
        """Distance around whose multiples lengths are worth judging: the half-window of sliding layers."""
        ...

    @property
    def norm_eps(self) -> float:
        """What every norm adds to the variance."""
        ...

    @property
    def label_count(self) -> int:
        """C, or 0 for models without labels."""
        ...

    @property
    def takes_pairs(self) -> bool:
        """Whether pairs can be read by ids and mask alone."""
        ...

    @property
    def encoder_facts(self) -> Mapping[str, object]:
        """What an encoder's trace depends on, as JSON can hold it."""
        ...

    @property
    def head_facts(self) -> Mapping[str, object]:
        """What a head's trace depends on, beside the head's kind."""
        ...

    @property
    def run_costs(self) -> costs.ModelCosts:
        """What a forward pass costs, as far as sizes say."""
        ...

    @property
    def head_width(self) -> int:
        """D, the width of one attention head."""
        ...

    def rotations(self, exit_layer: int) -> Mapping[str, rope.Rope]:
        """Give the rotary positions of the first `exit_layer` layers by type; none where positions are learned."""
        ...

    def pools_by_mask(self, decoder: heads.Decoder) -> bool:
        """Say whether a model with this decoder takes a mean over tokens, which the mask weighs."""
        ...

    def uses(self, tensor_name: str, decoder: heads.Decoder) -> bool:
        """Say whether a whole model with this decoder uses a tensor of the checkpoint's files."""
        ...


def read_architecture(config: Mapping[str, Any], allowed_keys: Collection[str] = ()) -> Architecture:
    """Derive the effective architecture from the content of config.json.

    Args:
        config: The parsed file.
        allowed_keys: Unknown keys that the caller vouches for.

    Raises:
        CheckpointError: an unknown key, an unsupported model, or values that contradict each other.
    """
    match config.get("model_type"):
        case "modernbert":
            return modernbert.read_modernbert(config, allowed_keys)
        case "bert":
            return bert.read_bert(config, allowed_keys)
        case other:
            raise unsupported(f"model_type {other!r}", "modernbert or bert")
