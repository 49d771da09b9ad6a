"""The runs of an arena: every policy on every scenario with every seed, as one sweep; and who could not play."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from omegaconf import OmegaConf

from polluxsim.errors import InvalidConfigError, PolluxSimError, SweepError
from polluxsim.folders import info_of
from polluxsim.run.execution import Execution
from polluxsim.run.named_policy import NamedPolicy, named_policy
from polluxsim.storage import flat, read_timings
from polluxsim.sweeps.complete import run_entries
from polluxsim.sweeps.finished import finished_runs
from polluxsim.sweeps.plan import composer, entry_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from polluxsim.arena.scenarios import Suite
    from polluxsim.sweeps.plan import Entry

CONFIGS, RUNS = "policies", "runs"
"""Folders of an arena: entries for the policies, and the sweep."""


class Player(NamedTuple):
    """A policy on a scenario."""

    policy: str
    scenario: str


class Played(NamedTuple):
    """What came of it."""

    runs: list[dict[str, Any]]  # a row of metrics for each run: `Summary`'s, with policy, scenario, seed and folder
    absent: Mapping[Player, str]  # why a policy could not play a scenario


class Place(NamedTuple):
    """Where runs are made: the arena's folder, processes on this machine, and overrides that choose a launcher."""

    folder: Path
    workers: int | None = None
    launcher: tuple[str, ...] = ()


def play(names: Sequence[str], suite: Suite, place: Place) -> Played:
    """Make all runs that are not finished yet, and return what is in them.

    Raises
    ------
    InvalidConfigError
        If there is no such policy, or two are called alike.
    SweepError
        If runs failed for another reason than the policy's.
    """
    policies = _listed(names, place.folder / CONFIGS)
    plan = _plan(policies, suite, place)
    absent: dict[Player, str] = {}
    try:
        _sweep(plan, place)
    except SweepError:
        absent = _absent(plan, place.folder / RUNS)
        if not absent:
            raise
        _sweep({player: runs for player, runs in plan.items() if player not in absent}, place)
    folders = finished_runs(place.folder / RUNS)
    rows = [
        _row(player, seed, folders[entry.key])
        for player, runs in plan.items()
        if player not in absent
        for seed, entry in runs.items()
    ]
    return Played(rows, absent)


def _listed(names: Sequence[str], folder: Path) -> list[NamedPolicy]:
    """Write an entry of `policy` for each class of the user's, so that any launcher's workers can make it."""
    policies = [named_policy(name) for name in dict.fromkeys(names)]
    labels = [policy.label for policy in policies]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise InvalidConfigError(f"two policies are called {twice[0]!r}, allowed are classes with different names")
    entries = {policy.entry: policy for policy in policies if policy.module is not None}
    if alike := [policy for policy in policies if entries.get(policy.entry, policy).module != policy.module]:
        raise InvalidConfigError(f"two policies are called {alike[0].entry!r}; rename the class of your own")
    for policy in policies:
        policy.make()
    (folder / "policy").mkdir(parents=True, exist_ok=True)
    for path in (folder / "policy").glob("*.yaml"):  # of an earlier arena: it would win over an entry of that name
        path.unlink()
    for entry, policy in entries.items():
        text = yaml.safe_dump({"_target_": policy.settings["_target_"]})
        (folder / "policy" / f"{entry}.yaml").write_text(text, encoding="utf-8")
    return policies


def _plan(policies: Sequence[NamedPolicy], suite: Suite, place: Place) -> dict[Player, dict[int, Entry]]:
    composing = composer((place.folder / CONFIGS,), place.launcher)
    plan: dict[Player, dict[int, Entry]] = {}
    for scenario in suite.scenarios:
        for policy in policies:
            for seed in suite.seeds:
                ours = (*policy.overrides, f"seed={seed}", "engine.reasons=none")
                overrides = (*scenario.overrides, *ours)
                entry = entry_of(overrides, composing.compose(overrides), place.folder / RUNS)
                plan.setdefault(Player(policy.label, scenario.name), {})[seed] = entry
    return plan


def _sweep(plan: Mapping[Player, Mapping[int, Entry]], place: Place) -> None:
    if entries := [entry for runs in plan.values() for entry in runs.values()]:
        run_entries(
            entries,
            place.folder / RUNS,
            launcher=place.launcher,
            workers=place.workers,
            config_dirs=(place.folder / CONFIGS,),
        )


def _absent(plan: Mapping[Player, Mapping[int, Entry]], folder: Path) -> dict[Player, str]:
    """Return why policies failed, from the first run of each that is missing, made again."""
    finished = finished_runs(folder)
    reasons = {}
    for player, runs in plan.items():
        missing = next((entry for entry in runs.values() if entry.key not in finished), None)
        if missing is None:
            continue
        try:
            Execution(OmegaConf.create(dict(missing.config))).simulate()
        except PolluxSimError as error:
            reasons[player] = str(error)
    return reasons


def _row(player: Player, seed: int, folder: Path) -> dict[str, Any]:
    summary = flat(info_of(folder)["summary"] or {})
    deadlines = summary.get("deadlines")
    times = [record.seconds for record in read_timings(folder) if record.phase == "decide"]
    return {
        "policy": player.policy,
        "scenario": player.scenario,
        "seed": seed,
        "folder": folder.name,
        **{name: len(value) if isinstance(value, list) else value for name, value in summary.items()},
        "deadlines_met": 100 * summary["deadlines_met"] / deadlines if deadlines else None,
        "decision_time": sum(times) / max(len(times), 1),
    }
