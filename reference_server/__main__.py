"""`python -m reference_server` is `smg launch`."""

from reference_server.cli import run

run()
