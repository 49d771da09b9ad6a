"""A run's folder: one that no other run has or had."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any

from polluxsim.errors import InvalidConfigError
from polluxsim.files import held
from polluxsim.folders import difference, info_of, remove_if_empty
from polluxsim.run.interrupt import ending_with
from polluxsim.storage import RUN_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path


@contextmanager
def claimed(folder: Path, config: Callable[[], Mapping[str, Any]], since: float = inf) -> Iterator[Path]:
    """Keep other runs out of a folder that was asked for; a finished run of the same settings in it may be replaced.

    `config` gives the resolved configuration of the run that is to be there. A folder that was made after `since` goes
    again if nothing comes into it [s since the epoch]; by default it stays. It is an `InvalidConfigError` if another
    run is at work in it, or a finished one of other settings is there.
    """
    with ExitStack() as stack:
        if not _take(folder, since, stack):
            raise InvalidConfigError(f"{folder}: another run is at work in this folder, allowed is one of its own")
        if (folder / RUN_FILE).exists() and (differing := difference(info_of(folder).get("config"), config())):
            raise InvalidConfigError(
                f"{folder}: a finished run of other settings is there ({differing}), allowed is another folder, or to "
                "remove that run first"
            )
        yield folder


@contextmanager
def claimed_anew(folder: Path, since: float, levels: int = 1) -> Iterator[Path]:
    """Give a folder that no run has or had: this one, or one with -2, -3, … after its name; else as `claimed`.

    Of the folders above it `levels` − 1 go with it where they are empty.
    """
    for number in count(1):
        candidate = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        with ExitStack() as stack:
            if _take(candidate, since, stack, levels) and not (candidate / RUN_FILE).exists():
                yield candidate
                return


def _take(folder: Path, since: float, stack: ExitStack, levels: int = 1) -> bool:
    """Hold a folder, made if it is not there, as long as the stack lasts; return whether no other run has it."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        stack.enter_context(held(folder))
    except (BlockingIOError, FileNotFoundError):  # at work, or just ended without a result
        return False
    if not folder.is_dir():
        return False
    if folder.stat().st_mtime >= since:
        for above in (*reversed(folder.parents[: levels - 1]), folder):  # what is entered last ends first
            stack.enter_context(ending_with(partial(remove_if_empty, above)))
    return True
