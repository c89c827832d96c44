"""``python -m lnbnn``: the same as the ``lnbnn`` command."""

from lnbnn.cli import main

main()
