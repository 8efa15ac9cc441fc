"""Cases: token ids that a graph and its reference both answer.

Lengths that matter are made on purpose: around multiples of the half-window, where a wrong window shows, and at the
multiples of 32 where padded rows were seen to turn to NaN.
Source: reference/verification.md §4.3; Blaizzy/mlx-embeddings issue 80.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from vela.graphs import errors, heads, task
from vela.serve import tokenization
from vela.verify import rows

CHARACTERS_PER_TOKEN = 8  # an upper bound for real text with any tokenizer of this family; made texts are cut by ids
LENGTH_CLASSES = (16, 64, 128, 512, 2048, 8192, 32768)


@dataclass(frozen=True, slots=True)
class Case:
    """One input.

    Attributes:
        id: Where it came from.
        ids: Token ids with special tokens.
        text: The text that spans point into; the second of a pair.
        first: Place in `ids` of that text's first token.
        offsets: Start and end of its tokens in the text, in code points; empty where the form has no spans.
        query: Which query a pair's document is ranked for; empty for other forms.
    """

    id: str
    ids: tuple[int, ...]
    text: str
    first: int
    offsets: tuple[tuple[int, int], ...]
    query: str = ""

    @property
    def tokens(self) -> int:
        """Length with special tokens."""
        return len(self.ids)

    @property
    def content(self) -> slice:
        """Where in `ids` the tokens of `offsets` are."""
        return slice(self.first, self.first + len(self.offsets))


def make_cases(
    head: heads.Head, tokenizer: tokenization.Tokenizer, corpus: rows.Corpus, half_window: int, max_tokens: int
) -> list[Case]:
    """Make all cases of a head: its corpus, and made texts at the lengths that matter.

    Args:
        head: What inputs it takes.
        tokenizer: The bundle's.
        corpus: Texts.
        half_window: Of the sliding layers.
        max_tokens: Longest case with special tokens.

    Raises:
        NothingCompared: there would be none.
    """
    if head.inputs == "text":
        found = _text_cases(tokenizer, [(row.id, row.text) for row in corpus.texts])
        found += _made_cases(tokenizer, corpus, key_lengths(half_window, max_tokens))
    elif head.inputs == "grounded":
        triples = ((row.id, task.GROUNDED_PROMPT, row) for row in corpus.grounded)
        found = _pair_cases(
            tokenizer,
            [
                (row_id, prompt.format(question=row.question, context=row.context), row.answer)
                for row_id, prompt, row in triples
            ],
        )
    else:
        found = _ranked_cases(tokenizer, corpus, key_lengths(half_window, max_tokens))
    kept = [case for case in found if case.tokens <= max_tokens]
    if not kept:
        raise errors.NothingCompared(
            "no case of a length that fits",
            expected=f"cases of up to {max_tokens} tokens",
            where=f"head {head.name}",
            fix="Raise --max-tokens, or give texts with --corpus.",
        )
    return kept


def key_lengths(half_window: int, max_tokens: int) -> list[int]:
    """List the lengths that texts are made to, special tokens included, up to `max_tokens`."""
    lengths = {2, 3, 4}
    for multiple in (1, 2, 3, 4, 6, 8):
        lengths |= {multiple * half_window + step for step in (-1, 0, 1, 2)}
    size = 64
    while size <= max_tokens:
        lengths |= {size - 1, size, size + 1, size + size // 2}
        size *= 2
    lengths.add(max_tokens)
    return sorted(length for length in lengths if 2 <= length <= max_tokens)


def length_class(tokens: int) -> str:
    """Name the length class of a case, such as `65-128`."""
    floor = 1
    for ceiling in LENGTH_CLASSES:
        if tokens <= ceiling:
            return f"{floor}-{ceiling}"
        floor = ceiling + 1
    return f"{floor}+"


def _text_cases(tokenizer: tokenization.Tokenizer, texts: Sequence[tuple[str, str]]) -> list[Case]:
    contents = tokenizer.encode([text for _, text in texts], with_offsets=True)
    found = []
    for (row_id, text), content in zip(texts, contents, strict=True):
        framed = tokenizer.frame(content.ids)
        found.append(Case(row_id, framed.ids, text, framed.first, content.offsets))
    return found


def _made_cases(tokenizer: tokenization.Tokenizer, corpus: rows.Corpus, lengths: Sequence[int]) -> list[Case]:
    """Make one text for each length: rows joined, tokenised once, cut by ids so that the length is exact."""
    made = []
    for index, length in enumerate(lengths):
        room = length - tokenizer.special_count
        if room < 0:
            continue
        text = rows.long_text(corpus.texts, 37 * index, room * CHARACTERS_PER_TOKEN + 1)
        content = tokenizer.encode([text], with_offsets=True)[0]
        framed = tokenizer.frame(content.ids[:room])
        made.append(Case(f"made-{length}", framed.ids, text, framed.first, content.offsets[:room]))
    return made


def _pair_cases(tokenizer: tokenization.Tokenizer, pairs: Sequence[tuple[str, str, str]]) -> list[Case]:
    firsts = tokenizer.encode([first for _, first, _ in pairs], with_offsets=False)
    seconds = tokenizer.encode([second for _, _, second in pairs], with_offsets=True)
    found = []
    for (row_id, _, text), first, second in zip(pairs, firsts, seconds, strict=True):
        framed = tokenizer.frame_pair(first.ids, second.ids)
        found.append(Case(row_id, framed.ids, text, framed.first, second.offsets))
    return found


def _ranked_cases(tokenizer: tokenization.Tokenizer, corpus: rows.Corpus, lengths: Sequence[int]) -> list[Case]:
    """Make a query's documents, for each query, and long documents of one more query, one for each length."""
    found: list[Case] = []
    for row in corpus.pairs:
        made = _pair_cases(
            tokenizer, [(f"{row.id}.{index}", row.query, text) for index, text in enumerate(row.documents)]
        )
        found += [dataclasses.replace(case, query=row.id) for case in made]
    queries = tokenizer.encode([row.query for row in corpus.pairs[:1]], with_offsets=False)
    for index, (query, length) in enumerate(itertools.product(queries, lengths)):
        room = length - tokenizer.pair_special_count - len(query.ids)
        if room > 0:
            text = rows.long_text(corpus.texts, 37 * index, room * CHARACTERS_PER_TOKEN + 1)
            content = tokenizer.encode([text], with_offsets=True)[0]
            framed = tokenizer.frame_pair(query.ids, content.ids[:room])
            found.append(Case(f"made-{length}", framed.ids, text, framed.first, content.offsets[:room], "made"))
    return found
