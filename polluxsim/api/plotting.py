"""`run.plot("jct-cdf")`: the figures of `polluxsim plot`, by the same code and with the same options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.cli.main import parsed
from polluxsim.cli.plot import KINDS, OF_PROFILES
from polluxsim.errors import InvalidConfigError, allowed_among
from polluxsim.look.groups import settings_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from polluxsim.look.plot.kinds import Subject
    from polluxsim.look.plot.style import Drawing


def figure_of(kind: str, subject: Subject, given: Mapping[str, object]) -> Drawing:
    """Draw a figure of runs, of a kind as `polluxsim plot` names it, with its options: `bin=10` or `job=["a", "b"]`."""
    from polluxsim.look.plot.kinds import draw  # noqa: PLC0415  (matplotlib is slow to load)

    if kind not in KINDS:
        raise InvalidConfigError(f"plot {kind!r} is unknown, {allowed_among(kind, KINDS)}")
    options = dict(given)
    where = ["."]
    if kind in OF_PROFILES:
        folder = options.pop("profiles", None) or settings_of(subject.read()[0]).get("profiles.path")
        where = [] if folder is None else [str(folder)]
    return draw(parsed(["plot", kind, *where, *_words(options)]), subject)


def _words(options: Mapping[str, object]) -> Iterator[str]:
    """Yield options as they stand on the command line."""
    for name, value in options.items():
        word = f"--{name.replace('_', '-')}"
        for item in value if isinstance(value, list | tuple) else [value]:
            if item is True:
                yield word
            elif item is not None and item is not False:
                yield f"{word}={item}"
