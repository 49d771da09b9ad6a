"""Replace the names in the text of a log, by the column, key or place in which a word stands.

In a column or under a key with names, all words are replaced. Elsewhere, the words of `known_words.VALUE_WORDS` stay:
states, resources, GPU types and units. Numbers and times stay, except the numbers of people.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum

from polluxsim.logs.extracts import known_words
from polluxsim.logs.extracts.invented import BYTES, TOKEN, InventedNames


class Holds(Enum):
    """What a column or a key holds."""

    PEOPLE = "people"
    NAMES = "names"
    JOBS = "jobs"
    VALUES = "values"


def held_by(name: str) -> Holds:
    """Return what a column or a key with a name holds, by the lists of known words."""
    plain = known_words.plain(name)
    # People are also among the names, so their list goes first.
    if plain in known_words.PEOPLE:
        return Holds.PEOPLE
    if plain in known_words.NAMES:
        return Holds.NAMES
    if plain in known_words.JOBS:
        return Holds.JOBS
    return Holds.VALUES


NUMBERED_JOB = re.compile(r"\s*\d+(?:[_+.\[].*)?\s*", re.DOTALL)
"""A job that is a number, perhaps with its tasks, part or step: 12_[4-9%2], 12+1, 12.batch."""

_PHRASES = "|".join(known_words.PHRASES).replace(" ", r"\ ")  # because the pattern below may have blanks between parts

_VALUE = re.compile(
    rf"""
    (?P<phrase>{_PHRASES})
    | (?P<cancelled>\bby\ (?=\d))(?P<canceller>\d+)
    | (?P<key>(?<![\w/])[A-Za-z][\w.\-]*)(?P<is>=)(?P<held>"[^"]*"?|[^\s,;|"]*)
    | (?P<time>\b\d{{1,4}}[-/]\d{{1,2}}[-/]\d{{1,4}}(?:T?[\d:.]+Z?)?)
    | (?P<address>\b\d{{1,3}}(?:\.\d{{1,3}}){{3}}\b)
    | (?P<mail>[\w.+\-{BYTES}]+@[\w.\-{BYTES}]+)
    | (?P<path>(?<![\w/.\])])(?:~|\.{{1,2}})?/[^\s,;|"=]*|\b[A-Za-z]:\\[^\s,;|"]+|\b[a-z]+://[^\s,;|"]+)
    | (?P<uuid>\b[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}\b)
    | (?P<number>(?<![^\W_])\d+(?:\.\d+)?(?:[eE][+-]?\d{{1,3}})?(?P<unit>[A-Za-z]{{1,5}})?(?![^\W_]))
    | (?P<token>{TOKEN.pattern})
    """,
    re.VERBOSE,
)
"""The parts of a text that may have names, in the order in which they are tried."""


def _is_unit(text: str | None) -> bool:
    """Return whether the letters behind a number may be a unit; True without letters.

    One or two letters always may, because a wrong unit may be the fault that the extract has to show.
    """
    return text is None or len(text) <= 2 or text.lower() in known_words.UNITS


class Anonymous:
    """Replaces the names in the texts of a log by invented ones."""

    def __init__(self, text: str) -> None:
        """`text` has all words of the log that may come into the extract."""
        self.names = InventedNames(text)

    def held(self, text: str, holds: Holds) -> str:
        """Return the text of a column or key with invented names; in those of people, numbers are replaced too."""
        # A job that is a number keeps it, because arrays and dependencies refer to it.
        if holds is Holds.VALUES or (holds is Holds.JOBS and NUMBERED_JOB.fullmatch(text)):
            return self.value(text)
        return self.names.name(text, with_numbers=holds is Holds.PEOPLE)

    def value(self, text: str) -> str:
        """Return a text with invented words for the unknown words. Times, and numbers with their units, stay."""
        return _VALUE.sub(self._part, text)

    def _part(self, match: re.Match[str]) -> str:
        """Return the replacement of one part of a value, which `_VALUE` matched."""
        text = match[0]
        # In "CANCELLED by 1000", the number names a user.
        if match["cancelled"]:
            return match["cancelled"] + self.names.number(match["canceller"])
        if match["is"]:
            return self._pair(match["key"], match["held"])
        # These name hosts, people and files as a whole. The words in them may be common ones, so none stays.
        if match["mail"] or match["path"] or match["uuid"] or match["address"]:
            return self.names.name(text)
        if match["phrase"] or match["time"] or text.lower() in known_words.VALUE_WORDS:
            return text
        if match["number"] and _is_unit(match["unit"]):
            return text
        return self.names.token(text)

    def _pair(self, key: str, held: str) -> str:
        """Return a pair KEY=VALUE with an invented value where the key holds names; an unknown key is replaced too."""
        holds = held_by(key)
        if holds is not Holds.VALUES:
            return f"{key}={self.held(held, holds)}"
        if known_words.plain(key) in known_words.RECORD_KEYS:
            return f"{key}={self.value(held)}"
        return f"{self.value(key)}={self.value(held)}"


def anonymous_comment(text: str, anonymous: Anonymous) -> str:
    """Return a comment like `; MaxProcs: 64` with invented names. A known key stays."""
    match = re.match(r"(\s*[;#]\s*)([A-Za-z][\w ]*)(:\s*)", text)
    if match is None:
        return anonymous.names.name(text)
    key = match[2]
    rest = text[match.end() :]
    if known_words.plain(key) in known_words.RECORD_KEYS:
        return match[0] + anonymous.value(rest)
    if held_by(key) is not Holds.VALUES:
        return match[0] + anonymous.names.name(rest)
    return match[1] + anonymous.names.name(key) + match[3] + anonymous.names.name(rest)


def is_header(text: str) -> bool:
    """Return whether a line is a header: it has no numbers, and names known columns in at least half of its words.

    A header has at least two words.
    """
    if "=" in text or re.search(r"(?<!\w)\d", text):  # a record KEY=VALUE, or a number
        return False
    words = [known_words.plain(word) for word in re.findall(r"[\w.:%()]+", text)]
    words = [word for word in words if word]
    num_known = sum(word in known_words.COLUMNS for word in words)
    # Sites add columns of their own, so not every word has to be known. One word alone is too little evidence.
    return len(words) >= 2 and 2 * num_known >= len(words)


def raw_cells(line: str, delimiter: str, *, quoted: bool) -> list[str]:
    """Return the cells of a line with their quotes, as they stand in it.

    >>> raw_cells('a,"b,c",d', ",", quoted=True)
    ['a', '"b,c"', 'd']
    """
    if not quoted or '"' not in line:
        return line.split(delimiter)
    cells = []
    start = 0
    in_quotes = False
    for at, character in enumerate(line):
        if character == '"':
            in_quotes = not in_quotes
        elif character == delimiter and not in_quotes:
            cells.append(line[start:at])
            start = at + 1
    return [*cells, line[start:]]


class TableForm:
    """Form of the lines of a table: the delimiter, and the kind of the values of each column."""

    def __init__(self, delimiter: str, columns: list[str], free_text: tuple[str, ...] = (), *, quoted: bool) -> None:
        self.delimiter = delimiter
        self.holds = [held_by(column) for column in columns]
        self.quoted = quoted
        self.free_text = [index for index, column in enumerate(columns) if column in free_text]

    def anonymous_line(self, line: str, anonymous: Anonymous) -> str:
        """Return a line with invented names and the same delimiters."""
        if self.delimiter == " ":
            # The pattern is in a group, so the result has the blanks too: an extract keeps the form of each line.
            parts = re.split(r"(\s+)", line)
            columns = iter(self._columns(len(line.split())))
            new_parts = []
            for part in parts:
                if part.strip():
                    new_parts.append(anonymous.held(part, next(columns)))
                else:
                    new_parts.append(part)
            return "".join(new_parts)
        cells = raw_cells(line, self.delimiter, quoted=self.quoted)
        pairs = zip(cells, self._columns(len(cells)), strict=True)
        return self.delimiter.join(anonymous.held(cell, holds) for cell, holds in pairs)

    def _columns(self, number: int) -> list[Holds]:
        """Return what each of a number of cells holds. A line may have too few or too many cells.

        Further cells are pieces of the only column of free text. Without such a column, all cells count as values.
        """
        more = number - len(self.holds)
        if more <= 0:
            return self.holds[:number]
        if len(self.free_text) == 1:  # a text with the delimiter
            at = self.free_text[0]
            return [*self.holds[:at], *[Holds.NAMES] * (more + 1), *self.holds[at + 1 :]]
        return [Holds.VALUES] * number


_JSON = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\],:]|[^"{}\[\],:]+', re.DOTALL)
_ESCAPED = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\(.)")


def _unescaped(text: str) -> list[str]:
    """Return a JSON string in pieces, texts and escapes in turn; an escape of a letter becomes a part of a text."""
    pieces = [""]
    at = 0
    for match in _ESCAPED.finditer(text):
        pieces[-1] += text[at : match.start()]
        at = match.end()
        letter = ""
        # Two escapes in a row may be one letter, as a surrogate pair.
        if match[1] or match[3]:
            letter = str(json.loads(f'"{match[0]}"'))
        if letter.isalpha():
            pieces[-1] += letter
        else:
            pieces += [match[0], ""]
    pieces[-1] += text[at:]
    return pieces


class JsonText:
    """Replaces the names in JSON, part by part; the text may be broken. Keys stay, unless a site chooses them."""

    def __init__(self, anonymous: Anonymous, meanings: Mapping[str, str]) -> None:
        """`meanings` are the keys of `--columns` by the keys of the log that the user maps to them."""
        self._anonymous = anonymous
        self._meanings = meanings
        self._keys: list[str] = [""]  # key of each open object or list, and of the value that is next

    def anonymous_text(self, text: str) -> str:
        """Return the next part of the text with invented names."""
        parts = []
        tokens = _JSON.findall(text)
        for index, token in enumerate(tokens):
            # Blanks between a key and its colon are a token of their own.
            next_mark = "".join(tokens[index + 1 : index + 3]).lstrip()[:1]
            parts.append(self._token(token, is_key=next_mark == ":"))
        return "".join(parts)

    def _token(self, token: str, *, is_key: bool) -> str:
        """Return a mark, a text in quotes or a text between them, and follow the open objects and lists."""
        if token in "{[":
            # The objects of a list have its key, with a mark that plain names lack.
            self._keys.append("" if token == "{" else f"{self._keys[-1]}[]")
        elif token in "}]":
            # A broken text may close more objects than it opens.
            if len(self._keys) > 1:
                self._keys.pop()
        elif token.startswith('"'):
            if is_key:
                self._keys[-1] = token.strip('"')
                return self._key(token)
            return self._string(token, self._holds())
        elif token not in ",:":
            return self._bare(token)
        return token

    def _bare(self, token: str) -> str:
        """Return a text without quotes: a number or a known word, unless the JSON is broken."""
        if token.strip().isdigit():
            return self._anonymous.held(token, self._holds())
        return self._anonymous.value(token)

    def _holds(self) -> Holds:
        """Return what the next value holds."""
        plain = [known_words.plain(key) for key in self._keys]
        # Below these keys, a site chooses all values, at any depth.
        if known_words.NAMED_BELOW & set(plain[:-1]) or plain[-1] in known_words.NAMED_BELOW:
            return Holds.NAMES
        # An entry like {"name": "gpu", "count": 4} names a resource, not a person or a job.
        if known_words.RESOURCES & set(plain) and plain[-1] == "name":
            return Holds.VALUES
        key = self._keys[-1].removesuffix("[]")
        return held_by(self._meanings.get(key, key))

    def _key(self, token: str) -> str:
        """Return a key: with invented words if a site chooses the keys of its object."""
        above = [known_words.plain(key) for key in self._keys[:-1]]
        is_own = bool(known_words.OWN_KEYS_BELOW & set(above))
        if above and not self._keys[-2].endswith("[]"):
            is_own = is_own or above[-1] in known_words.OWN_KEYS
            is_own = is_own or (above[-1] in known_words.OWN_KEYS_OF_RESOURCES and "resources" in above)
        if is_own:
            return self._string(token, Holds.VALUES)
        return token

    def _string(self, token: str, holds: Holds) -> str:
        """Return a text in quotes. A letter that is written as an escape becomes the letter itself."""
        end = '"' if len(token) > 1 and token.endswith('"') else ""
        pieces = _unescaped(token[1 : len(token) - len(end)])
        return '"' + "".join(self._piece(piece, holds) for piece in pieces) + end

    def _piece(self, piece: str, holds: Holds) -> str:
        if piece.startswith("\\"):
            return piece
        return self._anonymous.held(piece, holds)
