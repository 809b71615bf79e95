"""`python -m smg` is the `smg` command."""

import sys

from smg.cli import main

sys.exit(main())
