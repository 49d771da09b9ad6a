"""`python -m polluxsim` is the command `polluxsim`."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> int:
    """Run the command; Ctrl-C is a line and an exit status from the first import on."""
    try:
        from polluxsim.cli.main import main as command  # noqa: PLC0415

        return command()
    except KeyboardInterrupt:
        print("polluxsim: interrupted, nothing was written", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    raise SystemExit(main())
