"""Decisions as plain values: what the process answers, and the decision that the host makes of it.

The functions `plain_…` run in the process, and the functions `read_…` in the host. The host trusts nothing in an
answer: it reads JSON, converts values, and refuses parts that are not open to the program.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

from polluxsim.common.errors import short
from polluxsim.hardware.hosts import Host
from polluxsim.hardware.placements import JobId
from polluxsim.models.batch_size import BatchSize
from polluxsim.policies.contract.changes import Change
from polluxsim.policies.contract.decision import Decision, Traits, decision_of
from polluxsim.policies.contract.reasons import Reason, ReasonKind
from polluxsim.policies.guest.faults import ProgramError

ALWAYS = frozenset({"allocation", "others_keep", "valid_until", "outdated_by", "explain", "fitness", "upper_bound"})
"""Parts of a decision that every program may answer: placements, validity and reasons."""

PROMISES = frozenset({
    "follows_clock", "keeps_shapes", "never_preempts", "obeys_limits", "one_type_as", "per_type", "remembers",
    "slices_time",
})  # fmt: skip
"""Traits that every program may state. The others change how jobs run."""

Explain = Callable[[Sequence[JobId]], Mapping[JobId, Reason]]  # returns the reasons of a decision for jobs


class InvalidAnswerError(Exception):
    """An answer cannot be read."""


def plain_decision(answer: object) -> dict[str, Any]:
    """Return the answer of a program as plain values, without the function that explains it.

    Raise InvalidAnswerError if a value is of the wrong kind.
    """
    decision = decision_of(answer)  # type: ignore[arg-type]
    try:
        plain: dict[str, Any] = {"allocation": _plain_placements(decision.allocation)}
        plain["others_keep"] = bool(decision.others_keep)
        plain["has_explain"] = decision.explain is not None
        plain["valid_until"] = float(decision.valid_until)
        plain["outdated_by"] = int(Change(decision.outdated_by).value)
        for name in ("fitness", "upper_bound"):
            number = getattr(decision, name)
            plain[name] = None if number is None else float(number)
        # The host refuses a further part unless the program may use it, so that an empty one is left out.
        if decision.shared:
            plain["shared"] = _plain_placements(decision.shared)
        if decision.hosts:
            plain["hosts"] = [[str(name), [float(part) for part in host]] for name, host in decision.hosts.items()]
        if decision.batch_sizes:
            names = [field.name for field in fields(BatchSize)]
            sizes = decision.batch_sizes.items()
            plain["batch_sizes"] = [[str(name), {key: getattr(size, key) for key in names}] for name, size in sizes]
        if decision.rejected:
            plain["rejected"] = [str(name) for name in decision.rejected]
        if decision.num_nodes is not None:
            plain["num_nodes"] = int(decision.num_nodes)
        if decision.delays:
            plain["delays"] = [[str(name), float(delay)] for name, delay in decision.delays.items()]
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidAnswerError(f"the answer {short(answer)} is invalid: {error}") from None
    return plain


def _plain_placements(placements: Any) -> list[Any]:
    """Return placements, or numbered GPUs, as pairs of a job and a list of pairs of whole numbers."""
    if not isinstance(placements, Mapping):
        raise TypeError("an allocation must map names of jobs to placements")
    pairs = []
    for name, placement in placements.items():
        if not isinstance(name, str):
            raise TypeError(f"the key {short(name)} is no name of a job; use job.job_id")
        pairs.append([str(name), [[_whole(node), _whole(number)] for node, number in placement or ()]])
    return pairs


def _whole(value: Any) -> int:
    """Return a number that is whole as an int. Raise TypeError or ValueError for another value."""
    whole = int(value)
    if whole != value or isinstance(value, str):
        raise TypeError(f"{short(value)} is no whole number")
    return whole


def plain_reasons(reasons: object) -> list[Any]:
    """Return the reasons of a program as plain values; raise InvalidAnswerError if they are of the wrong kind."""
    if not isinstance(reasons, Mapping):
        raise InvalidAnswerError(f"the reasons are {short(reasons)}, must be a mapping of jobs to reasons")
    plain = []
    for name, reason in reasons.items():
        if not isinstance(reason, Reason) or not isinstance(reason.kind, ReasonKind):
            raise InvalidAnswerError(f"the reason of {short(name)} is {short(reason)}, must be a Reason")
        numbers = [[str(key), float(value)] for key, value in reason.numbers.items()]
        others = [str(other) for other in reason.others or ()]
        kind = reason.kind
        plain.append([str(name), [kind.name, kind.sentence, dict(kind.units)], numbers, others])
    return plain


def read_decision(plain: Mapping[str, Any], explain: Explain, more: Collection[str] = ()) -> Decision:
    """Return the decision of plain values.

    Raise ProgramError if it has a part that the program may not answer, and another error if a value is of the wrong
    kind: KeyError, TypeError, ValueError, AttributeError or OverflowError.

    Parameters
    ----------
    explain
        Function that asks the program for reasons.
    more
        Parts of a decision that this program may answer beside those in `ALWAYS`.
    """
    for name in plain:
        if name not in ALWAYS and name != "has_explain" and name not in more:
            raise ProgramError(
                f"Decision.{name} is not open to programs; an answer has placements, its validity and reasons"
            )
    values: dict[str, Any] = {
        "allocation": _placements(plain["allocation"]),
        "others_keep": bool(plain["others_keep"]),
        "valid_until": float(plain["valid_until"]),
        "outdated_by": Change(int(plain["outdated_by"])),
        "explain": explain if plain["has_explain"] else None,
        "fitness": plain["fitness"],
        "upper_bound": plain["upper_bound"],
    }
    if "shared" in plain:
        values["shared"] = {str(name): tuple((int(a), int(b)) for a, b in gpus) for name, gpus in plain["shared"]}
    if "hosts" in plain:
        values["hosts"] = {str(name): Host(*(float(part) for part in host)) for name, host in plain["hosts"]}
    if "batch_sizes" in plain:
        values["batch_sizes"] = {str(name): BatchSize(**size) for name, size in plain["batch_sizes"]}
    if "rejected" in plain:
        values["rejected"] = [str(name) for name in plain["rejected"]]
    if "num_nodes" in plain:
        values["num_nodes"] = int(plain["num_nodes"])
    if "delays" in plain:
        values["delays"] = {str(name): float(delay) for name, delay in plain["delays"]}
    return Decision(**values)


def _placements(pairs: Sequence[Any]) -> dict[JobId, Any]:
    """Return the placements of pairs of a job and a list of nodes with their GPUs."""
    return {str(name): tuple((int(node), int(gpus)) for node, gpus in placement) for name, placement in pairs}


def read_reasons(plain: Sequence[Any]) -> dict[JobId, Reason]:
    """Return the reasons of plain values. A kind of polluxsim's tools keeps its tests; others have none.

    Raise KeyError, TypeError, ValueError or AttributeError if a value is of the wrong kind.
    """
    reasons = {}
    for name, (kind, sentence, units), numbers, others in plain:
        by_name = {str(key): float(value) for key, value in numbers}
        about = _kind(str(kind), str(sentence), tuple(sorted((str(key), str(unit)) for key, unit in units.items())))
        reasons[str(name)] = Reason(about, by_name, tuple(str(other) for other in others))
    return reasons


@cache
def _kind(name: str, sentence: str, units: tuple[tuple[str, str], ...]) -> ReasonKind:
    """Return the kind of a reason: that of polluxsim's tools with this name and sentence, or a new one."""
    from polluxsim.policies.tools import reason_kinds  # noqa: PLC0415  (only reasons need it)

    for kind in vars(reason_kinds).values():
        if isinstance(kind, ReasonKind) and (kind.name, kind.sentence) == (name, sentence):
            return kind
    return ReasonKind(name, sentence, dict(units))


def plain_traits(traits: Traits) -> dict[str, Any]:
    """Return the traits that differ from the defaults."""
    default = Traits()
    names = [field.name for field in fields(Traits)]
    return {name: getattr(traits, name) for name in names if getattr(traits, name) != getattr(default, name)}


def read_traits(plain: Mapping[str, Any], more: Collection[str] = ()) -> Traits:
    """Return the traits of plain values. Raise ProgramError if the program may not have one of them.

    `more` are traits that this program may have beside those in `PROMISES`.
    """
    for name in plain:
        if name not in PROMISES and name not in more:
            raise ProgramError(
                f"the trait {name} is not open to programs, because it changes how jobs run; leave it out"
            )
    values: dict[str, Any] = {}
    for name, value in plain.items():
        # Two traits are texts, all others are true or false.
        values[name] = str(value) if name in ("remembers", "one_type_as") else bool(value)
    return Traits(**values)
