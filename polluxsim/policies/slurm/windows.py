"""The map of sched/backfill: windows of time, each with the nodes that no plan holds.

At first, one window reaches from now to `bf_window`. Each plan splits the windows at its beginning and end, and takes
its nodes out of those in between. Running jobs are not in the map unless `bf_running_job_reserve` says so.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import NamedTuple

from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.policies.slurm.values import NodeSet


class FreeWindow(NamedTuple):
    """The nodes that no plan holds in [begin, end)."""

    begin: int  # [s]
    end: int  # [s]
    nodes: NodeSet


class MapAnswer(NamedTuple):
    """What the map tells about a job that would run from a time on."""

    nodes: NodeSet  # nodes that no plan holds at any time of the job
    later: int | None  # next time from which more nodes may be free [s]; None if there is none


class Windows:
    """The windows of one cycle, without gaps and in order of time."""

    def __init__(self, now: int, nodes: NodeSet, parameters: Parameters) -> None:
        self._parameters = parameters
        begin = parameters.floored(now)
        end = parameters.floored(now + parameters.bf_window * 60)
        self.windows = [FreeWindow(begin, end, nodes)]

    def look(self, start: int, limit: int) -> MapAnswer:
        """Return the nodes for a job in [start, start + limit], and the time of the next attempt.

        The attempt is at the end of the first window whose successor has a node that the window lacks. The search also
        reads the first window after the job, because more nodes there do not help before its beginning.
        (Specification, "sched/backfill", step 1; plugins/sched/backfill/backfill.c, `_attempt_backfill`.)
        """
        # −1 has all bits, so the first window alone decides.
        nodes = -1
        later: int | None = None
        first = bisect_right(self.windows, start, key=attrgetter("end"))
        for index in range(first, len(self.windows)):
            window = self.windows[index]
            is_behind = window.begin > start + limit
            if not is_behind:
                nodes &= window.nodes
            if later is None and index + 1 < len(self.windows) and self.windows[index + 1].nodes & ~window.nodes:
                later = window.end
            if is_behind or (not nodes and later is not None):
                break
        # No window was read: the start is behind the end of the map.
        if nodes == -1:
            nodes = 0
        return MapAnswer(nodes, later)

    def lacks(self, nodes: NodeSet, start: int, end: int) -> bool:
        """Return whether a window of a plan in [start, end) lacks one of its nodes."""
        begin, finish = self._planned(start, end)
        return any(window.begin < finish and window.end > begin and nodes & ~window.nodes for window in self.windows)

    def plan(self, nodes: NodeSet, start: int, end: int) -> None:
        """Take whole nodes in [start, end), floored to `bf_resolution`.

        Afterwards at most one pair of equal neighbours becomes one window. `look` reads only a few windows, so equal
        neighbours that stay apart hide possible starts. (Specification, "sched/backfill", step 6;
        plugins/sched/backfill/backfill.c, `_add_reservation`.)
        """
        begin, finish = self._planned(start, end)
        begin = max(begin, self.windows[0].begin)
        pieces: list[FreeWindow] = []
        for window in self.windows:
            pieces += _split(window, begin, finish)
        inside = [index for index, piece in enumerate(pieces) if begin <= piece.begin < finish]
        for index in inside:
            pieces[index] = pieces[index]._replace(nodes=pieces[index].nodes & ~nodes)
        self.windows = pieces
        if inside:
            self._merge(max(inside[0] - 1, 0), inside[-1] + 1)

    def _merge(self, first: int, last: int) -> None:
        """Merge the first pair of equal neighbours among the windows from one index to another."""
        for index in range(first, min(last, len(self.windows) - 1)):
            window, successor = self.windows[index : index + 2]
            if window.nodes == successor.nodes:
                self.windows[index : index + 2] = [FreeWindow(window.begin, successor.end, window.nodes)]
                return

    def _planned(self, start: int, end: int) -> tuple[int, int]:
        """Return the beginning and the end of a plan [s]: multiples of `bf_resolution`, at least one of it apart."""
        begin = self._parameters.floored(start)
        return begin, max(self._parameters.floored(end), begin + self._parameters.bf_resolution)


def _split(window: FreeWindow, *times: int) -> list[FreeWindow]:
    """Return the pieces of a window between rising times.

    >>> _split(FreeWindow(0, 60, 1), 20, 80)
    [FreeWindow(begin=0, end=20, nodes=1), FreeWindow(begin=20, end=60, nodes=1)]
    """
    pieces: list[FreeWindow] = []
    rest = window
    # A time at an edge of the window, or outside, splits nothing.
    for time in times:
        if rest.begin < time < rest.end:
            pieces.append(rest._replace(end=time))
            rest = rest._replace(begin=time)
    pieces.append(rest)
    return pieces
