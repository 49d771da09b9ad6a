"""Infer or fit what a record does not state about an installation of Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import inf, lcm
from typing import NamedTuple

from polluxsim.common.errors import InvalidConfigError, allowed_among, invalid_setting
from polluxsim.common.tables import read_number
from polluxsim.logs.site.hostlist import expanded
from polluxsim.policies.slurm.parameters import BACKFILL, BUILTIN, Parameters
from polluxsim.policies.slurm.priority_parameters import PriorityParameters
from polluxsim.policies.slurm.values import MUCH_MEMORY, Node, NodeSet, node_set
from polluxsim.policies.slurm.will_run import EDGE
from polluxsim.studies.decisions.judging import DecisionAgreement, agreement
from polluxsim.studies.decisions.record import Record
from polluxsim.studies.decisions.slurm import FACTORS, FITTED_ORDERS, ORDERS, TASKS, Installation, SlurmDecider

SETTINGS = (
    "nodes",
    "gpus",
    "cpus",
    "memory",
    "types",
    "features",
    "weights",
    "tiers",
    "partitions",
    "scheduler",
    "order",
    "tasks",
    "t0",
)
"""What a user may state about an installation."""

CPUS_PER_GPU = 16  # of a node, if nothing is stated
OF_INTERVALS = frozenset(("bf_interval", "bf_resolution", "sched_interval", "batch_sched_delay"))
"""Parameters of which two groups of values are tried if none is stated: schedulers in each second, and the defaults."""
MOST_OFFSETS = 120  # largest number of epoch times that are tried; plans of a longer resolution depend on more of them


class Value(NamedTuple):
    """A value of an installation, and where it comes from."""

    name: str
    value: str
    origin: str  # given, read, inferred, fitted or assumed


class Fit(NamedTuple):
    """The installation that agrees best with a record."""

    record: Record  # with the nodes in the order of the installation
    installation: Installation
    values: Sequence[Value]
    agreement: DecisionAgreement
    second_best: Sequence[str]  # sentences on the second-best fits
    equal: Sequence[Installation]  # installations with other epoch times that agree equally well, with the best one


class TriedSettings(NamedTuple):
    """One of the combinations that are tried."""

    parameters: Parameters
    order: str
    tasks: str

    @property
    def scheduler(self) -> str:
        """Return the scheduler with its interval and resolution."""
        if not self.parameters.has_backfill:
            return BUILTIN
        interval = self.parameters.bf_interval
        return f"{BACKFILL} (bf_interval={interval}, bf_resolution={self.parameters.bf_resolution})"

    def __str__(self) -> str:
        return f"{self.scheduler}, order={self.order}, tasks={self.tasks}"


def check_settings(settings: Mapping[str, str]) -> None:
    """Raise InvalidConfigError if a setting is unknown."""
    for name in settings:
        if name not in SETTINGS:
            raise InvalidConfigError(f"{name} is unknown, {allowed_among(name, SETTINGS)}")


def nodes_of(record: Record, settings: Mapping[str, str]) -> tuple[Record, tuple[Node, ...], list[Value]]:
    """Return the record with the given order of nodes, the nodes, and where their values come from.

    The values of nodes and GPUs are the first two. Raise InvalidConfigError if a setting of the nodes is invalid.
    """
    record, values = _named_nodes(record, settings)
    gpus = record.gpus_per_node
    origin = "inferred"
    if "gpus" in settings:
        gpus = _whole("gpus", settings)
        origin = "given"
    values.append(Value("gpus", f"{gpus} on each node", origin))
    if gpus < record.gpus_per_node:
        raise invalid_setting("gpus", gpus, f"at least {record.gpus_per_node}, which jobs hold on one node")
    # GPUs are the scarce part of a node, so the assumed CPUs are so many that they limit few jobs.
    cpus = CPUS_PER_GPU * gpus
    origin = "assumed"
    if "cpus" in settings:
        cpus = _whole("cpus", settings)
        origin = "given"
    values.append(Value("cpus", f"{cpus} on each node", origin))
    # No job waits for memory if nothing is stated.
    memory = MUCH_MEMORY
    if "memory" in settings:
        memory = _whole("memory", settings)
        values.append(Value("memory", f"{memory} MB on each node", "given"))
    types = _types(record, settings, values)
    weights = _weights(record, settings, values)
    features = _features(record, settings, values)
    nodes = []
    for number, _ in enumerate(record.node_names):
        of_node = features.get(number, frozenset())
        nodes.append(Node(gpus, cpus, weights.get(number, 1), types.get(number, ""), of_node, memory))
    return record, tuple(nodes), values


def _types(record: Record, settings: Mapping[str, str], values: list[Value]) -> dict[int, str]:
    """Return the GPU type of nodes by number: as the user states it, or the type that their jobs asked for.

    Note where the types come from in `values`. Raise InvalidConfigError if the setting is invalid.
    """
    if "types" in settings:
        values.append(Value("types", settings["types"], "given"))
        return _by_node("types", settings["types"], record, "n[1-2]:a100,n[3-4]:h100")
    types: dict[int, str] = {}
    for job in record.jobs:
        # A job without a type may run on each one, so it tells nothing.
        if job.gpu_type:
            types |= dict.fromkeys(job.nodes, job.gpu_type)
    if types:
        pairs = [f"{record.node_names[node]}:{gpu_type}" for node, gpu_type in sorted(types.items())]
        values.append(Value("types", ",".join(pairs), "inferred"))
    return types


def _features(record: Record, settings: Mapping[str, str], values: list[Value]) -> dict[int, frozenset[str]]:
    """Return the stated features of nodes by number."""
    if "features" not in settings:
        return {}
    values.append(Value("features", settings["features"], "given"))
    texts = _by_node("features", settings["features"], record, "n[1-2]:big&fast,n3:big")
    return {node: frozenset(text.split("&")) for node, text in texts.items()}


def _weights(record: Record, settings: Mapping[str, str], values: list[Value]) -> dict[int, int]:
    """Return the stated weights of nodes by number. Raise InvalidConfigError if the setting is invalid."""
    if "weights" not in settings:
        return {}
    values.append(Value("weights", settings["weights"], "given"))
    example = "n[1-2]:1,n[3-4]:10"
    texts = _by_node("weights", settings["weights"], record, example)
    return {node: _number("weights", text, settings["weights"], example) for node, text in texts.items()}


def _tiers(settings: Mapping[str, str], values: list[Value]) -> dict[str, int]:
    """Return the stated tiers of partitions by name. Raise InvalidConfigError if the setting is invalid."""
    if "tiers" not in settings:
        return {}
    values.append(Value("tiers", settings["tiers"], "given"))
    example = "high:10,low:1"
    pairs = _pairs("tiers", settings["tiers"], example)
    return {name: _number("tiers", text, settings["tiers"], example) for name, text in pairs}


def _partitions(record: Record, settings: Mapping[str, str], values: list[Value]) -> dict[str, NodeSet]:
    """Return the stated nodes of partitions by name. Raise InvalidConfigError if the setting is invalid."""
    if "partitions" not in settings:
        return {}
    text = settings["partitions"]
    values.append(Value("partitions", text, "given"))
    partitions: dict[str, NodeSet] = {}
    for name, nodes in _pairs("partitions", text, "gpu:n[1-4],short:n[5-6]"):
        # A partition may have several pairs, each with a part of its nodes.
        partitions[name] = partitions.get(name, 0) | node_set(_numbers("partitions", nodes, record))
    return partitions


def _numbers(setting: str, text: str, record: Record) -> list[int]:
    """Return the numbers of nodes that a setting names, like n[1-4]. Raise InvalidConfigError if one is unknown."""
    numbers = {name: number for number, name in enumerate(record.node_names)}
    # Text that is no list of hosts is no node either; the error below shows it whole.
    names = expanded(text) or [text]
    for name in names:
        if name not in numbers:
            raise InvalidConfigError(f"{setting} names node {name!r}, {allowed_among(name, record.node_names)}")
    return [numbers[name] for name in names]


def _by_node(setting: str, text: str, record: Record, example: str) -> dict[int, str]:
    """Return the values of a setting like n[1-2]:VALUE by the number of the node; the last one of a node counts.

    Raise InvalidConfigError if the setting names an unknown node, or has no pairs like the example.
    """
    by_node: dict[int, str] = {}
    for names, value in _pairs(setting, text, example):
        by_node |= dict.fromkeys(_numbers(setting, names, record), value)
    return by_node


def _pairs(setting: str, text: str, example: str) -> list[tuple[str, str]]:
    """Return the pairs of a text NAME:VALUE,NAME:VALUE. Raise InvalidConfigError if it has another form."""
    pairs = []
    # Commas in brackets are part of a list of hosts like n[1,3].
    for part in re.split(r",(?![^\[]*\])", text):
        name, colon, value = part.strip().rpartition(":")
        if not colon or not name or not value:
            raise invalid_setting(setting, text, f"pairs like {example}")
        pairs.append((name, value))
    return pairs


def _number(setting: str, text: str, whole_text: str, example: str) -> int:
    """Return the whole number of a pair. Raise InvalidConfigError with the whole text if it is none."""
    if not text.isdecimal():
        raise invalid_setting(setting, whole_text, f"pairs like {example}")
    return int(text)


def _named_nodes(record: Record, settings: Mapping[str, str]) -> tuple[Record, list[Value]]:
    """Return the record with the nodes in the given order, and that order as a value.

    By default, the order is that of the numbers in the names of the nodes. Raise InvalidConfigError if the setting is
    invalid, or leaves out a node of the record.
    """
    if "nodes" not in settings:
        return record, [Value("nodes", ",".join(record.node_names), "inferred")]
    names = expanded(settings["nodes"])
    if not names or len(set(names)) < len(names):
        raise invalid_setting("nodes", settings["nodes"], "different names of nodes, like n[1-4]")
    missing = [name for name in record.node_names if name not in names]
    if missing:
        raise invalid_setting("nodes", settings["nodes"], f"all nodes of the record, also {missing[0]}")
    # The record numbers nodes by name, while Slurm prefers the first nodes of slurm.conf.
    numbers = {name: number for number, name in enumerate(names)}
    jobs = []
    for job in record.jobs:
        nodes = tuple(sorted(numbers[record.node_names[node]] for node in job.nodes))
        jobs.append(job._replace(nodes=nodes))
    return replace(record, jobs=jobs, node_names=names), [Value("nodes", settings["nodes"], "given")]


def _whole(name: str, settings: Mapping[str, str]) -> int:
    """Return a setting that is a whole number of at least 1. Raise InvalidConfigError if it is none."""
    number = read_number(settings[name])
    if number is None or not number.is_integer() or number < 1:
        raise invalid_setting(name, settings[name], "a whole number of at least 1")
    return int(number)


def _word(name: str, settings: Mapping[str, str], words: Sequence[str]) -> Sequence[str]:
    """Return the word of a setting, or all words if it is not given. Raise InvalidConfigError if it is unknown."""
    if name not in settings:
        return words
    if settings[name] not in words:
        raise InvalidConfigError(f"{name} is {settings[name]!r}, {allowed_among(settings[name], words)}")
    return [settings[name]]


def fitted(record: Record, settings: Mapping[str, str], parameters: Parameters, stated: frozenset[str]) -> Fit:
    """Return the installation under which Slurm agrees best with a record.

    Without settings, 12 combinations of scheduler, order and tasks are tried. If the best one has a backfill, and the
    epoch time of second 0 is unknown, the times of one period of the decisions are tried too: 30 s by default.

    Raise InvalidConfigError if a setting is unknown or invalid.

    Parameters
    ----------
    settings
        What the user states about the installation.
    parameters
        Parameters of slurm.conf, as far as the user states them.
    stated
        Names of the parameters that the user states.
    """
    check_settings(settings)
    record, nodes, values = nodes_of(record, settings)
    zero = _zero(record, settings)
    choices = list(_choices(settings, parameters, stated))
    # Combinations are tried with one epoch time, and times with the best combination: all pairs would take too long.
    known_zero = 0
    if zero is not None:
        # Slurm counts whole seconds, and the second 0 of the record begins at the fraction.
        known_zero = round(zero + record.fraction)
    first = Installation(
        nodes,
        parameters,
        zero=known_zero,
        tiers=_tiers(settings, values),
        partitions=_partitions(record, settings, values),
        node_names=tuple(record.node_names),
        changes=record.changes,
        jobs=tuple(record.jobs),
    )
    tried = []
    for choice in choices:
        tried.append(replace(first, parameters=choice.parameters, order=choice.order, tasks=choice.tasks))
    ranked = _ranked(record, tried)
    best = ranked[0].installation
    choice = choices[ranked[0].position]
    sentences = []
    equal = [best]
    if len(ranked) > 1:
        sentences.append(f"second-best combination: {choices[ranked[1].position]}: {_score(ranked[1].agreement)}")
    is_given = "scheduler" in settings or "scheduler_type" in stated
    values.append(Value("scheduler", choice.scheduler, _origin(is_given, len(choices))))
    values.append(Value("order", choice.order, _origin("order" in settings, len(choices))))
    values.append(Value("tasks", choice.tasks, _origin("tasks" in settings, len(choices))))
    if zero is not None:
        values.append(Value("t0", f"{zero:.3f}", "given" if "t0" in settings else "read"))
    elif choice.parameters.has_backfill:
        # Only plans depend on the epoch time, because the backfill rounds their times.
        equal, second = _with_offset(record, best)
        best = equal[0]
        modulus = _modulus(best)
        values.append(Value("t0", f"{(best.zero - record.fraction) % modulus:.3f} modulo {modulus} s", "fitted"))
        sentences.append(second)
    # The agreements of the search have no reasons, and may have ended early.
    result = agreement(record, SlurmDecider(best))
    return Fit(record, best, values, result, sentences, equal)


def _origin(is_given: bool, num_choices: int) -> str:
    """Return whether a value is given or fitted; it is not fitted if only one combination remains."""
    return "given" if is_given or num_choices == 1 else "fitted"


def _zero(record: Record, settings: Mapping[str, str]) -> float | None:
    """Return the epoch time of the zero of the record [s], which may be a setting; None if it is unknown.

    Raise InvalidConfigError if the setting is no number.
    """
    if "t0" not in settings:
        return record.zero
    zero = read_number(settings["t0"])
    if zero is None:
        raise invalid_setting("t0", settings["t0"], "the epoch time of second 0 of the record [s]")
    return zero


def _choices(settings: Mapping[str, str], parameters: Parameters, stated: frozenset[str]) -> Iterator[TriedSettings]:
    """Yield the combinations to try, in the order in which they win on ties: those that claim more come first.

    Raise InvalidConfigError if a setting is unknown.
    """
    words = _word("scheduler", settings, (BUILTIN, BACKFILL))
    if "scheduler_type" in stated:
        words = [parameters.scheduler_type]
    tried = []
    for word in words:
        with_type = replace(parameters, scheduler_type=word)
        if not stated & OF_INTERVALS:
            tried.append(replace(with_type, bf_interval=1, bf_resolution=1, sched_interval=1, batch_sched_delay=0))
        # Without a backfill, no decision depends on the intervals, so a second group would only repeat the first one.
        if word == BACKFILL or stated & OF_INTERVALS:
            tried.append(with_type)
    # A third order would lengthen the fit by half, so small jobs first has to be stated.
    orders: Sequence[str] = FITTED_ORDERS
    if settings.get("order") == FACTORS:
        if not (isinstance(parameters, PriorityParameters) and parameters.has_factors):
            raise InvalidConfigError(
                "order is factors, and the policy states none; state them, like --policy "
                "'slurm(priority_type=priority/multifactor,priority_weight_age=1000)'"
            )
        orders = (FACTORS,)
    elif "order" in settings:
        orders = _word("order", settings, ORDERS)
    tasks = _word("tasks", settings, TASKS)
    for chosen, order, task in product(tried, orders, tasks):
        yield TriedSettings(chosen, order, task)


class _Tried(NamedTuple):
    """An installation that is tried, and its agreement; not a whole one if two other installations agree better."""

    position: int
    installation: Installation
    agreement: DecisionAgreement


def _ranked(record: Record, installations: Iterable[Installation]) -> list[_Tried]:
    """Return installations with the best agreement first; the first ones win on ties."""
    tried: list[_Tried] = []
    for position, installation in enumerate(installations):
        wrong = sorted(len(other.agreement.disagreements) for other in tried)
        # Only the best two are shown, so a comparison may end when it is worse than both.
        most_wrong = wrong[1] if len(wrong) > 1 else inf
        agreed = agreement(record, SlurmDecider(installation), most_wrong=most_wrong, tells_reasons=False)
        tried.append(_Tried(position, installation, agreed))
    # The sort is stable, also in reverse.
    return sorted(tried, key=lambda one: one.agreement.rank, reverse=True)


def _with_offset(record: Record, installation: Installation) -> tuple[list[Installation], str]:
    """Return the installations with the best epoch times of second 0, and a sentence on the second-best one.

    It is only one installation if all epoch times agree equally well.
    """
    modulus = _modulus(installation)
    ranked = _ranked(record, (replace(installation, zero=offset) for offset in range(modulus)))
    best = ranked[0]
    equal = [one.installation for one in ranked if one.agreement.rank == best.agreement.rank]
    if len(equal) > 1:
        sentence = f"second-best t0: {len(equal) - 1} other seconds agree equally well"
    else:
        later = (ranked[1].installation.zero - best.installation.zero) % modulus
        sentence = f"second-best t0: {later} s later: {_score(ranked[1].agreement)}"
    # If the epoch time does not matter, a replay with each one would take long and tell nothing.
    if len(equal) == modulus:
        equal = equal[:1]
    return equal, sentence


def _modulus(installation: Installation) -> int:
    """Return the time after which the decisions for a later epoch time recur [s]; 30 s if it is too long to try."""
    # Groups of ends are anchored at multiples of 30 s since the epoch, and plans of the backfill at the resolution.
    modulus = lcm(EDGE, installation.parameters.bf_resolution)
    if modulus > MOST_OFFSETS:
        return EDGE
    return modulus


def _score(agreed: DecisionAgreement) -> str:
    """Return in words how many decisions of a fit agree."""
    return f"{agreed.agreeing_decisions} of {agreed.decisions} decisions agree"
