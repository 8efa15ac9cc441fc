"""Simple methods that the samples are compared with; none of them has a neural network."""

import math
import re
from collections import Counter

import numpy as np
from data.fill import Span
from data.pools import load_pools
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

_WORD = re.compile(r"\w+")


def svm_labels(train: list[str], labels: list[int], test: list[str]) -> NDArray[np.int64]:
    """Label texts by a linear SVM over TF-IDF of words and word pairs."""
    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    machine = LinearSVC(C=1.0, random_state=0).fit(vectors.fit_transform(train), labels)
    return np.asarray(machine.predict(vectors.transform(test)))


def svm_multilabel(train: list[str], truth: NDArray[np.float32], test: list[str]) -> NDArray[np.bool_]:
    """Give texts any number of labels, by one linear SVM over TF-IDF for each."""
    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    machine = OneVsRestClassifier(LinearSVC(C=1.0, class_weight="balanced", random_state=0))
    machine.fit(vectors.fit_transform(train), truth)
    return np.asarray(machine.predict(vectors.transform(test))) > 0


def tfidf_similarities(fitted_on: list[str], queries: list[str], documents: list[str]) -> NDArray[np.float64]:
    """Return the cosines (Q, D) of TF-IDF vectors."""
    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True).fit(fitted_on)
    return np.asarray((vectors.transform(queries) @ vectors.transform(documents).T).toarray())


class Bm25:
    """BM25 (k1 1.5, b 0.75) with statistics of a given collection."""

    def __init__(self, collection: list[str]) -> None:
        """Count in how many texts each word stands."""
        bags = [self._words(text) for text in collection]
        self._holders = Counter(word for bag in bags for word in set(bag))
        self._count = len(bags)
        self._mean_length = sum(map(len, bags)) / len(bags)

    def score(self, query: str, document: str) -> float:
        """Score one document."""
        counts = Counter(self._words(document))
        length = 0.25 + 0.75 * sum(counts.values()) / self._mean_length
        score = 0.0
        for word in set(self._words(query)):
            holders = self._holders.get(word, 0)
            rarity = math.log(1 + (self._count - holders + 0.5) / (holders + 0.5))
            score += rarity * counts[word] * 2.5 / (counts[word] + 1.5 * length)
        return score

    @staticmethod
    def _words(text: str) -> list[str]:
        return _WORD.findall(text.lower())


_PATTERNS = {
    "EMAIL_ADDRESS": r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "DOMAIN_NAME": r"https?://[^\s\"'<>,]+|\b(?:[A-Za-z0-9-]+\.)+(?:com|org|net|io|de|fr|es|it|co\.uk|nl|se|eu|info|dev|app)\b",
    "IP_ADDRESS": r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[0-9a-f]{1,4}(?::{1,2}[0-9a-f]{1,4}){3,7}\b",
    "IBAN_CODE": r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b",
    "CREDIT_CARD": r"\b(?:\d[ -]?){12,15}\d\b",
    "US_SSN": r"\b\d{3}[- ]\d{2}[- ]\d{4}\b",
    "DATE_TIME": r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}:\d{2}Z?)?|\b\d{1,2}[./-]\d{1,2}[./-]\d{2,4}\b"
    r"|\b\d{1,2}:\d{2}(?::\d{2})?(?: ?[ap]m)?\b|\b(?:19|20)\d{2}\b"
    r"|\b(?:\d{1,2} )?(?:January|February|March|April|May|June|July|August|September|October|November|December)"
    r"(?: \d{1,2})?(?:,? \d{4})?\b",
    "PHONE_NUMBER": r"(?:\+\d{1,3}[ -]?)?(?:\(\d{1,4}\)[ -]?)?\d{2,4}(?:[ .-]\d{2,4}){1,4}",
    "AGE": r"\b\d{1,2}(?=[- ]years?[- ]old|-year-old)",
    "TITLE": r"\b(?:Mr|Mrs|Ms|Dr|Prof)\b\.?|\b(?:Miss|Herr|Frau|Madame|Monsieur)\b",
    "STREET_ADDRESS": r"\b\d{1,5} (?:[A-Z]\w+ ){1,2}(?:Street|Road|Avenue|Lane|Drive|Blvd|Court|St\.|Way|Crescent)"
    r"|\b\w+(?:straße|strasse|weg|gasse|platz|straat|laan|gatan|vägen) \d+",
    "ZIP_CODE": r"\b\d{5}(?:-\d{4})?\b",
}


def regex_spans(text: str) -> list[Span]:
    """Find personal data by patterns and lists of names, longest first, without overlaps."""
    found = [Span(label, m.start(), m.end()) for label, form in _PATTERNS.items() for m in re.finditer(form, text)]
    pools = load_pools(held_out=False)
    lists = {
        "GPE": (*pools.cities, *pools.countries, *pools.states),
        "NRP": pools.nationalities,
        "PERSON": (*pools.first_names, *pools.last_names),
    }
    for label, words in lists.items():
        any_word = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
        form = rf"\b(?:{any_word})(?: (?:{any_word}))*\b" if label == "PERSON" else rf"\b(?:{any_word})\b"
        found += [Span(label, m.start(), m.end()) for m in re.finditer(form, text)]
    chosen: list[Span] = []
    for span in sorted(found, key=lambda s: s.start - s.end):
        if all(span.end <= other.start or span.start >= other.end for other in chosen):
            chosen.append(span)
    return sorted(chosen, key=lambda s: s.start)


def absent_words(context: str, answer: str) -> list[Span]:
    """Mark the words of an answer that the context does not hold; neighbours make one span."""
    held = {word.lower() for word in _WORD.findall(context)}
    spans: list[Span] = []
    last_was_absent = False
    for match in _WORD.finditer(answer):
        absent = match.group().lower() not in held
        if absent and last_was_absent:
            spans[-1] = Span("hallucinated", spans[-1].start, match.end())
        elif absent:
            spans.append(Span("hallucinated", match.start(), match.end()))
        last_was_absent = absent
    return spans
