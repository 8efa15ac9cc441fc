"""Texts with personal data: templates filled with invented values, in the family's seventeen types.

The training and the held-out texts share neither templates nor words. Documents join several texts, so that long
inputs are in distribution.
"""

import random
from collections.abc import Callable

from data import dates, digits, fill, names
from data.fill import Labelled
from data.pools import Pools, load_pools

TYPES = (
    "AGE",
    "CREDIT_CARD",
    "DATE_TIME",
    "DOMAIN_NAME",
    "EMAIL_ADDRESS",
    "GPE",
    "IBAN_CODE",
    "IP_ADDRESS",
    "NRP",
    "ORGANIZATION",
    "PERSON",
    "PHONE_NUMBER",
    "STREET_ADDRESS",
    "TITLE",
    "US_DRIVER_LICENSE",
    "US_SSN",
    "ZIP_CODE",
)
TEMPLATE_FILES = [
    "pii_chat.txt",
    "pii_email.txt",
    "pii_forms.txt",
    "pii_languages.txt",
    "pii_prose.txt",
    "pii_none.txt",
]
# One template in six is held out.
HELD_OUT_EVERY = 6
_LABEL_OF_SLOT = {
    "AGE": "AGE",
    "CARD": "CREDIT_CARD",
    "DATE": "DATE_TIME",
    "TIME": "DATE_TIME",
    "YEAR": "DATE_TIME",
    "ISO": "DATE_TIME",
    "DOMAIN": "DOMAIN_NAME",
    "URL": "DOMAIN_NAME",
    "EMAIL": "EMAIL_ADDRESS",
    "CITY": "GPE",
    "COUNTRY": "GPE",
    "STATE": "GPE",
    "IBAN": "IBAN_CODE",
    "IP": "IP_ADDRESS",
    "NRP": "NRP",
    "ORG": "ORGANIZATION",
    "PERSON": "PERSON",
    "FIRST": "PERSON",
    "LAST": "PERSON",
    "PHONE": "PHONE_NUMBER",
    "STREET": "STREET_ADDRESS",
    "FULLADDRESS": "STREET_ADDRESS",
    "JOB": "TITLE",
    "DL": "US_DRIVER_LICENSE",
    "SSN": "US_SSN",
    "ZIP": "ZIP_CODE",
} | dict.fromkeys(names.TITLE_SLOTS, "TITLE")
_MERGED = frozenset({"PERSON", "DATE_TIME"})
# Lead-ins with which a value is put into a real sentence; they leave no doubt about its type.
_INSERTIONS = (
    *("in {CITY}", "from {CITY}", "near {CITY}", "to {CITY}", "in {COUNTRY}", "from {COUNTRY}", "with {PERSON}"),
    *("and {PERSON}", "by {PERSON}", "says {FIRST}", "{TITLE} {LAST}", "to {TITLE} {LAST}", "like {FIRST}"),
    *("at {ORG}", "by {ORG}", "from {ORG}", "on {DATE}", "until {DATE}", "at {TIME}", "since {YEAR}", "in {YEAR}"),
    *("({PHONE})", "call {PHONE}", "to {EMAIL}", "{EMAIL}", "on {DOMAIN}", "see {URL}", "from {IP}", "via {IP}"),
    *("to {IBAN}", "card {CARD}", "{CARD}", "ssn {SSN}", "license {DL}", "at {STREET}", "in {ZIP} {CITY}"),
    *("the {NRP}", "a {NRP}", "aged {AGE}", "a {AGE}-year-old", "our {JOB}", "{IBAN}", "{SSN}", "{FULLADDRESS}"),
    *("number {nn}", "for {money}", "order {id}", "version {ver}", "{pct}", "ref {hex}", "part {sku}"),
)
_SEPARATORS = ("\n", "\n", "\n\n", " ", " ", "  ", "\n- ")


def _identifiers(rng: random.Random) -> dict[str, Callable[[], str]]:
    """Return the generators of the unlabelled slots, which are near misses of the labelled ones."""
    currency = ("${}", "{} EUR", "€{}", "{} USD", "£{}", "{} kr", "{},00 €", "{}.50 dollars")
    return {
        "n": lambda: str(rng.randint(1, 12)),
        "nn": lambda: str(rng.choice((rng.randint(10, 99), rng.randint(100, 999), rng.randint(1000, 99999)))),
        "money": lambda: rng.choice(currency).format(rng.choice((rng.randint(1, 99), rng.randint(100, 9999)))),
        "id": lambda: digits.pattern(rng.choice(("AA-#####", "########", "#A####", "AAA######", "#######-##")), rng),
        "ver": lambda: f"{rng.randint(0, 9)}.{rng.randint(0, 30)}.{rng.randint(0, 40)}",
        "hex": lambda: f"{rng.getrandbits(40):010x}",
        "pct": lambda: rng.choice(("{}%", "{} %", "{} percent")).format(rng.randint(1, 99)),
        "sku": lambda: digits.pattern(rng.choice(("AA####", "A-###", "###-AA-##")), rng),
    }


def _personal(pools: Pools, rng: random.Random) -> dict[str, Callable[[], str]]:
    """Return the generators of the labelled slots."""
    plain = {
        "AGE": lambda: str(rng.randint(1, 99)),
        "COUNTRY": lambda: rng.choice(pools.countries),
        "STATE": lambda: rng.choice(pools.states),
        "NRP": lambda: rng.choice(pools.nationalities),
    }
    of_rng = {
        "CARD": digits.card,
        "DATE": dates.date,
        "TIME": dates.time_of_day,
        "YEAR": dates.year,
        "ISO": dates.timestamp,
        "IBAN": digits.iban,
        "IP": digits.ip_address,
        "PHONE": digits.phone,
        "DL": digits.driver_license,
        "SSN": digits.ssn,
        "ZIP": digits.zip_code,
    }
    of_pools = {
        "DOMAIN": digits.domain,
        "URL": digits.url,
        "EMAIL": digits.email,
        "CITY": names.city,
        "ORG": names.organization,
        "PERSON": names.person,
        "FIRST": names.first_name,
        "LAST": names.last_name,
        "STREET": names.street,
        "FULLADDRESS": names.full_address,
        "JOB": names.job,
    }
    made = plain | {slot: lambda draw=draw: draw(rng) for slot, draw in of_rng.items()}
    made |= {slot: lambda draw=draw: draw(pools, rng) for slot, draw in of_pools.items()}
    return made | {slot: lambda slot=slot: names.title(slot, rng) for slot in names.TITLE_SLOTS}


class PiiWriter:
    """Writes labelled texts of one split; the same seed gives the same texts."""

    def __init__(self, seed: int, *, held_out: bool) -> None:
        """Read the templates and pools of a split."""
        self._rng = random.Random(seed)
        self._templates = fill.split_templates(TEMPLATE_FILES, HELD_OUT_EVERY, held_out=held_out)
        pools = load_pools(held_out=held_out)
        self._values = _identifiers(self._rng) | _personal(pools, self._rng)

    def text(self) -> Labelled:
        """Fill one template."""
        chosen = fill.choose(self._rng.choice(self._templates), self._rng)
        filled = fill.merge_neighbours(fill.substitute(chosen, self._values, _LABEL_OF_SLOT), _MERGED)
        return self._recase(filled)

    def plain(self, plain_texts: list[str]) -> Labelled:
        """Take a real sentence without personal data, some with capitals where names would have them."""
        text = self._rng.choice(plain_texts)
        draw = self._rng.random()
        if draw < 0.15:
            text = " ".join(word.capitalize() for word in text.split())
        elif draw < 0.4:
            text = " ".join(word.capitalize() if self._rng.random() < 0.2 else word for word in text.split())
        elif draw < 0.6:
            text = text[0].upper() + text[1:]
        return Labelled(text, ())

    def inserted(self, plain_texts: list[str]) -> Labelled:
        """Put one or two values into a real sentence."""
        words = self.plain(plain_texts).text.split()
        for _ in range(self._rng.choice((1, 1, 2))):
            words.insert(self._rng.randint(0, len(words)), self._rng.choice(_INSERTIONS))
        filled = fill.substitute(" ".join(words), self._values, _LABEL_OF_SLOT)
        return self._recase(fill.merge_neighbours(filled, _MERGED))

    def document(self, part_count: int, plain_texts: list[str]) -> Labelled:
        """Join several filled templates with sentences that hold no personal data."""
        parts = [self.plain(plain_texts) if self._rng.random() < 0.3 else self.text() for _ in range(part_count)]
        return fill.join(parts, [self._rng.choice(_SEPARATORS) for _ in parts[1:]])

    def _recase(self, filled: Labelled) -> Labelled:
        draw = self._rng.random()
        text = filled.text.lower() if draw < 0.1 else filled.text.upper() if draw > 0.97 else filled.text
        # A few letters change length with their case; spans would no longer fit, so such a text stays as it is.
        return Labelled(text, filled.spans) if len(text) == len(filled.text) else filled


def texts_without_names(texts: list[str]) -> list[str]:
    """Keep the texts that hold no digit and no town, country, people or month, for use as unlabelled filler."""
    words: set[str] = set()
    for held_out in (False, True):
        pools = load_pools(held_out=held_out)
        words |= {*pools.cities, *pools.countries, *pools.states, *pools.nationalities, *pools.first_names}
    lowered = {word.lower() for word in words} | {"us", "uk", "usa", "eu", "europe", "european", "american"}
    lowered -= {"may", "will", "mark", "grace", "jack", "nice", "split", "reading", "an", "ana"}
    return [text for text in texts if not any(char.isdigit() for char in text) and not lowered & _word_set(text)]


def _word_set(text: str) -> set[str]:
    return {"".join(char for char in word if char.isalpha()) for word in text.lower().split()}
