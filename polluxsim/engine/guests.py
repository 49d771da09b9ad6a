"""Report whatever goes wrong within a policy as an error of the policy, with its file and line."""

from __future__ import annotations

from pathlib import Path
from traceback import extract_tb

from polluxsim.errors import PolicyError, PolluxSimError, did_you_mean
from polluxsim.policies.view import ClusterView, JobView, Oracle

PACKAGE = Path(__file__).parents[1]


class Interruption(BaseException):
    """Base class of exceptions that a caller raises inside a policy, as a time limit does; they are passed on."""


class guest:  # noqa: N801  (a context manager, like those of contextlib)
    """Context manager that turns an error of a policy into a `PolicyError`.

    The message names the policy, the round [s], and the file and line in the policy's code. Exceptions that would end
    the whole program, like `SystemExit`, become a `PolicyError` too. `KeyboardInterrupt`, `Interruption` and
    `PolluxSimError` do not.
    """

    __slots__ = ("_name", "_time")

    def __init__(self, name: str, time: float) -> None:
        self._name = name
        self._time = time

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SystemError) and isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__  # Ctrl-C while a compiled kernel ran
        if error is not None and not isinstance(error, (KeyboardInterrupt, Interruption, PolluxSimError)):
            what = f"{type(error).__name__}: {' '.join(str(error).split())}{_attributes(error)}"
            where = f"in the round at {self._time:g} s{_place(error)}"
            raise PolicyError(f"policy {self._name} failed {where}: {what}") from error


def _attributes(error: BaseException) -> str:
    """Return the attributes of a view of a job or of the cluster, if an error is about a missing attribute."""
    if not isinstance(error, AttributeError):
        return ""
    for kind in (ClusterView, JobView, Oracle):
        names = [name for name in dir(kind) if not name.startswith("_")]
        if {*names} <= {*dir(type(error.obj))}:
            return did_you_mean(error.name, names) or f"; it has {', '.join(names)}"
    return ""


def _place(error: BaseException) -> str:
    """Return where in a user's code an error came from; nothing for a policy of polluxsim."""
    frames = [frame for frame in extract_tb(error.__traceback__) if PACKAGE not in Path(frame.filename).parents]
    return f", {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
