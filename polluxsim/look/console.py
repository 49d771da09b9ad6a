"""Console for standard output."""

from __future__ import annotations

from rich.console import Console

UNBOUNDED = 10_000


def console() -> Console:
    """Return a console on standard output; lines are not folded where it is not a terminal."""
    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=UNBOUNDED)
