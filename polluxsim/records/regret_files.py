"""Files in the folder of a run with regrets, or with the steps of a path.

A file is a line on what is compared, then lines of texts and rounds. Rounds are added at the end, in any order, so that
a command that is killed loses at most the round of its last line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from polluxsim.common.errors import InvalidInputError
from polluxsim.common.files import atomic_write
from polluxsim.records.bounds import digest_of_jobs
from polluxsim.records.regret import Difference, Regrets, RoundRegret, StatedReason
from polluxsim.records.results import ReasonRecord, ReasonText

REGRET = "regret"  # kind of a file with regrets, and beginning of its name
PATH = "regret-path"  # kind of a file with the steps of a path, and beginning of its name
ENDING = ".jsonl"


class StoredRegret(NamedTuple):
    """The content of the file of a comparison."""

    about: Mapping[str, Any]  # what is compared; the rounds of another comparison are not used
    course: Mapping[str, Any]  # facts about the run
    rounds: dict[int, dict[str, Any]]  # finished rounds by number


class ComparisonFile:
    """A file in the folder of a run with the compared rounds, one a line, behind a line on the run and the policies.

    Call `read` first, and `begin` before `add`. The texts of reasons are long and
    few. Each has a line of its own, before the first round that refers to it by its number.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._texts: dict[str, int] = {}  # numbers of the texts in the file, by their lines

    def read(self) -> StoredRegret | None:
        """Return the content of the file; None if there is no such file, or only a part of its first line.

        The last line may be incomplete, and is then left out. Raise InvalidInputError if another line is damaged.
        """
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
            # A line without an end is the one at which the last command was killed.
            values = [json.loads(line) for line in lines if line.endswith("\n")]
            if not values:
                return None
            return _content(values)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            remedy = "delete this file, and give 'polluxsim regret' again"
            problem = f"damaged, or not written by polluxsim ({error})"
            raise InvalidInputError(f"{self.path}: {problem}; {remedy}") from None

    def begin(self, content: StoredRegret) -> None:
        """Replace the file by what is finished already, at least the first line."""
        self._texts.clear()
        lines = [_line({"about": content.about, "course": content.course})]
        for finished in content.rounds.values():
            lines += self._lines(finished)
        with atomic_write(self.path) as temporary:
            temporary.write_text("".join(lines), encoding="utf-8")

    def add(self, finished: Mapping[str, Any]) -> None:
        """Store another round. It may already be in the file; then the later line counts."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(self._lines(finished)))

    def _lines(self, finished: Mapping[str, Any]) -> list[str]:
        """Return the lines of the texts of a round that the file does not have, then the line of the round.

        Rounds of a path have no reasons, and so no texts.
        """
        lines = []
        reasons = []
        for of_policy in finished.get("reasons", ()):
            numbered = []
            for record, text in of_policy:
                line = _line({"text": text})
                if line not in self._texts:
                    self._texts[line] = len(self._texts)
                    lines.append(line)
                numbered.append([record, self._texts[line]])
            reasons.append(numbered)
        values = dict(finished)
        if "reasons" in values:
            values["reasons"] = reasons
        return [*lines, _line(values)]


def _line(values: Mapping[str, Any]) -> str:
    """Return a line of the file. Equal values always give an equal line."""
    return json.dumps(values, sort_keys=True) + "\n"


def _content(lines: Sequence[Mapping[str, Any]]) -> StoredRegret:
    """Return the content of a file, with the texts themselves in place of their numbers."""
    texts = []
    rounds = {}
    for values in lines[1:]:
        if "text" in values:
            texts.append(values["text"])
            continue
        finished = dict(values)
        if "reasons" in values:
            reasons = []
            for of_policy in values["reasons"]:
                reasons.append([[record, texts[number]] for record, number in of_policy])
            finished["reasons"] = reasons
        rounds[int(finished["number"])] = finished
    return StoredRegret(dict(lines[0]["about"]), dict(lines[0]["course"]), rounds)


def regret_as_json(regret: RoundRegret) -> dict[str, Any]:
    """Return the regret of a round as plain values."""
    reasons = []
    for of_policy in regret.reasons:
        reasons.append([[record._asdict(), text._asdict()] for record, text in of_policy])
    return {
        "number": regret.number,
        "time": regret.time,
        "differences": [list(difference) for difference in regret.differences],
        "values": list(regret.values),
        "not_comparable": regret.not_comparable,
        "jct_changes": dict(regret.jct_changes),
        "reasons": reasons,
    }


def regret_from_json(values: Mapping[str, Any]) -> RoundRegret:
    """Return the regret of a round that `regret_as_json` describes."""
    own, other = [[_reason(*pair) for pair in pairs] for pairs in values["reasons"]]
    return RoundRegret(
        values["number"],
        values["time"],
        tuple(Difference(*difference) for difference in values["differences"]),
        tuple(values["values"]),
        values["not_comparable"],
        values["jct_changes"],
        (own, other),
    )


def _reason(record: Mapping[str, Any], text: Mapping[str, Any]) -> StatedReason:
    """Return a reason from its plain values."""
    # JSON has lists where a record has tuples.
    numbers = tuple((name, number) for name, number in record["numbers"])
    return ReasonRecord(**{**record, "numbers": numbers, "others": tuple(record["others"])}), ReasonText(**text)


def stored_regrets(folder: Path | None, info: Mapping[str, Any]) -> list[Regrets]:
    """Return the regrets that the folder of a run stores, in order of the names of the files.

    There are none without a folder. Those of an earlier run in the folder, which had other jobs, are left out. `info`
    is the content of run.json. Raise InvalidInputError if a file is damaged.
    """
    regrets: list[Regrets] = []
    if folder is None:
        return regrets
    for path in sorted(folder.glob(f"{REGRET}-*{ENDING}")):
        content = ComparisonFile(path).read()
        # The files of paths have names that begin in the same way.
        if content is None or content.about["kind"] != REGRET or content.about["jobs"] != digest_of_jobs(info):
            continue
        rounds = [regret_from_json(content.rounds[number]) for number in sorted(content.rounds)]
        regrets.append(Regrets(rounds=tuple(rounds), **content.course))
    return regrets
