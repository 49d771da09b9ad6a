"""`python -m polluxsim` is the command `polluxsim`."""

from polluxsim.app.cli import main

raise SystemExit(main())
