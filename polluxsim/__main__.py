"""`python -m polluxsim` is the command `polluxsim`."""

from __future__ import annotations

import atexit
import os

from polluxsim import _end_interrupted

DEFECT = 70  # exit status after an error in polluxsim or in a policy of the user, which Python prints with a traceback

OBJECTS_BETWEEN_COLLECTIONS = 100_000
"""Objects that Python makes before it looks for cycles among them. With 700, this is a tenth of a short run."""


def main() -> int:
    """Run the command, and return its exit status.

    Until its results are written, Ctrl-C ends it with one line and exit status 130. After that, Ctrl-C changes neither
    the results nor the status.
    """
    try:
        import gc  # noqa: PLC0415  (each import may be interrupted)
        import signal  # noqa: PLC0415

        gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
        handled = (signal.SIGINT, signal.SIGTERM)
        for number in handled:
            signal.signal(number, _end_interrupted)
        # Do this last, because the end of Python would restore handlers that end the process by the signal.
        atexit.register(lambda: [signal.signal(number, signal.SIG_IGN) for number in handled])
        from polluxsim.cli.main import BAD_INPUT  # noqa: PLC0415
        from polluxsim.cli.main import main as command  # noqa: PLC0415
        from polluxsim.cli.streams import open_missing_streams  # noqa: PLC0415
        from polluxsim.common.process_state import last_resorts  # noqa: PLC0415
        from polluxsim.run.interrupt import end_process, handle_for_good  # noqa: PLC0415

        open_missing_streams()
        last_resorts.append(lambda message: end_process(f"polluxsim: {message}", BAD_INPUT))
        handle_for_good(lambda *_: end_process())
        try:
            status = command()
        except Exception:  # noqa: BLE001  (a defect, whose exit status must not be that of an answer)
            from traceback import print_exc  # noqa: PLC0415

            print_exc()
            status = DEFECT
        for number in handled:
            signal.signal(number, lambda *_: os._exit(status))
        return status
    except KeyboardInterrupt:
        _end_interrupted()
        raise


if __name__ == "__main__":
    raise SystemExit(main())
