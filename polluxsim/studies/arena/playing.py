"""The scenarios of an arena, and its runs: every policy on every scenario with every seed, as one sweep."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import yaml

from polluxsim.common.errors import (
    InvalidAllocationError,
    InvalidConfigError,
    LostProcessError,
    PolicyError,
    PolluxSimError,
    SweepError,
    allowed_among,
)
from polluxsim.common.shipped import shipped
from polluxsim.common.values import OneOf, check
from polluxsim.metrics.declared import Metric, UserValues, values_in
from polluxsim.records.folders import info_of
from polluxsim.records.storage import flat, read_timings
from polluxsim.run.named_policies import NamedPolicy, named_policy
from polluxsim.studies.driver import frame_of_entries, reserved
from polluxsim.studies.plan import Entry, composer, entry_of, finished_runs


class ArenaScenario(NamedTuple):
    """A named run that all policies of an arena make: overrides of the default run."""

    name: str
    title: str
    overrides: tuple[str, ...]  # of Hydra


class Suite(NamedTuple):
    """Scenarios, and the seeds that each is drawn with."""

    name: str
    scenarios: tuple[ArenaScenario, ...]
    seeds: range


def read_suite(name: str, only: tuple[str, ...] = (), seeds: int | None = None) -> Suite:
    """Return a suite, `quick` or `full`, with all of its scenarios or those in `only`.

    `seeds` replaces the number of seeds of the suite. Raise InvalidConfigError if the suite or a scenario does not
    exist, or the number of seeds is below 1.
    """
    content = _suites()
    check("suite", name, Annotated[str, OneOf(*content["seeds"])])
    scenarios_of_file = content["scenarios"]
    for word in only:
        if word not in scenarios_of_file:
            raise InvalidConfigError(f"there is no scenario {word!r}, {allowed_among(word, scenarios_of_file)}")
    count = seeds
    if count is None:
        count = int(content["seeds"][name])
    if count < 1:
        raise InvalidConfigError(f"--seeds is {count}, must be a whole number of at least 1")
    scenarios = []
    for key in only or scenarios_of_file:
        entry = scenarios_of_file[key]
        overrides = [*entry["overrides"], *entry[name]]  # those of the suite are last, so that they count
        scenarios.append(ArenaScenario(key, entry["title"], tuple(overrides)))
    return Suite(name, tuple(scenarios), range(1, count + 1))


def default_policies() -> list[str]:
    """Return the policies to compare if the user names none."""
    return list(_suites()["policies"])


def _suites() -> dict[str, Any]:
    """Return the content of the file of the suites."""
    text = (shipped("experiments") / "arena.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content


CONFIGS = "policies"
RUNS = "runs"
"""Folders of an arena: configuration files of the user's policies, and the runs of the sweep."""

MARK = "# Written by 'polluxsim arena'; the next arena in this folder replaces it.\n"
"""First line of an entry."""

FAILURES = (PolicyError, InvalidAllocationError, LostProcessError)  # errors that a policy itself raised


class Player(NamedTuple):
    """A policy on a scenario."""

    policy: str
    scenario: str


class Played(NamedTuple):
    """The outcome of all policies on all scenarios."""

    runs: list[dict[str, Any]]  # a row of metrics for each run: `Summary`'s, with policy, scenario, seed and folder
    absent: Mapping[Player, str]  # why a policy could not play a scenario
    failed: Collection[Player] = ()  # absent players whose policy failed; the other policies do not fit the scenario
    metrics: Mapping[str, Metric] = MappingProxyType({})  # of the user, by name


class ArenaPlace(NamedTuple):
    """The folder of an arena, and how its runs are made."""

    folder: Path
    workers: int | None = None  # number of processes on this machine; None for one for each core
    launcher: tuple[str, ...] = ()  # overrides that choose another launcher
    metrics: tuple[str, ...] = ()  # of the user, as NAME=MODULE.ATTRIBUTE


def play(names: Sequence[str], suite: Suite, place: ArenaPlace) -> Played:
    """Make all runs that are not finished yet, and return the results of all runs.

    Raise InvalidConfigError if a policy does not exist or two policies have the same name. Raise SweepError if another
    sweep has locked the folder, or runs failed for another reason than their policy.
    """
    absent: dict[Player, PolluxSimError] = {}
    with reserved(place.folder / RUNS):
        policies = _listed(names, place.folder / CONFIGS)
        config_dirs = _config_dirs(policies, place)
        plan = _plan(policies, suite, place)
        try:
            _sweep(plan, place, config_dirs)
        except SweepError as error:
            absent = _absent(plan, error)
            # No run is to blame, as for a locked folder, or no policy can play, so there is nothing to compare.
            if len(absent) in (0, len(plan)):
                raise
            # A sweep with a failed run has no table, so the other runs are a sweep of their own.
            present = {player: runs for player, runs in plan.items() if player not in absent}
            _sweep(present, place, config_dirs)
    folders = finished_runs(place.folder / RUNS)
    rows = list[dict[str, Any]]()
    metrics = dict[str, Metric]()
    for player, runs in plan.items():
        if player in absent:
            continue
        for seed, entry in runs.items():
            user_values = values_in(info_of(folders[entry.key]))
            rows.append(_row(player, seed, folders[entry.key], user_values))
            metrics |= {name: metric for name, (metric, _) in user_values.items()}
    failed = [player for player, error in absent.items() if isinstance(error, FAILURES)]
    return Played(rows, {player: str(error) for player, error in absent.items()}, failed, metrics)


def _listed(names: Sequence[str], folder: Path) -> list[NamedPolicy]:
    """Return the named policies. Write an entry of `policy` for each user class, for the workers of any launcher."""
    policies = [named_policy(name) for name in dict.fromkeys(names)]
    labels = [policy.label for policy in policies]
    twice = [label for label in labels if labels.count(label) > 1]
    if twice:
        raise InvalidConfigError(f"two policies are called {twice[0]!r}; give classes with different names")
    entries = {policy.entry: policy for policy in policies if policy.module is not None}
    for policy in policies:
        user_policy = entries.get(policy.entry)
        # The entry of a user's class replaces the entry of the same name, which another policy here needs.
        if user_policy is not None and user_policy.module != policy.module:
            raise InvalidConfigError(f"two policies are called {policy.entry!r}; rename the class of your own")
    for policy in policies:
        with suppress(PolicyError):  # its runs fail and say why
            policy.make()
    if entries:
        (folder / "policy").mkdir(parents=True, exist_ok=True)
        for path in _earlier_entries(folder):
            path.unlink()
    for entry, policy in entries.items():
        text = MARK + yaml.safe_dump({"_target_": policy.settings["_target_"]})
        (folder / "policy" / f"{entry}.yaml").write_text(text, encoding="utf-8")
    return policies


def _earlier_entries(folder: Path) -> list[Path]:
    """Return the entries of an earlier arena, which would replace shipped entries of the same name.

    Raise InvalidConfigError for other files in the folder: they would take part in all runs, and may be the user's.
    """
    written = []
    foreign = [path for path in folder.iterdir() if path != folder / "policy"]
    for path in sorted((folder / "policy").iterdir()):
        if path.is_file() and path.read_bytes().startswith(MARK.encode()):
            written.append(path)
        else:
            foreign.append(path)
    if foreign:
        raise InvalidConfigError(f"{min(foreign)}: not written by an arena; remove it, or give another folder")
    return written


def _config_dirs(policies: Sequence[NamedPolicy], place: ArenaPlace) -> tuple[Path, ...]:
    """Return the folder of entries for user classes, if there are any."""
    if all(policy.module is None for policy in policies):
        return ()
    return (place.folder / CONFIGS,)


def _plan(policies: Sequence[NamedPolicy], suite: Suite, place: ArenaPlace) -> dict[Player, dict[int, Entry]]:
    """Return the runs of each policy on each scenario, by seed."""
    composing = composer(_config_dirs(policies, place))
    plan: dict[Player, dict[int, Entry]] = {}
    for scenario in suite.scenarios:
        for policy in policies:
            for seed in suite.seeds:
                # Reasons take time and space, and nothing in an arena shows them.
                overrides = [*scenario.overrides, *policy.overrides, f"seed={seed}", "engine.reasons=none"]
                overrides += [f"+metrics.{metric}" for metric in place.metrics]
                entry = entry_of(overrides, composing.compose(overrides), place.folder / RUNS)
                plan.setdefault(Player(policy.label, scenario.name), {})[seed] = entry
    return plan


def _sweep(plan: Mapping[Player, Mapping[int, Entry]], place: ArenaPlace, config_dirs: Sequence[Path]) -> None:
    """Make the runs of a plan that do not exist yet."""
    entries = list[Entry]()
    for runs in plan.values():
        entries += runs.values()
    if entries:
        frame_of_entries(
            entries,
            place.folder / RUNS,
            launcher=place.launcher,
            workers=place.workers,
            config_dirs=config_dirs,
        )


def _absent(plan: Mapping[Player, Mapping[int, Entry]], error: SweepError) -> dict[Player, PolluxSimError]:
    """Return the error of each policy on a scenario that failed: the error of its first failed run.

    Errors that are not polluxsim's own show a defect, so they are left out.
    """
    reasons = {}
    for player, runs in plan.items():
        errors = [error.failed[entry.key] for entry in runs.values() if entry.key in error.failed]
        if errors and isinstance(errors[0], PolluxSimError):
            reasons[player] = errors[0]
    return reasons


def _row(player: Player, seed: int, folder: Path, user_values: UserValues) -> dict[str, Any]:
    """Return the metrics of a run as in `Summary`, with these differences.

    `deadlines_met` is in [%], lists of jobs are numbers of jobs, and `decision_time` is the mean over decisions [s].
    """
    summary = flat(info_of(folder)["summary"] or {})
    deadlines = summary.get("deadlines")
    times = [record.seconds for record in read_timings(folder) if record.phase == "decide"]
    row: dict[str, Any] = {"policy": player.policy, "scenario": player.scenario, "seed": seed, "folder": folder.name}
    for name, value in summary.items():
        if isinstance(value, list):
            row[name] = len(value)  # the number of jobs in place of their names
        else:
            row[name] = value
    for name, (_, value) in user_values.items():
        row[name] = value
    row["deadlines_met"] = None
    if deadlines:
        row["deadlines_met"] = 100 * summary["deadlines_met"] / deadlines
    row["decision_time"] = sum(times) / max(len(times), 1)
    return row
