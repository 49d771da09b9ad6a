"""Invented words in place of the names of a log: the same name always gets the same word.

A word consists of letters. A name like `Ann-Lee_v2` has several words, and keeps the marks and short numbers between
them, so that the extract keeps the form of each name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import product

from polluxsim.logs.extracts.known_words import VALUE_WORDS
from polluxsim.logs.formats.log_rows import BLANKS

BYTES = "\udc80-\udcff"
"""Bytes that are not UTF-8, as the error handler surrogateescape keeps them."""

TOKEN = re.compile(rf"(?:[^\W_]|[{BYTES}])+")
"""Letters and digits without another mark between them."""

_RUN = re.compile(rf"\d+|(?:[^\W\d_]|[{BYTES}])+")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")  # of a word in which capitals follow small letters, like myJob
ADDRESS = r"(?<!\d)\d{1,3}(?:[.\-]\d{1,3}){3}(?!\d)"
"""Address of a host in the internet protocol, also with dashes, as in ip-10-0-0-1."""

_NAME_PART = re.compile(rf"(?P<address>{ADDRESS})|(?<!\w)-\d+|{TOKEN.pattern}")

LONG_NUMBER = 4  # fewest digits of a number in a name that may identify it, like a number of staff

_FOREIGN = {
    "LATIN": "é", "CJK": "字", "CYRILLIC": "ж", "GREEK": "λ", "ARABIC": "ش", "HEBREW": "ש", "HANGUL": "가",
    "HIRAGANA": "の", "KATAKANA": "ノ",
}  # fmt: skip
"""Letter that replaces the letters of a script, by the first word of their names in Unicode."""

BROKEN_BYTE = "\udce9"
"""The byte that replaces each byte that is not UTF-8."""


def _words() -> Iterator[str]:
    """Yield invented words of four letters, and longer ones after them."""
    syllables = ["".join(letters) for letters in product("bdfgklmnprstvz", "aeiou")]
    for number in (2, 3, 4):
        for parts in product(syllables, repeat=number):
            yield "".join(reversed(parts))


class InventedNames:
    """Invented words by the words of a log. No invented word is a word of the log."""

    def __init__(self, text: str) -> None:
        """`text` has all words of the log that may come into the extract."""
        self._taken = {word.casefold() for word in _RUN.findall(text)}
        for word in _RUN.findall(text):
            self._taken.update(part.casefold() for part in _PART.findall(word))
        # An invented word that is a known word would not be told from one that was kept.
        self._taken |= BLANKS | VALUE_WORDS
        self._invented = (word for word in _words() if word not in self._taken)
        self._by_word: dict[str, str] = {}
        self._by_number: dict[str, str] = {}
        self._by_address: dict[str, str] = {}

    def still_in(self, text: str) -> tuple[str, ...]:
        """Return the words, in small letters, that were replaced and yet stand in a text; without single letters."""
        words = set[str]()
        for word in _RUN.findall(text):
            words.update(part.casefold() for part in _PART.findall(word))
            words.add(word.casefold())
        return tuple(sorted(word for word in words & self._by_word.keys() if len(word) > 1))

    @property
    def num_replaced(self) -> int:
        """Return the number of different words, numbers and addresses that were replaced so far."""
        return len(self._by_word) + len(self._by_number) + len(self._by_address)

    def token(self, token: str) -> str:
        """Return letters and digits with invented words and, in place of long numbers, invented numbers."""
        return _RUN.sub(lambda match: self._run(match[0]), token)

    def renamed(self, text: str) -> str:
        """Return a text about the log with the invented words in place of the words that were replaced.

        A token with a word that was not replaced stays as it is.
        """

        def replace(match: re.Match[str]) -> str:
            words = _PART.findall(match[0])
            if words and all(word.casefold() in self._by_word for word in words):
                return self.token(match[0])
            return match[0]

        return TOKEN.sub(replace, text)

    def name(self, text: str, *, with_numbers: bool = False) -> str:
        """Return a name with invented words. A word for a missing value stays.

        `with_numbers` replaces each positive number too, because numbers are names of people.
        """
        if text.strip().lower() in BLANKS:
            return text
        # Without a word, the text is a number or a time, which is no name.
        has_word = any(not token.isdigit() for token in TOKEN.findall(text))

        def replace(match: re.Match[str]) -> str:
            token = match[0]
            if match["address"]:
                return self.address(token)
            if token.startswith("-"):  # a number for an unknown value
                if has_word:
                    return f"-{self._run(token[1:])}"
                return token
            if with_numbers and token.isdigit() and token.strip("0"):
                return self.number(token)
            if has_word:
                return self.token(token)
            return token

        return _NAME_PART.sub(replace, text)

    def number(self, digits: str) -> str:
        """Return an invented number with the same number of digits; with more digits if the log has all of them."""
        if digits not in self._by_number:
            self._by_number[digits] = self._new_number(digits)
        return self._by_number[digits]

    def address(self, text: str) -> str:
        """Return an invented address of a host with the same marks, from a net that is reserved for examples.

        The net has 254 addresses; further ones are no valid addresses, but still differ from each other.
        """
        # The same host may be written with points and with dashes.
        mark = "-" if "-" in text else "."
        key = text.replace("-", ".")
        if key not in self._by_address:
            self._by_address[key] = str(len(self._by_address) + 1)
        return mark.join(("192", "0", "2", self._by_address[key]))

    def _new_number(self, digits: str) -> str:
        """Return a number that is no number of the log, and was not invented for another number."""
        used = self._taken | set(self._by_number.values())
        width = len(digits)
        while True:
            first = 10 ** (width - 1)
            for value in range(first, 10 * first):
                text = str(value)
                if digits.startswith("0"):
                    text = "0" + text[1:]
                if text not in used:
                    return text
            width += 1

    def _run(self, run: str) -> str:
        """Return the invented word for letters, or the number for digits."""
        if run.isdigit():
            if len(run) >= LONG_NUMBER and run.strip("0"):
                return self.number(run)
            return run
        if run.isascii():
            return _PART.sub(lambda match: self._word(match[0]), run)
        # Letters of the same scripts are added, because the fault may be in the encoding of a name.
        return self._word(run.casefold()) + "".join(dict.fromkeys(_foreign(letter) for letter in run))

    def _word(self, word: str) -> str:
        """Return the invented word for a word, with capitals like those of the word."""
        key = word.casefold()
        if key not in self._by_word:
            self._by_word[key] = next(self._invented)
        invented = self._by_word[key]
        if word.isupper():
            return invented.upper()
        if word.istitle():
            return invented.title()
        return invented


def _foreign(letter: str) -> str:
    """Return the letter that replaces a letter beyond ASCII, of the same script where known; empty for ASCII."""
    if letter.isascii():
        return ""
    if "\udc80" <= letter <= "\udcff":
        return BROKEN_BYTE
    script = unicodedata.name(letter, "LATIN").split()[0]
    return _FOREIGN.get(script, "é")
