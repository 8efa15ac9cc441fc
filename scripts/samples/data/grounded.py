"""Answers over contexts, with every value that the context does not support marked.

Two sources: project-written facts (`facts.txt`), and sentences of real passages in which words were swapped.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from data import dates, digits, fill, names
from data.fill import Labelled, Span
from data.pools import is_held_out_word, load_pools

HALLUCINATED = "hallucinated"
# One domain in five is held out with all its phrasings.
HELD_OUT_EVERY = 5


@dataclass(frozen=True, slots=True)
class Attribute:
    """One property of a kind of thing: what is asked, how texts state it and how answers do."""

    slot: str
    question: str
    statements: tuple[str, ...]
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """A kind of thing and its properties."""

    name: str
    subject_slot: str
    attributes: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class GroundedExample:
    """A question, the context it is asked over, and an answer with its unsupported spans."""

    question: str
    context: str
    answer: Labelled


def read_domains(*, held_out: bool) -> list[Domain]:
    """Read the domains of one split."""
    domains: list[Domain] = []
    for line in fill.read_templates("facts.txt"):
        if line.startswith("["):
            name, subject = line[1:].split("] ")
            domains.append(Domain(name, subject, ()))
        else:
            slot, question, statements, answers = line.split("\t")
            attribute = Attribute(slot, question, tuple(statements.split(" ; ")), tuple(answers.split(" ; ")))
            last = domains[-1]
            domains[-1] = Domain(last.name, last.subject_slot, (*last.attributes, attribute))
    return [d for index, d in enumerate(domains) if fill.is_held_out(index, HELD_OUT_EVERY) == held_out]


def _value_makers(rng: random.Random, *, held_out: bool) -> dict[str, Callable[[], str]]:
    """Return the generators of subjects and values."""
    pools = load_pools(held_out=held_out)
    makers: dict[str, Callable[[], str]] = {
        "ORDER": lambda: digits.pattern(rng.choice(("A-#####", "#######", "AA####")), rng),
        "INVOICE": lambda: "invoice " + digits.pattern(rng.choice(("####", "##-####")), rng),
        "TICKET": lambda: digits.pattern(rng.choice(("AAA-###", "#####", "AA-####")), rng),
        "DATE": lambda: dates.date(rng),
        "YEAR": lambda: dates.year(rng),
        "TIME": lambda: dates.time_of_day(rng),
        "CITY": lambda: names.city(pools, rng),
        "COUNTRY": lambda: rng.choice(pools.countries),
        "PERSON": lambda: names.person(pools, rng),
        "JOB": lambda: rng.choice(pools.jobs).lower(),
        "ORG": lambda: names.organization(pools, rng),
        "IP": lambda: digits.ip_address(rng),
        "EMAIL": lambda: digits.email(pools, rng),
        "VERSION": lambda: f"{rng.randint(0, 9)}.{rng.randint(0, 30)}.{rng.randint(0, 40)}",
        "NUM": lambda: str(rng.choice((rng.randint(2, 99), rng.randint(100, 9999), rng.randint(10000, 999999)))),
        "MONEY": lambda: rng.choice(("${}", "{} euros", "€{}", "{} dollars")).format(rng.randint(2, 9999)),
        "PERCENT": lambda: f"{rng.randint(1, 99)}{rng.choice(('%', ' percent'))}",
        "DURATION": lambda: f"{rng.randint(2, 90)} {rng.choice(('minutes', 'hours', 'days', 'seconds', 'weeks'))}",
        "LENGTH": lambda: f"{rng.randint(2, 9000)} {rng.choice(('metres', 'km', 'cm', 'feet'))}",
    }
    for line in fill.read_templates("fact_values.txt"):
        name, values = line.split("\t")
        words = values.split("|")
        part = [word for word in words if is_held_out_word(word) == held_out]
        makers[name] = lambda part=part or words: rng.choice(part)
    return makers


class GroundedWriter:
    """Writes examples of one split; the same seed gives the same examples."""

    def __init__(self, seed: int, passages: list[str], *, held_out: bool) -> None:
        """Read the domains of a split; `passages` are real texts of the same split."""
        self._rng = random.Random(seed)
        self._domains = read_domains(held_out=held_out)
        self._make = _value_makers(self._rng, held_out=held_out)
        self._passages = passages

    def fact_example(self) -> GroundedExample:
        """Write an example about one thing, among facts on others."""
        rng, domain = self._rng, self._rng.choice(self._domains)
        subject = self._make[domain.subject_slot]()
        values = {attribute.slot: self._make[attribute.slot]() for attribute in domain.attributes}
        asked = rng.sample(domain.attributes, k=min(len(domain.attributes), rng.choice((1, 1, 1, 2, 3))))
        absent = {a.slot for a in domain.attributes if rng.random() < 0.15}
        told = [a for a in domain.attributes if a.slot not in absent and (a in asked or rng.random() < 0.6)]
        sentences = [self._state(a, subject, values[a.slot]) for a in told]
        sentences += self._distractions(domain)
        rng.shuffle(sentences)
        context = rng.choice((" ", " ", "\n")).join(sentences) or "No data."
        parts = [self._answer(a, values[a.slot], context, supported=a.slot not in absent) for a in asked]
        answer = fill.join([self._fill_subject(part, subject) for part in parts], [" "] * (len(parts) - 1))
        return GroundedExample(asked[0].question.replace("{s}", subject), context, answer)

    def passage_example(self) -> GroundedExample:
        """Write an example whose answer is a sentence of a real passage with some words swapped."""
        rng = self._rng
        passages = rng.sample(self._passages, k=rng.choice((1, 1, 2, 3, 5, 8)))
        context = rng.choice((" ", "\n")).join(passages)
        words = rng.choice(passages).split()
        start = rng.randint(0, max(0, len(words) - 8))
        words = words[start : start + rng.randint(6, 24)]
        context_words = {_bare(word) for word in context.split()}
        parts = [self._maybe_swap(word, context_words) for word in words]
        # Neighbouring swaps make one span, as a decoder would join them.
        answer = fill.merge_neighbours(fill.join(parts, [" "] * (len(parts) - 1)), frozenset({HALLUCINATED}))
        return GroundedExample(" ".join(rng.choice(self._passages).split()[:10]), context, answer)

    def _maybe_swap(self, word: str, context_words: set[str]) -> Labelled:
        if self._rng.random() > 0.2:
            return Labelled(word, ())
        other = self._rng.choice(self._rng.choice(self._passages).split())
        if _bare(word).isdigit():
            other = digits.pattern("#" * len(_bare(word)), self._rng)
        if len(_bare(other)) < 2 or _bare(other) in context_words:
            return Labelled(word, ())
        return Labelled(other, (Span(HALLUCINATED, 0, len(other)),))

    def _state(self, attribute: Attribute, subject: str, value: str) -> str:
        return self._rng.choice(attribute.statements).replace("{s}", subject).replace("{v}", value)

    def _distractions(self, domain: Domain) -> list[str]:
        """Write sentences on other things, some of the same kind, and add real passages."""
        rng, sentences = self._rng, []
        for _ in range(rng.choice((0, 1, 2, 3, 6))):
            other = domain if rng.random() < 0.4 else rng.choice(self._domains)
            attribute = rng.choice(other.attributes)
            subject = self._make[other.subject_slot]()
            sentences.append(self._state(attribute, subject, self._make[attribute.slot]()))
        if rng.random() < 0.4:
            sentences += rng.sample(self._passages, k=rng.choice((1, 1, 2, 6)))
        return sentences

    def _answer(self, attribute: Attribute, value: str, context: str, *, supported: bool) -> Labelled:
        """Phrase one attribute; a supported value is replaced half of the time."""
        form = self._rng.choice(attribute.answers)
        if supported and self._rng.random() < 0.5:
            value, supported = self._replacement(attribute.slot, value, context)
        before, _, after = form.partition("{v}")
        spans = () if supported else (Span(HALLUCINATED, len(before), len(before) + len(value)),)
        return Labelled(before + value + after, spans)

    def _replacement(self, slot: str, value: str, context: str) -> tuple[str, bool]:
        """Draw a value that the context does not hold; return the true one when none is found."""
        for _ in range(5):
            made = self._make[slot]()
            if any(char.isdigit() for char in value) and self._rng.random() < 0.3:
                made = self._nudge(value)
            if made not in context:
                return made, False
        return value, True

    def _nudge(self, value: str) -> str:
        """Change one or two digits of a value."""
        places = [index for index, char in enumerate(value) if char.isdigit()]
        chars = list(value)
        for place in self._rng.sample(places, k=min(len(places), self._rng.choice((1, 2)))):
            chars[place] = str((int(chars[place]) + self._rng.randint(1, 9)) % 10)
        return "".join(chars)

    def _fill_subject(self, part: Labelled, subject: str) -> Labelled:
        """Put the subject into an answer; spans stand behind or before it and move along."""
        text, spans = part.text, list(part.spans)
        while (place := text.find("{s}")) >= 0:
            shift = len(subject) - len("{s}")
            text = text[:place] + subject + text[place + 3 :]
            spans = [Span(s.label, s.start + shift, s.end + shift) if s.start > place else s for s in spans]
        return Labelled(text, tuple(spans))


def _bare(word: str) -> str:
    return "".join(char for char in word.lower() if char.isalnum())
