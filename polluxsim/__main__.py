"""`python -m polluxsim` is the command `polluxsim`."""

from polluxsim.cli.main import main

raise SystemExit(main())
