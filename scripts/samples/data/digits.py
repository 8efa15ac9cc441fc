"""Invented numbers and addresses of machines: telephones, accounts, cards, dates, mail and network addresses.

Cards start with ranges that are published for testing, SSNs with areas that are never issued, and IBANs carry right
check digits over random accounts. None of them is taken from a person.
"""

import random
import string

from data.pools import Pools, invented_word

_PHONE_FORMS = (
    "555-01##",
    "(555) 01#-####",
    "555-01#-####",
    "555.01#.####",
    "555 01# ####",
    "+1 555 01# ####",
    "+1-555-01#-####",
    "1-800-555-01##",
    "55501#####",
    "+1 (555) 01#-####",
    "555-01#-#### ext. ##",
    "(555)01#-####x###",
    "+44 20 7946 0###",
    "020 7946 0###",
    "+44 7700 900###",
    "07700 900###",
    "030 555####",
    "0## 555 ####",
    "+49 30 555 ####",
    "+49 (0)30 555####",
    "0049 89 555 ####",
    "0171/555####",
    "089 / 55 5# ##",
    "01 55 50 ## ##",
    "+33 1 55 50 ## ##",
    "06.55.50.##.##",
    "+34 555 ### ###",
    "91 555 ## ##",
    "+39 06 555 ####",
    "+39 555 #######",
    "+351 555 ### ###",
    "020 555 ####",
    "+31 20 555 ####",
    "06-555#####",
    "08-555 ### ##",
    "+46 8 555 ### ##",
    "## ## ## ##",
    "## ### ## ##",
    "### ### ###",
    "+48 555 ### ###",
    "(##) ####-####",
    "+55 11 5555-####",
    "0555 ### ## ##",
    "+90 555 ### ## ##",
    "+62 555-####-####",
    "(03) 5550 ####",
    "0# #### ####",
    "### #### ###",
)
_CARD_STARTS = ("411111", "424242", "400000", "555555", "520000", "222300", "378282", "371449", "601111", "355555")
_IBAN_ACCOUNT_DIGITS = {"DE": 18, "FR": 23, "ES": 20, "AT": 16, "BE": 12, "PL": 24, "PT": 21, "CH": 17, "DK": 14}
_IBAN_LETTER_DIGITS = {"GB": 14, "NL": 10, "IE": 14, "RO": 16, "BG": 14}
_LICENSE_FORMS = (
    "A#######",
    "A### #### ####",
    "########",
    "AA######A",
    "A##-##-####",
    "#########",
    "AA-##-###",
    "A############",
)
_ZIP_FORMS = (
    "#####",
    "#####",
    "#####",
    "#####-####",
    "####",
    "#### AA",
    "AA# #AA",
    "A## #AA",
    "##-###",
    "### ##",
    "A#A #A#",
)
_TLDS = "com org net io de fr es it co.uk nl se eu info com.au dev app".split()
_EXAMPLE_DOMAINS = ("example.com", "example.org", "example.net", "mail.example", "corp.example", "shop.test")


def pattern(form: str, rng: random.Random) -> str:
    """Replace `#` by a digit and `A` by a capital letter."""
    swap = {"#": string.digits, "A": string.ascii_uppercase}
    return "".join(rng.choice(swap[char]) if char in swap else char for char in form)


def phone(rng: random.Random) -> str:
    """Make up a telephone number."""
    form = rng.choice(_PHONE_FORMS)
    if rng.random() < 0.3:
        form = form.replace("5", "#").replace("01#", "###")
    return pattern(form, rng)


def luhn_digit(digits: str) -> str:
    """Compute the check digit of a card number."""
    doubled = [int(digit) * (2 if index % 2 == 0 else 1) for index, digit in enumerate(reversed(digits))]
    return str(-sum(value - 9 if value > 9 else value for value in doubled) % 10)


def card(rng: random.Random) -> str:
    """Make up a card number of a test range with a right check digit."""
    start = rng.choice(_CARD_STARTS)
    length = 15 if start.startswith("37") else rng.choice((16, 16, 16, 13 if start[0] == "4" else 16))
    body = start + "".join(rng.choice(string.digits) for _ in range(length - len(start) - 1))
    number = body + luhn_digit(body)
    separator = rng.choice(("", "", " ", "-"))
    return separator.join(number[i : i + 4] for i in range(0, length, 4)) if separator else number


def iban(rng: random.Random) -> str:
    """Make up an IBAN with right check digits."""
    country = rng.choice((*_IBAN_ACCOUNT_DIGITS, *_IBAN_LETTER_DIGITS))
    if country in _IBAN_ACCOUNT_DIGITS:
        account = pattern("#" * _IBAN_ACCOUNT_DIGITS[country], rng)
    else:
        account = pattern("AAAA" + "#" * _IBAN_LETTER_DIGITS[country], rng)
    value = int("".join(str(int(char, 36)) for char in account + country + "00"))
    number = f"{country}{98 - value % 97:02d}{account}"
    return " ".join(number[i : i + 4] for i in range(0, len(number), 4)) if rng.random() < 0.4 else number


def ssn(rng: random.Random) -> str:
    """Make up a US social security number of an area that is never issued."""
    return pattern(rng.choice(("9##-##-####", "000-##-####", "666-##-####", "9## ## ####", "9########")), rng)


def driver_license(rng: random.Random) -> str:
    """Make up a US driver's licence number."""
    return pattern(rng.choice(_LICENSE_FORMS), rng)


def zip_code(rng: random.Random) -> str:
    """Make up a postal code."""
    return pattern(rng.choice(_ZIP_FORMS), rng)


def ip_address(rng: random.Random) -> str:
    """Draw an address of version 4, one in six of version 6."""
    if rng.random() < 1 / 6:
        return "2001:db8:" + ":".join(f"{rng.randint(0, 65535):x}" for _ in range(rng.choice((3, 6))))
    return ".".join(str(rng.randint(0, 255)) for _ in range(4))


def domain(pools: Pools, rng: random.Random) -> str:
    """Make up a domain name."""
    if rng.random() < 0.15:
        return rng.choice(_EXAMPLE_DOMAINS)
    stem = rng.choice((rng.choice(pools.company_stems), invented_word(rng)))
    tail = rng.choice(("", "", rng.choice(pools.company_fields), f"-{rng.choice(pools.company_fields)}"))
    name = (stem + tail).encode("ascii", "ignore").decode()
    name = name if rng.random() < 0.2 else name.lower()
    return rng.choice(("", "", "www.", "mail.", "shop.")) + f"{name}.{rng.choice(_TLDS)}"


def url(pools: Pools, rng: random.Random) -> str:
    """Make up an address of a page."""
    host = domain(pools, rng)
    paths = ("", "/", "/contact", "/offers/2024", "/index.html", "/de/shop", "/a?id=42")
    return rng.choice(("http://", "https://", "https://")) + host + rng.choice(paths)


def email(pools: Pools, rng: random.Random) -> str:
    """Make up a mail address from invented names."""
    first = rng.choice((rng.choice(pools.first_names), invented_word(rng)))
    last = rng.choice(pools.last_names).replace(" ", "")
    number = rng.choice(("", "", str(rng.randint(1, 99)), str(rng.randint(1950, 2010))))
    shapes = (f"{first}.{last}", f"{first}{last}", f"{first[0]}.{last}", f"{first}_{last}{number}", f"{first}{number}")
    local = rng.choice((*shapes, f"{first[0]}{last}{number}", rng.choice(("info", "office", "support", "sales"))))
    local = local.encode("ascii", "ignore").decode() or "info"
    host = domain(pools, rng).removeprefix("www.")
    return f"{local if rng.random() < 0.25 else local.lower()}@{host}"
