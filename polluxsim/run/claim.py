"""A run's folder: one that no other run has or had."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidConfigError
from polluxsim.files import held
from polluxsim.folders import difference, info_of, remove_if_empty
from polluxsim.run.execution import resolved
from polluxsim.run.interrupt import ending_with
from polluxsim.storage import RUN_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from omegaconf import DictConfig


@contextmanager
def claimed(folder: Path, config: DictConfig, since: float) -> Iterator[Path]:
    """Keep other runs out of a folder that was asked for.

    Parameters
    ----------
    folder
        The folder. A finished run of the same settings in it may be replaced.
    config
        The configuration of the run that is to be there.
    since
        A folder that was made since then goes again if nothing comes into it [s since the epoch].

    Raises
    ------
    InvalidConfigError
        If another run is at work in it, or a finished one of other settings is there.
    """
    with ExitStack() as stack:
        if not _take(folder, since, stack):
            raise InvalidConfigError(f"{folder}: another run is at work in this folder, allowed is one of its own")
        here = resolved(config)
        if (folder / RUN_FILE).exists() and (differing := difference(info_of(folder).get("config"), here)):
            raise InvalidConfigError(
                f"{folder}: a finished run of other settings is there ({differing}), allowed is another folder, or to "
                "remove that run first"
            )
        yield folder


@contextmanager
def claimed_anew(folder: Path, since: float) -> Iterator[Path]:
    """Give a folder that no run has or had: this one, or one with -2, -3, … after its name; else as `claimed`."""
    for number in count(1):
        candidate = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        with ExitStack() as stack:
            if _take(candidate, since, stack) and not (candidate / RUN_FILE).exists():
                yield candidate
                return


def _take(folder: Path, since: float, stack: ExitStack) -> bool:
    """Hold a folder, made if it is not there, as long as the stack lasts; return whether no other run has it."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        stack.enter_context(held(folder))
    except (BlockingIOError, FileNotFoundError):  # at work, or just ended without a result
        return False
    if not folder.is_dir():
        return False
    if folder.stat().st_mtime >= since:
        stack.enter_context(ending_with(partial(remove_if_empty, folder)))
    return True
