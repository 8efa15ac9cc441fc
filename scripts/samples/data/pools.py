"""Pools of invented words that fill the templates, each split into a training and a held-out part.

The split is by a digest of the word, so that no name, town or company of the held-out texts was seen in training.
Countries, states and peoples are closed lists that a model should know: both splits share them.
"""

import functools
import random
import zlib
from dataclasses import dataclass
from pathlib import Path

VALUE_FOLDER = Path(__file__).parent / "values"
# One word in five is kept for the held-out texts.
HELD_OUT_EVERY = 5


@dataclass(frozen=True, slots=True)
class Pools:
    """The word lists one split may draw from."""

    first_names: tuple[str, ...]
    last_names: tuple[str, ...]
    cities: tuple[str, ...]
    countries: tuple[str, ...]
    states: tuple[str, ...]
    nationalities: tuple[str, ...]
    jobs: tuple[str, ...]
    company_stems: tuple[str, ...]
    company_forms: tuple[str, ...]
    company_fields: tuple[str, ...]


def is_held_out_word(word: str) -> bool:
    """Tell whether a word belongs to the held-out part."""
    return zlib.crc32(word.encode()) % HELD_OUT_EVERY == 0


def _lines(name: str) -> list[str]:
    lines = (VALUE_FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _words(lines: list[str]) -> list[str]:
    return [word.replace("_", " ") for line in lines for word in line.split()]


def _part(words: list[str], *, held_out: bool) -> tuple[str, ...]:
    return tuple(word for word in words if is_held_out_word(word) == held_out)


@functools.cache
def load_pools(*, held_out: bool) -> Pools:
    """Load the pools of one split."""
    countries = _lines("countries.txt")
    stems, forms, fields = _lines("organizations.txt")
    part = functools.partial(_part, held_out=held_out)
    return Pools(
        first_names=part(_words(_lines("first_names.txt"))),
        last_names=part(_words(_lines("last_names.txt"))),
        cities=part(_words(_lines("cities.txt"))),
        countries=tuple(_words([countries[0], countries[1], countries[3]])),
        states=tuple(_words([countries[2]])),
        nationalities=tuple(_words(_lines("nationalities.txt"))),
        jobs=part(_lines("jobs.txt")),
        company_stems=part(_words([stems])),
        company_forms=tuple(forms.split()),
        company_fields=tuple(fields.split()),
    )


_ONSETS = "b br c ch d dr f g gr h j k kr l m n p r s sh st t tr v w y z".split()
_VOWELS = "a e i o u ai ei ia ou é ö á".split()
_CODAS = "n r l s m k t th nd x".split() + [""] * 8


def invented_word(rng: random.Random) -> str:
    """Make up a capitalised name of two or three syllables."""
    syllables = [rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(rng.choice((2, 2, 3)))]
    return "".join(syllables).capitalize()
