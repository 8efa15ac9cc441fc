"""Names of people, organisations and streets, composed from the pools."""

import random

from data.pools import Pools, invented_word

_STREET_FORMS = (
    "{n} {w} Street",
    "{n} {w} Road",
    "{n} {w} Avenue",
    "{n} {w} Lane",
    "{n} {w} Drive",
    "{n} {w} Blvd",
    "{n} {w} Court",
    "{n} {w} St.",
    "{n} {w} Way",
    "{n} {w} Crescent",
    "{n} {d} {w} Terrace",
    "{w}straße {n}",
    "{w}strasse {n}",
    "{w}weg {n}",
    "{w}gasse {n}",
    "{w}platz {n}",
    "{w}allee {n}",
    "Am {w} {n}",
    "{n} rue {w}",
    "{n}, rue de {w}",
    "{n} avenue {w}",
    "{n} bis rue {w}",
    "Calle {w} {n}",
    "Calle de {w}, {n}",
    "Avenida {w} {n}",
    "Via {w} {n}",
    "Via {w}, {n}",
    "Piazza {w} {n}",
    "Rua {w} {n}",
    "Rua de {w}, {n}",
    "{w}straat {n}",
    "{w}laan {n}",
    "{w}gatan {n}",
    "{w}vägen {n}",
    "{w}gade {n}",
    "{w}veien {n}",
    "{w}katu {n}",
    "ul. {w} {n}",
    "ulica {w} {n}",
    "{w} utca {n}.",
    "Str. {w} nr. {n}",
    "{w} Cad. No: {n}",
    "Jalan {w} {n}",
    "P.O. Box {n}",
    "PO Box {n}",
    "the corner of {w} Street and {v} Avenue",
    "{n} {w} {v}",
    "{w} {n}",
)
_JOB_RANKS = ("Senior", "Junior", "Assistant", "Deputy", "Lead", "Chief", "Head", "Associate", "", "", "")
_JOB_FIELDS = (
    *("Network", "Sales", "Marketing", "Finance", "Systems", "Quality", "Research", "Design", "Product", "Operations"),
    *("Software", "Mechanical", "Medical", "Human resources", "Computer", "Travel", "Insurance", "Music", "Forest"),
)
_JOB_ROLES = (
    *("manager", "engineer", "administrator", "analyst", "consultant", "technician", "officer", "director", "agent"),
    *("specialist", "assistant", "teacher", "coordinator", "clerk", "supervisor", "inspector", "planner", "adviser"),
)
_FLATS = ("Apt. {n}", "Apt {n}", "Suite {n}", "Unit {n}", "Flat {n}", "#{n}", "Floor {n}")
_HONORIFICS = "Mr. Mrs. Ms. Dr. Prof. Mr Mrs Ms Dr Miss Sir Madam Captain Judge Senator".split()
_HONORIFICS_OF = {
    "TITLE_DE": ("Herr", "Frau", "Herr Dr.", "Frau Dr.", "Frau Professor"),
    "TITLE_FR": ("Madame", "Monsieur", "M.", "Mme", "Mlle"),
    "TITLE_ES": ("señor", "señora", "Sr.", "Sra.", "don"),
    "TITLE_IT": ("dottoressa", "signora", "signor", "dott."),
    "TITLE_CS": ("pane", "paní", "Ing."),
    "TITLE_PL": ("Panie", "Pani"),
    "TITLE_TR": ("Sayın", "Bay", "Bayan"),
}
TITLE_SLOTS = ("TITLE", *_HONORIFICS_OF)


def title(slot: str, rng: random.Random) -> str:
    """Draw a form of address, of the language that the slot names."""
    return rng.choice(_HONORIFICS_OF.get(slot, tuple(_HONORIFICS)))


def first_name(pools: Pools, rng: random.Random) -> str:
    """Draw a given name, one in four made up."""
    return invented_word(rng) if rng.random() < 0.25 else rng.choice(pools.first_names)


def last_name(pools: Pools, rng: random.Random) -> str:
    """Draw a family name, one in four made up, some doubled."""
    name = invented_word(rng) if rng.random() < 0.25 else rng.choice(pools.last_names)
    return f"{name}-{rng.choice(pools.last_names)}" if rng.random() < 0.06 else name


def person(pools: Pools, rng: random.Random) -> str:
    """Draw a person's name in one of the usual shapes."""
    first, last = first_name(pools, rng), last_name(pools, rng)
    shape = rng.random()
    if shape < 0.12:
        return first
    if shape < 0.24:
        return f"{first} {rng.choice('ABCDEFGHJKLMNPRSTVW')}{rng.choice(('.', ''))} {last}"
    if shape < 0.3:
        return f"{first} {first_name(pools, rng)} {last}"
    return f"{first} {last}"


def organization(pools: Pools, rng: random.Random) -> str:
    """Draw the name of an invented organisation."""
    stem = invented_word(rng) if rng.random() < 0.2 else rng.choice(pools.company_stems)
    field, form = rng.choice(pools.company_fields), rng.choice(pools.company_forms)
    shapes = (
        stem,
        f"{stem} {field}",
        f"{stem} {field}",
        f"{stem} {form}",
        f"{stem} {field} {form}",
        f"{rng.choice(pools.last_names)} {form}",
        f"{rng.choice(pools.last_names)}, {rng.choice(pools.last_names)} and {rng.choice(pools.last_names)}",
        f"{rng.choice(pools.last_names)}-{rng.choice(pools.last_names)}",
        f"University of {rng.choice(pools.cities)}",
        f"{rng.choice(pools.cities)} {field}",
        f"{stem}{field.lower()}",
    )
    return rng.choice(shapes)


def city(pools: Pools, rng: random.Random) -> str:
    """Draw a town; one in ten is made up, one in twelve in capitals."""
    name = invented_word(rng) + rng.choice(("", "ville", "burg", "ton")) if rng.random() < 0.1 else ""
    name = name or rng.choice(pools.cities)
    return name.upper() if rng.random() < 0.08 else name


def job(pools: Pools, rng: random.Random) -> str:
    """Draw a job title, half of the time composed."""
    if rng.random() < 0.5:
        return rng.choice(pools.jobs)
    words = f"{rng.choice(_JOB_RANKS)} {rng.choice(_JOB_FIELDS)} {rng.choice(_JOB_ROLES)}".split()
    text = " ".join(words)
    return text.title() if rng.random() < 0.5 else text[0] + text[1:].lower()


def full_address(pools: Pools, rng: random.Random) -> str:
    """Draw an address with town and country, over several lines, that counts as one."""
    number, code = rng.randint(1, 99999), f"{rng.randint(0, 99999):05d}"
    flat = rng.choice(("", "", rng.choice(_FLATS).format(n=f"{rng.randint(1, 999):03d}")))
    town, country = city(pools, rng), rng.choice(pools.countries)
    region = "".join(rng.choice("ABCDEGHKLMNOPRSTZ") for _ in range(rng.choice((1, 2))))
    start = rng.choice((f"{number} {street(pools, rng)}", street(pools, rng)))
    shapes = (
        f"{start} {flat}\n{town}\n, {region}\n {country} {code}",
        f"{start}\n {flat}\n {town}\n {country} {code}",
        f"{start} {flat}\n{town}\n, {region}\n {code}",
        f"{start}\n {flat}\n {town}\n {country}",
        f"{start} {flat}\n{town}, {region} {code}",
    )
    return rng.choice(shapes).replace("\n \n", "\n").replace(" \n", "\n")


def street(pools: Pools, rng: random.Random) -> str:
    """Draw a street address, some with a flat."""
    word = rng.choice((rng.choice(pools.last_names), rng.choice(pools.company_stems), invented_word(rng)))
    number = str(rng.choice((rng.randint(1, 99), rng.randint(1, 999), rng.randint(1000, 99999))))
    if rng.random() < 0.1:
        number += rng.choice("abcABC")
    form = rng.choice(_STREET_FORMS)
    values = {"n": number, "w": word, "v": rng.choice(pools.last_names), "d": rng.choice("NSEW")}
    text = form.format(**values)
    if rng.random() < 0.2:
        text += rng.choice((", ", " ", "\n ")) + rng.choice(_FLATS).format(n=rng.randint(1, 999))
    return text
