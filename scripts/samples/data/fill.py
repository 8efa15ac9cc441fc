r"""Template filling: one line of project-written text becomes many texts with labelled spans.

A template holds choices `[a|b]`, slots `{NAME}`, `\n` for a line break and `\[` for a literal bracket. Upper-case
slots may carry a label; the caller says which. Used by the PII, guard and grounded generators beside this file.
"""

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

TEMPLATE_FOLDER = Path(__file__).parent / "templates"
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{([A-Za-z_]+)\}")
# Stand-ins for escaped brackets while choices are resolved; the two characters occur in no template.
_OPEN, _CLOSE = "\x01", "\x02"


@dataclass(frozen=True, slots=True)
class Span:
    """A labelled piece of text, in code points, end exclusive."""

    label: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text and its spans in reading order."""

    text: str
    spans: tuple[Span, ...]


def read_templates(name: str) -> list[str]:
    """Read the templates of one file, comments and empty lines left out."""
    lines = (TEMPLATE_FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def is_held_out(index: int, every: int) -> bool:
    """Tell whether the template at `index` is kept out of training, one in `every`."""
    return index % every == every // 2


def split_templates(names: list[str], every: int, *, held_out: bool) -> list[str]:
    """Read several files and keep the training or the held-out share of each."""
    return [
        line
        for name in names
        for index, line in enumerate(read_templates(name))
        if is_held_out(index, every) == held_out
    ]


def choose(template: str, rng: random.Random) -> str:
    """Resolve every choice of a template, innermost first."""
    text = template.replace(r"\n", "\n").replace(r"\[", _OPEN).replace(r"\]", _CLOSE)
    while found := _CHOICE.search(text):
        option = rng.choice(found.group(1).split("|"))
        text = text[: found.start()] + option + text[found.end() :]
    return text.replace(_OPEN, "[").replace(_CLOSE, "]")


def substitute(text: str, values: Mapping[str, Callable[[], str]], labels: Mapping[str, str]) -> Labelled:
    """Put values into the slots of a text and note where the labelled ones stand.

    Args:
        text: a template whose choices are resolved.
        values: slot name to the generator of its values; a slot that is not in it stays as it is.
        labels: slot name to label; other slots are filled without a span.
    """
    pieces: list[str] = []
    spans: list[Span] = []
    position = length = 0
    for slot in _SLOT.finditer(text):
        name = slot.group(1)
        if name not in values:
            continue
        literal, value = text[position : slot.start()], values[name]()
        length += len(literal)
        if name in labels:
            spans.append(Span(labels[name], length, length + len(value)))
        pieces += [literal, value]
        length += len(value)
        position = slot.end()
    pieces.append(text[position:])
    return Labelled("".join(pieces), tuple(spans))


def merge_neighbours(filled: Labelled, labels: frozenset[str]) -> Labelled:
    """Join spans of one label that only a single space parts (`{FIRST} {LAST}` is one person)."""
    merged: list[Span] = []
    for span in filled.spans:
        last = merged[-1] if merged else None
        if last and last.label == span.label and span.label in labels and filled.text[last.end : span.start] == " ":
            merged[-1] = Span(span.label, last.start, span.end)
        else:
            merged.append(span)
    return Labelled(filled.text, tuple(merged))


def join(parts: list[Labelled], separators: list[str]) -> Labelled:
    """Concatenate labelled texts; `separators` holds one entry between each two."""
    text, spans = "", []
    for index, part in enumerate(parts):
        if index:
            text += separators[index - 1]
        spans += [Span(span.label, span.start + len(text), span.end + len(text)) for span in part.spans]
        text += part.text
    return Labelled(text, tuple(spans))
