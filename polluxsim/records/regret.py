"""The regret of single decisions of a run, compared with those of another policy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from polluxsim.common.errors import InvalidInputError
from polluxsim.common.files import atomic_write
from polluxsim.hardware.placements import JobId
from polluxsim.records.results import ReasonRecord, ReasonText

KINDS = ("start", "wait", "preempt", "move", "resize")
"""Kinds of differences, from the other policy's side.

- start: it gives GPUs to a job that waits under the policy of the run.
- wait: it lets a job wait that the policy of the run starts.
- preempt: one of the two takes all GPUs of a running job, and the other does not.
- move: it gives a job as many GPUs in other places.
- resize: it gives a job another number of GPUs, or another batch size, CPUs or restart delay on the same GPUs. Or it
  asks for another number of nodes.
"""

WHOLE_CLUSTER = ""  # in place of the name of a job: the number of nodes differs

StatedReason: TypeAlias = tuple[ReasonRecord, ReasonText]
"""A reason of a policy, and the sentence and units of its kind."""


class Difference(NamedTuple):
    """A job that two policies treat differently in a round."""

    job: JobId  # `WHOLE_CLUSTER` if the number of nodes differs
    kind: str  # one of `KINDS`


@dataclass(frozen=True)
class RoundRegret:
    """What the decision of one round cost, compared with the decision of another policy.

    Attributes
    ----------
    number
        The number of the decision in the run, from 0.
    time
        The time of the round [s].
    differences
        The jobs that the policies treat differently, in order of submission. Empty if the decisions are equal.
    values
        Total JCT of the run less total JCT of the fork, for each repetition [job-seconds]. Empty if not comparable.
    not_comparable
        Why the futures cannot be compared. Empty if they can.
    jct_changes
        JCT in the run less JCT in the fork, for each job whose JCT changes [s]; a mean over the repetitions.
    reasons
        Reasons of the policy of the run for jobs of `differences`, and of the other policy.
    """

    number: int
    time: float
    differences: tuple[Difference, ...] = ()
    values: tuple[float, ...] = ()
    not_comparable: str = ""
    jct_changes: Mapping[JobId, float] = field(default_factory=dict)
    reasons: tuple[Sequence[StatedReason], Sequence[StatedReason]] = ((), ())

    @property
    def regret(self) -> float | None:
        """Return the regret [job-seconds]; None if the futures cannot be compared.

        It is positive if the other decision is better.
        """
        if not self.values:
            return None
        return fsum(self.values) / len(self.values)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of the differences, each once."""
        kinds = {difference.kind for difference in self.differences}
        return tuple(kind for kind in KINDS if kind in kinds)


class Takeover(NamedTuple):
    """The end of a run in which another policy decides up to a round, and the policy of the run from then on.

    The policy of the run is then a new object, which is told of all active jobs, with the generator of its own start.
    """

    number: int  # of the round in the run of the other policy; the number of all its rounds if it decides all of them
    time: float  # of this round, or of the end of the run [s]
    total_jct: float | None  # over all counted jobs [s]; None if it cannot be compared with the run
    not_comparable: str = ""  # why


class Comparison(NamedTuple):
    """The content of the file of a comparison."""

    about: Mapping[str, Any]  # what is compared; the rounds of another comparison are not used
    course: Mapping[str, Any]  # facts about the run
    rounds: dict[int, dict[str, Any]]  # finished rounds by number


class ComparisonFile:
    """A file in the folder of a run with the compared rounds, one a line, behind a line on the run and the policies.

    A command that is killed leaves the finished rounds, and the next one continues. The texts of reasons are long and
    few. Each has a line of its own, before the first round that refers to it by its number.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._texts: dict[str, int] = {}  # numbers of the texts in the file

    def read(self) -> Comparison | None:
        """Return the content of the file; None if there is no such file, or only a part of its first line.

        The last line may be incomplete, and is then left out. Raise InvalidInputError if another line is damaged.
        """
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
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

    def begin(self, content: Comparison) -> None:
        """Write what is finished already, at least the first line."""
        self._texts.clear()
        lines = [_line({"about": content.about, "course": content.course})]
        for finished in content.rounds.values():
            lines += self._lines(finished)
        with atomic_write(self.path) as temporary:
            temporary.write_text("".join(lines), encoding="utf-8")

    def add(self, finished: Mapping[str, Any]) -> None:
        """Store another round."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(self._lines(finished)))

    def _lines(self, finished: Mapping[str, Any]) -> list[str]:
        """Return the line of a round, behind those of its texts that the file does not have."""
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
    return json.dumps(values, sort_keys=True) + "\n"


def _content(lines: Sequence[Mapping[str, Any]]) -> Comparison:
    """Return the content of a file, in which rounds refer to texts by their numbers."""
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
    return Comparison(dict(lines[0]["about"]), dict(lines[0]["course"]), rounds)


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
    numbers = tuple((name, number) for name, number in record["numbers"])
    return ReasonRecord(**{**record, "numbers": numbers, "others": tuple(record["others"])}), ReasonText(**text)
