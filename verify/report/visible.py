"""Text and numbers of a record as a reader sees them.

A record's text comes from elsewhere: a corpus, a graph file, another machine. What would not show, or would show
something else than what is there (control characters, overrides of the writing direction, format characters that
hide), is written out as a mark. Escaping for HTML is the template engine's business and comes after this.
"""

import math
import unicodedata

# Longer text is cut: a record may have 16 MB, a page is read by a person.
TEXT_LIMIT = 4000
# Emoji families and several scripts cannot be written without the two joiners, and they reorder nothing.
JOINERS = "\u200c\u200d"
LINE_MARK = "\u21b5"  # stands before a line break, which is kept
SCIENTIFIC_BELOW, SCIENTIFIC_FROM = 1e-2, 1e4
MILLISECONDS_BELOW = 1.0


def visible(text: str) -> str:
    """Write out what a reader would not see or be deceived by, and cut what nobody would read."""
    if len(text) > TEXT_LIMIT:
        text = f"{text[:TEXT_LIMIT]}\u2026 ({len(text) - TEXT_LIMIT:,} more characters)"
    return text if text.isprintable() else "".join(map(_mark, text))


def _mark(character: str) -> str:
    if character == "\n":
        return f"{LINE_MARK}\n"
    if character.isprintable() or character in JOINERS or unicodedata.category(character) == "Zs":
        return character
    return f"\u27e6U+{ord(character):04X}\u27e7"


def shorten(text: str, limit: int) -> str:
    """Cut a text at a word, where it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    return f"{text[:limit].rsplit(' ', 1)[0]} \u2026"


def small_number(value: float) -> str:
    """Give a difference in two digits, such as `3.7e-06`; nothing but zero is `0`."""
    return "0" if value == 0.0 else f"{value:.1e}"


def share(value: float) -> str:
    """Give a figure as a share of its bound, in two digits: `0.21`, `1.6e+03`."""
    if value == 0.0:
        return "0"
    if value < SCIENTIFIC_BELOW:
        return f"<{SCIENTIFIC_BELOW:g}"
    return f"{value:.2g}" if value < 1.0 else f"{value:.1f}" if value < 10.0 else _large(value)


def _large(value: float) -> str:
    return f"{value:,.0f}" if value < SCIENTIFIC_FROM else f"{value:.1e}"


def seconds(value: float) -> str:
    """Give a duration: milliseconds below a second."""
    if not math.isfinite(value):
        return str(value)
    return f"{value * 1000:.0f}\u00a0ms" if value < MILLISECONDS_BELOW else f"{value:,.1f}\u00a0s"
