"""A table of the ranks of users or queues by their waits, under settings side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.table import Table

from polluxsim.common.durations import HOUR
from polluxsim.look.tables import boxed
from polluxsim.metrics.outcomes import counts_in_words, incomplete, number_of
from polluxsim.records.results import Result
from polluxsim.statistics.job_values import WaitRank, ranks

MOST_RANKS = 40  # largest number of users or queues in a table of ranks
RANK_COLUMNS = ("rank", "to first GPU [h]", "waiting [h]", "p90 waiting [h]", "JCT [h]", "GPU h")


def rank_table(settings: Mapping[str, Sequence[Result]], by: str) -> Table:
    """Return the ranks of users or queues (`by`: "user" or "queue") under settings side by side.

    The rows have the order of the first setting, and those that only other settings have follow; at most `MOST_RANKS`.
    Raise InvalidInputError if no job has a user or queue.
    """
    ranks_by_setting = {name: ranks(results, by) for name, results in settings.items()}
    # A dict keeps the order of the first setting. Names that only other settings have follow.
    names: dict[str, None] = {}
    for ranked in ranks_by_setting.values():
        names |= dict.fromkeys(ranked)
    head = [by, "jobs"]
    for setting in ranks_by_setting:
        head += [f"{setting}\n{column}" for column in RANK_COLUMNS]
    lines = [head]
    for name in list(names)[:MOST_RANKS]:
        ranks_of_name = [ranked.get(name) for ranked in ranks_by_setting.values()]
        # Under another setting, jobs of the user may not have been submitted before the end of the run.
        num_jobs = 0
        cells = []
        for rank in ranks_of_name:
            if rank is not None:
                num_jobs = max(num_jobs, rank.jobs)
            cells += _rank_cells(rank)
        lines.append([name, str(num_jobs), *cells])
    title = f"By {by}, longest mean time to the first GPU first"
    num_left_out = len(names) - MOST_RANKS
    notes = []
    if num_left_out > 0:
        notes.append(f"and {num_left_out} more")
    for setting, results in settings.items():
        lost = Counter[str]()
        for result in results:
            lost += incomplete(result)
        if lost:
            notes.append(f"JCTs of {setting} leave out {number_of(lost.total(), 'job')}: {counts_in_words(lost)}")
    return boxed(lines, title, caption="\n".join(notes))


def _rank_cells(rank: WaitRank | None) -> list[str]:
    if rank is None:
        return ["–"] * len(RANK_COLUMNS)
    cells = [str(rank.place)]
    for time in (rank.wait, rank.total_wait, rank.p90_wait, rank.jct):
        cells.append("–" if time is None else f"{time / HOUR:.2f}")
    cells.append(f"{rank.gpu_seconds / HOUR:.1f}")
    return cells
