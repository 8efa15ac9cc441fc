"""How one input is read: the rows that a graph will run, and what is reported of its length.

Content is tokenised once; rejecting, truncating and cutting into windows happen on token ids. The one exception is
truncation for token heads, where spans must come from a text that the model read whole: the longest prefix of the
text whose own tokens fit. A text that is far too long is read until that is sure, and no further: what is kept of it
are its first tokens, and its end changes no more than some before the place where reading stopped.
Source: the router's model runtime (text/windows.py, heads/grounded.py), whose lengths and cuts these reproduce.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from vela.graphs import errors, heads, task
from vela.serve import answers, policy, windows
from vela.serve.tokenization import Content, Framed, Offsets, Tokenizer


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts that are read together."""

    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Grounded:
    """An answer to be checked against the context that it was given."""

    context: str
    question: str
    answer: str


Item = str | Pair | Grounded

# A text of more characters than this for each token that may be read is first read up to there: texts have four or
# less for a token. Source: measured, 15 MB in one text took 17 s and 1.5 GB to refuse when read to the end.
SURE_CHARACTERS = 8
READ_CHARACTERS = 1 << 16  # at least, where fewer would do: so many take some milliseconds


class _Part(msgspec.Struct, frozen=True):
    """What was read of a text: all of it, or more than may be kept.

    Attributes:
        text: As much of it as was read.
        content: Its tokens.
        tokens: How many tokens the text has, or has at least.
        is_whole: Whether that is all of it.
    """

    text: str
    content: Content
    tokens: int
    is_whole: bool


class Reading(msgspec.Struct, frozen=True):
    """One input, ready to run.

    Attributes:
        rows: What the graph runs, one row or one for each window.
        report: What the caller is told of the length.
        text: What spans are slices of; of a grounded item, the answer.
        offsets: Each content token's place in `text`; empty for heads that give no spans.
        slices: The windows; empty where the input is read in one piece.
    """

    rows: tuple[Framed, ...]
    report: answers.InputReport
    text: str = ""
    offsets: Offsets = ()
    slices: tuple[windows.Slice, ...] = ()


def read_items(
    items: Sequence[Item], head: heads.Head, tokenizer: Tokenizer, rules: policy.Policy
) -> list[Reading | errors.ItemError]:
    """Read a request's inputs; one that cannot be read does not touch its neighbours.

    Args:
        items: Any mixture; the ones that the head does not take come back as errors.
        head: Which kind of input it takes, and whether spans are needed.
        tokenizer: The bundle's.
        rules: What holds for this request.
    """
    parts = iter(_read_parts([text for item in items for text in _texts(item)], head, tokenizer, rules))
    readings: list[Reading | errors.ItemError] = []
    for item in items:
        own = [next(parts) for _ in _texts(item)]
        try:
            readings.append(_read(item, own, head, tokenizer, rules))
        except errors.ItemError as error:
            readings.append(error)
    return readings


def _texts(item: Item) -> tuple[str, ...]:
    match item:
        case str():
            return (item,)
        case Pair():
            return (item.first, item.second)
        case Grounded():
            return (task.GROUNDED_PROMPT.format(question=item.question, context=item.context), item.answer)


def _read_parts(
    wholes: Sequence[str], head: heads.Head, tokenizer: Tokenizer, rules: policy.Policy
) -> list[_Part | errors.ItemError]:
    """Read texts, each to its end or until it has more tokens than are ever kept."""
    size, with_offsets = max(READ_CHARACTERS, SURE_CHARACTERS * rules.max_tokens), head.kind == "token"
    if max(map(len, wholes), default=0) > size:
        return [_read_part(whole, size, tokenizer, rules, with_offsets=with_offsets) for whole in wholes]
    found = _encode_all(wholes, tokenizer, with_offsets=with_offsets)
    return [
        content if isinstance(content, errors.ItemError) else _Part(whole, content, len(content.ids), is_whole=True)
        for whole, content in zip(wholes, found, strict=True)
    ]


def _read_part(
    whole: str, size: int, tokenizer: Tokenizer, rules: policy.Policy, *, with_offsets: bool
) -> _Part | errors.ItemError:
    """Read so many characters, and twice as many again while it is not sure that they hold too many tokens."""
    while True:
        text = whole[:size]
        (content,) = _encode_all([text], tokenizer, with_offsets=with_offsets)
        if isinstance(content, errors.ItemError):
            return content
        if size >= len(whole):
            return _Part(text, content, len(content.ids), is_whole=True)
        sure = len(content.ids) - tokenizer.unsettled_tokens
        if sure > rules.max_tokens:
            return _Part(text, content, sure, is_whole=False)
        size *= 2


def _encode_all(texts: Sequence[str], tokenizer: Tokenizer, *, with_offsets: bool) -> list[Content | errors.ItemError]:
    try:
        return list(tokenizer.encode(texts, with_offsets=with_offsets))
    except errors.ItemError as error:
        if len(texts) == 1:
            return [error]
    return [found for text in texts for found in _encode_all([text], tokenizer, with_offsets=with_offsets)]


def _read(
    item: Item,
    found: Sequence[_Part | errors.ItemError],
    head: heads.Head,
    tokenizer: Tokenizer,
    rules: policy.Policy,
) -> Reading:
    parts = []
    for part in found:
        if isinstance(part, errors.ItemError):
            raise part
        parts.append(part)
    match item, head.inputs:
        case (str(), "text"):
            return _read_text(parts[0], tokenizer, rules, spans=head.kind == "token")
        case (Pair(), "pair"):
            return _read_pair(parts[0], parts[1], tokenizer, rules)
        case (Grounded(), "grounded"):
            return _read_grounded(item, parts[0], parts[1], tokenizer, rules)
    taken = {"text": "a text", "pair": "text and text_pair", "grounded": "context, question and answer"}[head.inputs]
    raise invalid_input("another kind of input", taken)


def _read_text(part: _Part, tokenizer: Tokenizer, rules: policy.Policy, *, spans: bool) -> Reading:
    text, content = part.text, part.content
    if not text:
        raise invalid_input("an empty text", "a text")
    tokens = part.tokens + tokenizer.special_count
    if rules.window is not None:
        return _read_windows(part, tokenizer, rules, rules.window)
    if tokens <= rules.max_tokens:
        report = answers.InputReport(tokens, tokens, truncated=False)
        return Reading((tokenizer.frame(content.ids),), report, text, content.offsets)
    if rules.overflow == "reject":
        raise _too_long("max_length_exceeded", tokens, rules.max_tokens, is_exact=part.is_whole)
    keep = rules.max_tokens - tokenizer.special_count
    if spans:
        text, content = _fitting_prefix(text, content, keep, tokenizer)
    else:
        content = Content(content.ids[:keep], ())
    row = tokenizer.frame(content.ids)
    report = answers.InputReport(tokens, len(row.ids), truncated=True, tokens_lower_bound=not part.is_whole)
    return Reading((row,), report, text, content.offsets)


def _read_windows(part: _Part, tokenizer: Tokenizer, rules: policy.Policy, window: heads.Window) -> Reading:
    content, tokens = part.content, part.tokens + tokenizer.special_count
    if tokens > rules.max_tokens:
        raise _too_long("scan_budget_exceeded", tokens, rules.max_tokens, is_exact=part.is_whole)
    if not content.ids:
        raise invalid_input("a text without tokens", "a text with something to scan")
    slices = windows.plan_windows(len(content.ids), tokenizer.special_count, window)
    rows = tuple(tokenizer.frame(content.ids[piece.start : piece.end]) for piece in slices)
    report = answers.InputReport(tokens, tokens, truncated=False, windows=len(slices))
    return Reading(rows, report, part.text, content.offsets, slices)


def _fitting_prefix(text: str, content: Content, keep: int, tokenizer: Tokenizer) -> tuple[str, Content]:
    """Cut a text to its longest prefix whose own tokens fit: where the last kept token ends, or a little before.

    Tokens of a prefix can differ from the prefix's share of the whole text's tokens, near the cut.
    """
    prefix = text[: max((end for _, end in content.offsets[:keep]), default=0)]
    fitted = tokenizer.encode([prefix], with_offsets=True)[0]
    while len(fitted.ids) > keep:
        prefix = prefix[:-1]
        fitted = tokenizer.encode([prefix], with_offsets=True)[0]
    return prefix, fitted


def _read_pair(first: _Part, second: _Part, tokenizer: Tokenizer, rules: policy.Policy) -> Reading:
    tokens = first.tokens + second.tokens + tokenizer.pair_special_count
    if tokens > rules.max_tokens:
        is_exact = first.is_whole and second.is_whole
        raise _too_long("max_length_exceeded", tokens, rules.max_tokens, is_exact=is_exact)
    row = tokenizer.frame_pair(first.content.ids, second.content.ids)
    return Reading((row,), answers.InputReport(tokens, tokens, truncated=False))


def _read_grounded(item: Grounded, prompt: _Part, answer: _Part, tokenizer: Tokenizer, rules: policy.Policy) -> Reading:
    """Read prompt and answer as a pair; truncation keeps the whole answer and cuts the prompt's tail."""
    if not item.answer:
        raise invalid_input("an empty answer", "an answer to check")
    tokens = prompt.tokens + answer.tokens + tokenizer.pair_special_count
    room = rules.max_tokens - answer.tokens - tokenizer.pair_special_count
    cut = tokens > rules.max_tokens
    if cut and (rules.overflow == "reject" or room < 0):
        is_exact = prompt.is_whole and answer.is_whole
        raise _too_long("max_length_exceeded", tokens, rules.max_tokens, is_exact=is_exact)
    kept = prompt.content.ids[:room] if cut else prompt.content.ids
    row = tokenizer.frame_pair(kept, answer.content.ids)
    report = answers.InputReport(tokens, len(row.ids), truncated=cut, tokens_lower_bound=not prompt.is_whole)
    return Reading((row,), report, item.answer, answer.content.offsets)


def invalid_input(found: str, expected: str) -> errors.ItemError:
    """Make the error of an input that is not what the head takes."""
    return errors.ItemError(
        "invalid_input", found, expected=expected, where="input", fix="The model's card says what it takes."
    )


def _too_long(code: str, tokens: int, limit: int, *, is_exact: bool) -> errors.ItemError:
    return errors.ItemError(
        code,
        f"{tokens} tokens" if is_exact else f"at least {tokens} tokens",
        expected=f"at most {limit}",
        where="input",
        fix="Shorten it, or choose another options.overflow: nothing is cut unless you ask.",
    )
