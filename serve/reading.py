"""How one input is read: the rows that a graph will run, and what is reported of its length.

Content is tokenised once; rejecting, truncating and cutting into windows happen on token ids. The one exception is
truncation for token heads, where spans must come from a text that the model read whole: the longest prefix of the
text whose own tokens fit. Of a text that is far longer than what will be kept, only the beginning is read at all.
Source: the router's model runtime (text/windows.py, heads/grounded.py), whose lengths and cuts these reproduce.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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
JOINED_TOKENS = 16  # of the word that is cut, which may be one token where it is whole
READ_CHARACTERS = 1 << 16  # of a text that will be cut, where fewer would do: so many take some milliseconds


@dataclass(frozen=True, slots=True)
class _Part:
    """What was read of a text.

    Attributes:
        text: As much of it as was read.
        content: Its tokens.
        is_whole: Whether that is all of it.
    """

    text: str
    content: Content
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Reading:
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
    refused = [_refuse_by_a_part(item, tokenizer, rules) for item in items]
    pairs = zip(items, refused, strict=True)
    wholes = [text for item, refusal in pairs if refusal is None for text in _texts(item)]
    parts = iter(_read_parts(wholes, tokenizer, rules, with_offsets=head.kind == "token"))
    readings: list[Reading | errors.ItemError] = []
    for item, refusal in zip(items, refused, strict=True):
        if refusal is not None:
            readings.append(refusal)
            continue
        own = [next(parts) for _ in _texts(item)]
        try:
            readings.append(_read(item, own, head, tokenizer, rules))
        except errors.ItemError as error:
            readings.append(error)
    return readings


def _refuse_by_a_part(item: Item, tokenizer: Tokenizer, rules: policy.Policy) -> errors.ItemError | None:
    """Refuse an input of which a part is too long already; None where that is not so, or where it will be cut."""
    size = SURE_CHARACTERS * rules.max_tokens
    for text in _texts_never_cut(item) if rules.overflow == "truncate" else _texts(item):
        if len(text) > size:
            part = text[:size]
            if tokenizer.takes_words_whole:  # a word of any length may be one token; what is sure ends before it
                part = part[: part.rfind(" ") + 1]
            least = len(tokenizer.encode([part], with_offsets=False)[0].ids) - JOINED_TOKENS
            if least > rules.max_tokens:
                code = "max_length_exceeded" if rules.window is None else "scan_budget_exceeded"
                return _too_long(code, f"at least {least}", rules.max_tokens)
    return None


def _texts(item: Item) -> tuple[str, ...]:
    match item:
        case str():
            return (item,)
        case Pair():
            return (item.first, item.second)
        case Grounded():
            return (task.GROUNDED_PROMPT.format(question=item.question, context=item.context), item.answer)


def _texts_never_cut(item: Item) -> tuple[str, ...]:
    """Give the texts that are read whole even where what is too long is cut."""
    return (item.answer,) if isinstance(item, Grounded) else ()


def _read_parts(
    wholes: Sequence[str], tokenizer: Tokenizer, rules: policy.Policy, *, with_offsets: bool
) -> list[_Part | errors.ItemError]:
    """Read texts, as far as anything of them can be kept where they will be cut."""
    size = max(READ_CHARACTERS, SURE_CHARACTERS * rules.max_tokens)
    if rules.overflow == "truncate" and any(len(whole) > size for whole in wholes):
        return [_read_beginning(whole, size, tokenizer, rules, with_offsets=with_offsets) for whole in wholes]
    found = _encode_all(wholes, tokenizer, with_offsets=with_offsets)
    return [
        content if isinstance(content, errors.ItemError) else _Part(whole, content, is_whole=True)
        for whole, content in zip(wholes, found, strict=True)
    ]


def _read_beginning(
    whole: str, size: int, tokenizer: Tokenizer, rules: policy.Policy, *, with_offsets: bool
) -> _Part | errors.ItemError:
    """Read so many characters, and twice as many again while they hold fewer tokens than may be kept."""
    while True:
        text = whole[:size]
        (content,) = _encode_all([text], tokenizer, with_offsets=with_offsets)
        if isinstance(content, errors.ItemError):
            return content
        is_whole = size >= len(whole)
        if is_whole or len(content.ids) >= rules.max_tokens + JOINED_TOKENS:
            return _Part(text, content, is_whole)
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
            return _read_pair(parts[0].content, parts[1].content, tokenizer, rules)
        case (Grounded(), "grounded"):
            return _read_grounded(item, parts[0], parts[1].content, tokenizer, rules)
    taken = {"text": "a text", "pair": "text and text_pair", "grounded": "context, question and answer"}[head.inputs]
    raise invalid_input("another kind of input", taken)


def _read_text(part: _Part, tokenizer: Tokenizer, rules: policy.Policy, *, spans: bool) -> Reading:
    text, content = part.text, part.content
    if not text:
        raise invalid_input("an empty text", "a text")
    tokens = len(content.ids) + tokenizer.special_count
    if rules.window is not None:
        return _read_windows(text, content, tokenizer, rules, rules.window)
    if tokens <= rules.max_tokens:
        report = answers.InputReport(tokens, tokens, truncated=False)
        return Reading((tokenizer.frame(content.ids),), report, text, content.offsets)
    if rules.overflow == "reject":
        raise _too_long("max_length_exceeded", tokens, rules.max_tokens)
    keep = rules.max_tokens - tokenizer.special_count
    if spans:
        text, content = _fitting_prefix(text, content, keep, tokenizer)
    else:
        content = Content(content.ids[:keep], ())
    row = tokenizer.frame(content.ids)
    report = answers.InputReport(tokens, len(row.ids), truncated=True, tokens_lower_bound=not part.is_whole)
    return Reading((row,), report, text, content.offsets)


def _read_windows(
    text: str, content: Content, tokenizer: Tokenizer, rules: policy.Policy, window: heads.Window
) -> Reading:
    tokens = len(content.ids) + tokenizer.special_count
    if tokens > rules.max_tokens:
        raise _too_long("scan_budget_exceeded", tokens, rules.max_tokens)
    if not content.ids:
        raise invalid_input("a text without tokens", "a text with something to scan")
    slices = windows.plan_windows(len(content.ids), tokenizer.special_count, window)
    rows = tuple(tokenizer.frame(content.ids[piece.start : piece.end]) for piece in slices)
    report = answers.InputReport(tokens, tokens, truncated=False, windows=len(slices))
    return Reading(rows, report, text, content.offsets, slices)


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


def _read_pair(first: Content, second: Content, tokenizer: Tokenizer, rules: policy.Policy) -> Reading:
    tokens = len(first.ids) + len(second.ids) + tokenizer.pair_special_count
    if tokens > rules.max_tokens:
        raise _too_long("max_length_exceeded", tokens, rules.max_tokens)
    return Reading((tokenizer.frame_pair(first.ids, second.ids),), answers.InputReport(tokens, tokens, truncated=False))


def _read_grounded(
    item: Grounded, prompt: _Part, answer: Content, tokenizer: Tokenizer, rules: policy.Policy
) -> Reading:
    """Read prompt and answer as a pair; truncation keeps the whole answer and cuts the prompt's tail."""
    if not item.answer:
        raise invalid_input("an empty answer", "an answer to check")
    tokens = len(prompt.content.ids) + len(answer.ids) + tokenizer.pair_special_count
    room = rules.max_tokens - len(answer.ids) - tokenizer.pair_special_count
    cut = tokens > rules.max_tokens
    if cut and (rules.overflow == "reject" or room < 0):
        raise _too_long("max_length_exceeded", tokens, rules.max_tokens)
    row = tokenizer.frame_pair(prompt.content.ids[:room] if cut else prompt.content.ids, answer.ids)
    report = answers.InputReport(tokens, len(row.ids), truncated=cut, tokens_lower_bound=not prompt.is_whole)
    return Reading((row,), report, item.answer, answer.offsets)


def invalid_input(found: str, expected: str) -> errors.ItemError:
    """Make the error of an input that is not what the head takes."""
    return errors.ItemError(
        "invalid_input", found, expected=expected, where="input", fix="The model's card says what it takes."
    )


def _too_long(code: str, tokens: int | str, limit: int) -> errors.ItemError:
    return errors.ItemError(
        code,
        f"{tokens} tokens",
        expected=f"at most {limit}",
        where="input",
        fix="Shorten it, or choose another options.overflow: nothing is cut unless you ask.",
    )
