"""`python -m viewkit.cli` is `viewkit`."""

from viewkit.cli.main import main

main()
