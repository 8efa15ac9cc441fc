"""Cases: token ids that a graph and its reference both answer, and which graph is asked which.

Each text goes to the graph that serve would pick for it, alone; on top of that, probes go to every graph, so that a
short text in a long bucket (a run of pads longer than the local window) and the bucket's edges are always judged.
Lengths that matter are made on purpose: around multiples of the half-window, where a wrong window shows, and at the
multiples of 32 where padded rows were seen to turn to NaN.
Source: reference/verification.md §4.3; Blaizzy/mlx-embeddings issue 80.
"""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vela.graphs import digests, errors, heads, manifest, task
from vela.serve import tokenization
from vela.verify import rows

PROBE_COUNT = 16
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


@dataclass(frozen=True, slots=True)
class Run:
    """A case on a graph, with companions that share its batch.

    Attributes:
        case: The case that is compared.
        companions: Other rows of the batch, which must change nothing.
        pad_to: Tokens that a dynamic graph's row is padded to; None leaves it alone.
    """

    case: Case
    companions: tuple[Case, ...] = ()
    pad_to: int | None = None


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


def plan_runs(
    graph: manifest.Graph, graphs: Sequence[manifest.Graph], cases: Sequence[Case], half_window: int, limit: int
) -> list[Run]:
    """List the runs of one graph.

    Args:
        graph: The graph to judge.
        graphs: All graphs of the bundle, which decide what serve would pick.
        cases: All cases.
        half_window: Probes are padded by more than twice this on dynamic graphs, as far as the limit lets them.
        limit: Longest row that the encoder takes, pads included: learned positions end.
    """
    if graph.sequence is None:
        probes = pick_probes(cases)
        alone = [Run(case) for case in cases]
        if not graph.takes_mask:
            return alone + _equal_rows(probes, cases)
        padded = [Run(case, pad_to=min(limit, case.tokens + 2 * half_window + 3)) for case in probes]
        batched = [Run(case, companions=(probes[index - 1], probes[index - 2])) for index, case in enumerate(probes)]
        return alone + padded + batched
    shorter = [
        other.sequence
        for other in graphs
        if other.sequence is not None and other.sequence < graph.sequence and other.exit_layer == graph.exit_layer
    ]
    floor = max(shorter, default=0)
    fitting = [case for case in cases if case.tokens <= graph.sequence]
    own = [case for case in fitting if case.tokens > floor]
    chosen = list(dict.fromkeys([*own, *pick_probes(fitting)]))
    others = (graph.batch or 1) - 1
    return [
        Run(case, companions=tuple(chosen[(index + step) % len(chosen)] for step in range(1, others + 1)))
        for index, case in enumerate(chosen)
    ]


def _equal_rows(probes: Sequence[Case], cases: Sequence[Case]) -> list[Run]:
    """Batch each probe with up to two other cases of its own length: what a graph without a mask can be fed."""
    by_length: dict[int, list[Case]] = {}
    for case in cases:
        by_length.setdefault(case.tokens, []).append(case)
    groups = [(probe, [case for case in by_length[probe.tokens] if case != probe][:2]) for probe in probes]
    return [Run(probe, companions=tuple(others)) for probe, others in groups if others]


def pick_probes(cases: Sequence[Case], count: int = PROBE_COUNT) -> list[Case]:
    """Pick cases spread evenly over all lengths: the shortest, the longest, and those between."""
    ordered = sorted(cases, key=lambda case: (case.tokens, case.id))
    if len(ordered) <= count:
        return ordered
    return [ordered[round(index * (len(ordered) - 1) / (count - 1))] for index in range(count)]


def length_class(tokens: int) -> str:
    """Name the length class of a case, such as `65-128`."""
    floor = 1
    for ceiling in LENGTH_CLASSES:
        if tokens <= ceiling:
            return f"{floor}-{ceiling}"
        floor = ceiling + 1
    return f"{floor}+"


def digest_of_runs(runs: Iterable[Run]) -> str:
    """Give one digest for what a graph is asked, so that two records can be seen to rest on the same inputs."""
    planned = [[run.case.id, run.case.ids, [companion.id for companion in run.companions], run.pad_to] for run in runs]
    return digests.sha256_of_bytes(json.dumps(planned).encode())


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
