"""Prompts for the guard: attack phrasings and harmless near misses, alone or inside long real texts.

Attack and harmless prompts stand in texts of the same lengths, so that length says nothing about the label.
"""

import random
from collections.abc import Callable

from data import fill

BENIGN, JAILBREAK = 0, 1
# One template in five is held out, of either kind.
HELD_OUT_EVERY = 5
_EMPTY_LABELS: dict[str, str] = {}


def _slot_choices() -> dict[str, str]:
    rows = (line.split("\t") for line in fill.read_templates("guard_slots.txt"))
    return dict(rows)


class GuardWriter:
    """Writes labelled prompts of one split; the same seed gives the same prompts."""

    def __init__(self, seed: int, real_texts: list[str], *, held_out: bool) -> None:
        """Read the templates of a split; `real_texts` are harmless user texts of the same split."""
        self._rng = random.Random(seed)
        self._real = real_texts
        # Training texts lose some words, so that no single one decides.
        self._noisy = not held_out
        self._templates = {
            BENIGN: fill.split_templates(["guard_benign.txt"], HELD_OUT_EVERY, held_out=held_out),
            JAILBREAK: fill.split_templates(["guard_jailbreak.txt"], HELD_OUT_EVERY, held_out=held_out),
        }
        self._slots = _slot_choices()

    def prompt(self, label: int) -> str:
        """Fill one template of the label."""
        values: dict[str, Callable[[], str]] = {
            name: (lambda choices=choices: fill.choose(choices, self._rng)) for name, choices in self._slots.items()
        }
        chosen = fill.choose(self._rng.choice(self._templates[label]), self._rng)
        text = " ".join(fill.substitute(chosen, values, _EMPTY_LABELS).text.split(" "))
        if self._noisy and self._rng.random() < 0.4:
            text = " ".join(word for word in text.split(" ") if self._rng.random() > 0.12) or text
        draw = self._rng.random()
        return text.lower() if draw < 0.15 else text.upper() if draw > 0.97 else text

    def example(self) -> tuple[str, int]:
        """Write one text and its label; one in three is long, and half of the harmless ones are real."""
        label = self._rng.choice((BENIGN, JAILBREAK))
        core = self._rng.choice(self._real) if label == BENIGN and self._rng.random() < 0.5 else self.prompt(label)
        if self._rng.random() < 0.65:
            return core, label
        return self._embed(core), label

    def _embed(self, core: str) -> str:
        """Put a prompt at any place of a text that is made of real texts and harmless templates."""
        size = self._rng.choice((1, 2, 4, 8, 16, 24))
        parts = [self.prompt(BENIGN) if self._rng.random() < 0.3 else self._rng.choice(self._real) for _ in range(size)]
        parts.insert(self._rng.randint(0, size), core)
        return self._rng.choice((" ", "\n", ". ", "\n\n")).join(parts)
