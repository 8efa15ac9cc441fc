"""Dates and times in the notations of several languages."""

import random

_MONTHS = {
    "en": "January February March April May June July August September October November December".split(),
    "abbr": "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(),
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split(),
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre".split(),
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre".split(),
    "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre".split(),
    "nl": "januari februari maart april mei juni juli augustus september oktober november december".split(),
}
_WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_FORMS = (
    "{y}-{m:02d}-{d:02d}",
    "{d:02d}/{m:02d}/{y}",
    "{m}/{d}/{y}",
    "{d}.{m}.{y}",
    "{d:02d}.{m:02d}.{y}",
    "{d:02d}-{m:02d}-{y}",
    "{d}/{m}/{s:02d}",
    "{en} {d}, {y}",
    "{en} {d}",
    "{d} {en} {y}",
    "{d} {en}",
    "{abbr} {d}, {y}",
    "{d} {abbr} {y}",
    "{w}, {en} {d}",
    "{w}, {d} {en} {y}",
    "{en} {d}{th}",
    "{d}{th} of {en}",
    "{en} {y}",
    "{y}/{m:02d}/{d:02d}",
    "{d}. {de} {y}",
    "{d}. {de}",
    "{d} {fr} {y}",
    "{d} de {es} de {y}",
    "{d} {it} {y}",
    "{d} {nl} {y}",
)


def year(rng: random.Random) -> str:
    """Draw a year, mostly recent."""
    return str(rng.choice((rng.randint(1900, 2029), rng.randint(1960, 2029))))


def date(rng: random.Random) -> str:
    """Draw a date in one of the notations."""
    day, month, in_year = rng.randint(1, 28), rng.randint(1, 12), int(year(rng))
    suffix = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd"}.get(day, "th")
    names = {language: months[month - 1] for language, months in _MONTHS.items()}
    fields = {"y": in_year, "m": month, "d": day, "s": in_year % 100, "th": suffix, "w": rng.choice(_WEEKDAYS)}
    return rng.choice(_FORMS).format(**fields, **names)


def time_of_day(rng: random.Random) -> str:
    """Draw a time of day on a 24 or 12 hour clock."""
    hour, minute = rng.randint(0, 23), rng.choice((0, 15, 30, 45, rng.randint(0, 59)))
    half, short = ("am", "pm")[hour >= 12], (hour - 1) % 12 + 1
    shapes = (
        f"{hour:02d}:{minute:02d}",
        f"{hour}:{minute:02d}",
        f"{short}:{minute:02d} {half}",
        f"{short} {half}",
        f"{short}{half}",
        f"{short}:{minute:02d} {half.upper()}",
        f"{hour}h{minute:02d}",
        f"{hour:02d}:{minute:02d}:{rng.randint(0, 59):02d}",
    )
    return rng.choice(shapes)


def timestamp(rng: random.Random) -> str:
    """Draw a machine-written date and time."""
    day = f"{rng.randint(2015, 2029)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
    clock = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d}"
    apache = f"{rng.randint(1, 28):02d}/{rng.choice(_MONTHS['abbr'])}/{rng.randint(2015, 2029)}:{clock} +0000"
    return rng.choice((f"{day}T{clock}Z", f"{day} {clock}", f"{day} {clock},{rng.randint(100, 999)}", apache))
