"""The JSON shape of one input, the same in requests and in files: a string, or an object with named parts."""

from pathlib import Path

import msgspec

from vela.graphs import errors
from vela.serve.reading import Grounded, Item, Pair


class InputItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One input with named parts: `text`, `text` with `text_pair`, or `context`, `question` and `answer`."""

    text: str | None = None
    text_pair: str | None = None
    context: str | None = None
    question: str | None = None
    answer: str | None = None


def item_from_input(given: str | InputItem, where: str) -> Item:
    """Make an item of its JSON shape.

    Args:
        given: As it was decoded.
        where: Names it in an error, such as `input[3]`.

    Raises:
        InvalidRequest: the parts are none of the three kinds.
    """
    match given:
        case str():
            return given
        case InputItem(text=str(text), text_pair=None, context=None, question=None, answer=None):
            return text
        case InputItem(text=str(text), text_pair=str(other), context=None, question=None, answer=None):
            return Pair(text, other)
        case InputItem(text=None, text_pair=None, context=str(context), question=str(asked), answer=str(told)):
            return Grounded(context, asked, told)
    parts = [name for name in given.__struct_fields__ if getattr(given, name) is not None]
    raise errors.InvalidRequest(
        f"an item with {', '.join(parts) or 'no parts'}",
        expected="text, text and text_pair, or context, question and answer",
        where=where,
        fix="The model's card says which kind it takes.",
    )


def read_jsonl(path: Path) -> list[Item]:
    """Read a file of inputs, one JSON value a line; empty lines are skipped.

    Raises:
        InvalidRequest: a line is no input; the message names it.
    """
    items = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path.name}:{number}"
        try:
            given = msgspec.json.decode(line, type=str | InputItem)
        except (msgspec.MsgspecError, ValueError, RecursionError) as cause:
            raise errors.InvalidRequest(
                str(cause),
                expected="a JSON string, or an object with the parts of an input",
                where=where,
                fix='Write one input a line, such as {"text": "..."}.',
            ) from cause
        items.append(item_from_input(given, where))
    return items
