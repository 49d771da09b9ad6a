"""Console for standard output."""

from __future__ import annotations

from rich.console import Console

UNBOUNDED = 10_000  # width of an output that is no terminal [characters]


class _Output(Console):
    """Console that lets its caller choose the exit status if the reader of the output closed the pipe."""

    def on_broken_pipe(self) -> None:
        """Raise `BrokenPipeError` instead of ending the process with status 1, as rich does."""
        raise BrokenPipeError


def console() -> Console:
    """Return a console on standard output; it does not fold lines if the output is not a terminal."""
    plain = _Output(highlight=False)
    if plain.is_terminal:
        return plain
    # Rich takes 80 characters for a file or a pipe, and would fold lines that a program reads.
    return _Output(highlight=False, width=UNBOUNDED)
