"""The baseline that each setting of a table or figure is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from polluxsim.statistics.forks import CHANGES
from polluxsim.statistics.frames import Row, settings_in
from polluxsim.statistics.groups import REPLICATES, Settings, is_named, names_of, no_baseline


def baselines(
    rows: Sequence[Row], labels: Sequence[str], baseline: str | None = None, pooled: Sequence[str] = REPLICATES
) -> dict[str, str]:
    """Return the label of the baseline of each label, in order of first appearance.

    By default the baseline of a label is the first label with the same workload: equal settings of the workload, apart
    from the `pooled` settings. `baseline` is a label, KEY=VALUE, or the folder of a run. If it matches several labels,
    the baseline of a label is the most similar of these. Raise InvalidInputError if it matches none.
    """
    # Of equal labels, the last one counts. So in reverse order, each label gets its first row.
    row_of_label = dict(zip(reversed(labels), reversed(rows), strict=True))
    settings = {label: settings_in(row) for label, row in row_of_label.items()}
    order = list(dict.fromkeys(labels))
    if baseline is None:
        return _first_of_workload({label: settings[label] for label in order}, pooled)
    candidates = []
    for label, row in zip(labels, rows, strict=True):
        names = (label, *names_of(row.get("folder"), row))
        if is_named(row, names, baseline):
            candidates.append(label)
    if not candidates:
        raise no_baseline(baseline, order)

    def distance(label: str, other: str) -> int:
        """Return the number of settings that differ, besides those of replicates."""
        ours = settings[label]
        theirs = settings[other]
        keys = (ours.keys() | theirs.keys()) - set(REPLICATES)
        return sum(ours.get(key) != theirs.get(key) for key in keys)

    # Of equally similar candidates, the first is the baseline.
    return {label: min(candidates, key=partial(distance, label)) for label in order}


def _first_of_workload(settings: Mapping[str, Settings], pooled: Sequence[str]) -> dict[str, str]:
    """Return the first label with the same workload for each label, given the settings by label."""
    changes_of_forks = set(CHANGES.values())
    first_labels: dict[str, str] = {}  # by workload
    baseline_of_label = {}
    for label, values in settings.items():
        workload = {}
        for key in sorted(values):
            # A fork that adds or removes jobs is compared with the run that it was forked from.
            if key.startswith("workload.") and key not in pooled and key not in changes_of_forks:
                workload[key] = values[key]
        baseline_of_label[label] = first_labels.setdefault(repr(workload), label)
    return baseline_of_label
