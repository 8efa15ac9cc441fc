"""How one input is read: the rows that a graph will run, and what is reported of its length.

Content is tokenised once; rejecting, truncating and cutting into windows happen on token ids. The one exception is
truncation for token heads, where spans must come from a text that the model read whole: the longest prefix of the
text whose own tokens fit.
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
    flat = [text for item, refusal in zip(items, refused, strict=True) if refusal is None for text in _texts(item)]
    contents = iter(_encode_all(flat, tokenizer, with_offsets=head.kind == "token"))
    readings: list[Reading | errors.ItemError] = []
    for item, refusal in zip(items, refused, strict=True):
        if refusal is not None:
            readings.append(refusal)
            continue
        parts = [next(contents) for _ in _texts(item)]
        try:
            readings.append(_read(item, parts, head, tokenizer, rules))
        except errors.ItemError as error:
            readings.append(error)
    return readings


def _refuse_by_a_part(item: Item, tokenizer: Tokenizer, rules: policy.Policy) -> errors.ItemError | None:
    """Refuse an input of which a part is too long already; None where that is not so, or where it will be cut."""
    size = SURE_CHARACTERS * rules.max_tokens
    for text in _texts(item) if rules.overflow != "truncate" else ():
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


def _encode_all(texts: Sequence[str], tokenizer: Tokenizer, *, with_offsets: bool) -> list[Content | errors.ItemError]:
    try:
        return list(tokenizer.encode(texts, with_offsets=with_offsets))
    except errors.ItemError as error:
        if len(texts) == 1:
            return [error]
    return [found for text in texts for found in _encode_all([text], tokenizer, with_offsets=with_offsets)]


def _read(
    item: Item,
    parts: Sequence[Content | errors.ItemError],
    head: heads.Head,
    tokenizer: Tokenizer,
    rules: policy.Policy,
) -> Reading:
    contents = []
    for part in parts:
        if isinstance(part, errors.ItemError):
            raise part
        contents.append(part)
    match item, head.inputs:
        case (str(), "text"):
            return _read_text(item, contents[0], tokenizer, rules, spans=head.kind == "token")
        case (Pair(), "pair"):
            return _read_pair(contents[0], contents[1], tokenizer, rules)
        case (Grounded(), "grounded"):
            return _read_grounded(item, contents[0], contents[1], tokenizer, rules)
    taken = {"text": "a text", "pair": "text and text_pair", "grounded": "context, question and answer"}[head.inputs]
    raise invalid_input("another kind of input", taken)


def _read_text(text: str, content: Content, tokenizer: Tokenizer, rules: policy.Policy, *, spans: bool) -> Reading:
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
    return Reading((row,), answers.InputReport(tokens, len(row.ids), truncated=True), text, content.offsets)


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
    item: Grounded, prompt: Content, answer: Content, tokenizer: Tokenizer, rules: policy.Policy
) -> Reading:
    """Read prompt and answer as a pair; truncation keeps the whole answer and cuts the prompt's tail."""
    if not item.answer:
        raise invalid_input("an empty answer", "an answer to check")
    tokens = len(prompt.ids) + len(answer.ids) + tokenizer.pair_special_count
    room = rules.max_tokens - len(answer.ids) - tokenizer.pair_special_count
    cut = tokens > rules.max_tokens
    if cut and (rules.overflow == "reject" or room < 0):
        raise _too_long("max_length_exceeded", tokens, rules.max_tokens)
    row = tokenizer.frame_pair(prompt.ids[:room] if cut else prompt.ids, answer.ids)
    return Reading((row,), answers.InputReport(tokens, len(row.ids), truncated=cut), item.answer, answer.offsets)


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
