"""`polluxsim whatif`: fork a finished run at a time, with changes, and compare the fork with the run."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple

from polluxsim.cli.options import add_option, add_output, add_run
from polluxsim.cli.past_run import check_classes_of, read_past_run
from polluxsim.common.durations import length
from polluxsim.common.errors import InvalidConfigError
from polluxsim.records.storage import Run
from polluxsim.run.configurations import NUM_NODES, RELATIVE, import_from_here

if TYPE_CHECKING:
    from polluxsim.run.moment import RunMoment, WhatIfRequest
    from polluxsim.workloads.job import Job

GROUPS = ("policy", "cluster")  # configuration groups that a fork can change

OTHERWISE = "otherwise"  # folder of the run with the changes, inside the folder of a what-if
AS_IT_WAS = "as-it-was"  # folder of the run without the changes


class ForkPairs(NamedTuple):
    """The written forks of one what-if: for each seed, one with the changes and one without them."""

    folder: Path  # that contains the folders of all forks
    changed: list[Run]
    unchanged: list[Run]


def add_whatif(parser: ArgumentParser) -> None:
    parser.description = (
        "Fork a finished run at a time, and compare the run with the fork. From that time on, the fork has the changes "
        "that you name. 'polluxsim log whatif' replays the log of a cluster."
    )
    parser.epilog = "Example: polluxsim whatif RUN --at 3h policy=pollux"
    add_run(parser)
    parser.add_argument("names", nargs="*", metavar="KEY=VALUE",
                        help="changed settings, like policy=tiresias, policy.p=-10, cluster.num_nodes=20, or "
                        "cluster.num_nodes=+2 for two nodes more",
                        )  # fmt: skip
    add_option(parser, "at", required=True, note="the time of the fork")
    add_option(parser, "drop-node", default=[])
    add_option(parser, "down")
    add_option(parser, "for")
    add_option(parser, "without", default=[])
    add_option(parser, "add")
    add_option(parser, "seeds", default=1, note="each makes a fork of each kind with other random draws")
    add_output(parser, "folder for the runs (default: RUN-at-TIME, RUN-at-TIME-2 for other changes, ...)")
    add_option(parser, "allow-classes", default=[])
    parser.set_defaults(action=_whatif)


def _whatif(options: Namespace) -> None:
    """Make and write the forks of a run, and print the comparison."""
    from polluxsim.run.moment import RunMoment

    _check_changes(options)
    started = time()
    run = read_past_run(options.run, options.allow_classes)
    time_of_fork = run.seconds(options.at)
    check_classes_of(run)
    # Only then: a folder of runs from somewhere else must not load modules by chance.
    if options.names:
        import_from_here()  # a class that the user names, as for `polluxsim run`
    moment = RunMoment(run, time_of_fork)
    pairs = _write_forks(moment, _request(options, moment), options, started)
    _print_comparison(pairs)
    print(f"wrote {pairs.folder}")


def _check_changes(options: Namespace) -> None:
    """Raise InvalidConfigError if no change is given, or an outage lacks its nodes or its length."""
    length_of_outage = getattr(options, "for")  # `options.for` is no Python
    if options.down and length_of_outage is None:
        raise InvalidConfigError(
            "--down needs --for, the length of the outage, like --for 6h; --drop-node takes nodes down for good"
        )
    if length_of_outage is not None and not options.down:
        raise InvalidConfigError("--for needs --down, the nodes that go down, like --down 3,4")
    if not (options.names or options.drop_node or options.down or options.without or options.add):
        raise InvalidConfigError(
            f"no change is given for {options.run}; give one with KEY=VALUE, --drop-node, --down, --without or --add"
        )


def _request(options: Namespace, moment: RunMoment[Run]) -> WhatIfRequest:
    """Return the changes that the options name, for a fork at a moment of the run."""
    from polluxsim.run.moment import WhatIfRequest
    from polluxsim.workloads.workload import read_workload

    added: tuple[Job, ...] = ()
    if options.add is not None:
        added = read_workload(options.add).jobs
    num_nodes = moment.config["cluster"].get("num_nodes")
    return WhatIfRequest(
        _changed_entries(options.names, num_nodes),
        drop_nodes=options.drop_node,
        down_nodes=options.down or (),
        down_for=getattr(options, "for") or 0.0,
        without=options.without,
        added=added,
    )


def _write_forks(moment: RunMoment[Run], request: WhatIfRequest, options: Namespace, since: float) -> ForkPairs:
    """Make and write a fork with the changes and one without them for each seed.

    The command began at `since` [s since 1970]. The first pair continues the random draws of the run. Each further pair
    draws with another seed from the moment on.
    """
    from polluxsim.run.interrupt import SweepInterrupted
    from polluxsim.run.moment import WhatIfRequest

    # Before the folder is made, because the changes may be invalid.
    fork = moment.fork_with(request)
    folder: Path | None = options.output
    if folder is None:
        name = f"{options.run.resolve().name}-at-{length(moment.time)}".replace(" ", "")
        folder = _free_folder(options.run.with_name(name), fork)
    pairs = ForkPairs(folder, [], [])
    try:
        _write_pair(pairs, fork, moment.fork_with(WhatIfRequest()), "", since)
        for index in range(1, options.seeds):
            # Both forks of a pair draw with one seed, so that they differ only in the changes.
            seed = moment.config["seed"] + index
            fork = moment.fork_with(replace(request, seed=seed))
            _write_pair(pairs, fork, moment.fork_with(WhatIfRequest(seed=seed)), f"-seed{seed}", since)
    except KeyboardInterrupt:
        # A fork is added when it is written, so these are complete.
        number = len(pairs.changed) + len(pairs.unchanged)
        if number == 0:
            raise
        raise SweepInterrupted(f"interrupted, {number} finished forks are kept in {folder}") from None
    return pairs


def _write_pair(pairs: ForkPairs, changed: Run, unchanged: Run, ending: str, since: float) -> None:
    """Write a fork with the changes and one without them to folders with an ending, and add them to the pairs."""
    pairs.changed.append(_write_fork(changed, pairs.folder / f"{OTHERWISE}{ending}", since))
    pairs.unchanged.append(_write_fork(unchanged, pairs.folder / f"{AS_IT_WAS}{ending}", since))


def _free_folder(folder: Path, fork: Run) -> Path:
    """Return the first folder among NAME, NAME-2, NAME-3, … that does not contain a what-if with other changes."""
    from polluxsim.run.claim import numbered, recorded_settings, settings_in

    settings = recorded_settings(fork.info)
    for number in count(1):
        candidate = numbered(folder, number)
        present = settings_in(candidate / OTHERWISE)
        # The same changes have the same folder: a command that is given again does not fill the disk.
        if present is None or present == settings:
            return candidate
    raise AssertionError("`count` does not end")


def _write_fork(fork: Run, folder: Path, since: float) -> Run:
    """Write a fork as a run, and return it with the name of its folder. The command began at `since` [s since 1970]."""
    from polluxsim.records.storage import write_run
    from polluxsim.run.claim import claimed, recorded_settings

    with claimed(folder, lambda: recorded_settings(fork.info), since) as path:
        write_run(path, fork.result, fork.info)
    return replace(fork, name=folder.name)


def _print_comparison(pairs: ForkPairs) -> None:
    """Print the metrics of the first pair side by side, the changes, and the comparison over all pairs."""
    from polluxsim.look.console import console
    from polluxsim.look.descriptions import labels, loss_noun, print_from_before, without_effect
    from polluxsim.look.settings_tables import comparison_text
    from polluxsim.look.side_by_side import SideBySide
    from polluxsim.look.why.events import fork_sentence
    from polluxsim.metrics.summary import summarise
    from polluxsim.statistics.comparisons import compared, compared_from_forks

    first_pair = [pairs.unchanged[0], pairs.changed[0]]
    summaries = {}
    for label, run in zip(labels(first_pair), first_pair, strict=True):
        summary = summarise(run.result)
        if summary is not None:
            summaries[label] = summary
    if summaries:
        console().print(SideBySide(summaries, losses=loss_noun(first_pair)))
    else:
        print("no metric has a value, because all jobs are from before the start of the run")
    print_from_before([pairs.unchanged[0]])
    print(fork_sentence(pairs.changed[0]))
    print()
    # The first run is the baseline, so the forks without changes come first.
    runs = [*pairs.unchanged, *pairs.changed]
    print(comparison_text(compared(runs), compared_from_forks(runs)))
    for sentence in without_effect([(pairs.changed[0].name, pairs.changed[0].info)]):
        print(sentence)


def _changed_entries(overrides: Sequence[str], num_nodes: int | None) -> dict[str, tuple[str | None, dict[str, Any]]]:
    """Return the entry and the settings that overrides choose, by configuration group.

    The entry is None if the overrides name only settings. `num_nodes` is the number of nodes of the run, or None if no
    setting states it. Raise InvalidConfigError for a setting of another group and for a value that is no YAML.
    """
    entries: dict[str, str] = {}
    settings: dict[str, dict[str, Any]] = {}
    for override in _single_settings(overrides):
        key, equals, value = override.partition("=")
        group, _, name = key.partition(".")
        if group not in GROUPS or not equals:
            raise InvalidConfigError(
                f"{override!r} cannot be changed in the middle of a run; use policy=…, policy.NAME=…, cluster=… or "
                "cluster.NAME=…"
            )
        if name:
            settings.setdefault(group, {})[name] = _value_of(override, _absolute(key, value, num_nodes))
        else:
            entries[group] = value
    changed_groups = dict.fromkeys([*entries, *settings])  # each once, in a fixed order
    return {group: (entries.get(group), settings.get(group, {})) for group in changed_groups}


def _single_settings(overrides: Sequence[str]) -> Iterator[str]:
    """Yield overrides, with an override for each setting of a policy with settings in brackets."""
    from polluxsim.run.configurations import policy_text

    for override in overrides:
        key, _, value = override.partition("=")
        if key == "policy":
            yield from policy_text(value).overrides
        else:
            yield override


def _value_of(override: str, text: str) -> object:
    """Return the value that a text in YAML has. Raise InvalidConfigError about the override for another text."""
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or error
        raise InvalidConfigError(f"{override}: the value is not YAML ({problem}); quote it") from None


def _absolute(key: str, value: str, num_nodes: int | None) -> str:
    """Return the value of a setting. A number of nodes with a sign is relative to the nodes of the run.

    Raise InvalidConfigError if another setting is relative, or the number of nodes of the run is no setting.
    """
    if key != NUM_NODES:
        # Only a plus tells: a minus is the sign of a negative value, like policy.p=-10.
        if RELATIVE.fullmatch(value):
            raise InvalidConfigError(
                f"{key}={value}: only {NUM_NODES} can be relative, like +2; write {key}={value.removeprefix('+')}"
            )
        return value
    if not value.startswith(("+", "-")):
        return value
    if not value[1:].isdecimal():
        raise InvalidConfigError(f"{key}={value}: must be a whole number, or a difference of nodes like +2 or -2")
    if num_nodes is None:
        raise InvalidConfigError(
            f"{key}={value}: the nodes of the run are in groups or in a file, so that it has no such setting; change "
            "cluster.groups or cluster.path"
        )
    nodes = num_nodes + int(value)
    if nodes < 1:
        nodes_of_run = "1 node, which" if num_nodes == 1 else f"{num_nodes} nodes, of which at least 1"
        raise InvalidConfigError(f"{key}={value}: the run has {nodes_of_run} must stay; write a smaller difference")
    return str(nodes)
