"""Asking guests: whatever goes wrong within a policy is told as its error, with its file and line."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

from polluxsim.errors import PolicyError, PolluxSimError

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[1]


@contextmanager
def guest(name: str, time: float) -> Iterator[None]:
    """Turn an error that a policy raises into one that says which policy, in which round [s], and where in its code.

    Raises
    ------
    PolicyError
        Also where the policy would have ended the whole program.
    """
    try:
        yield
    except PolluxSimError:
        raise
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise PolicyError(f"policy {name} failed in the round at {time:g} s{_place(error)}: {what}") from error


def _place(error: BaseException) -> str:
    """Return where in the guest's code an error came from; nothing for a policy of ours."""
    frames = [frame for frame in extract_tb(error.__traceback__) if PACKAGE not in Path(frame.filename).parents]
    return f", {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
