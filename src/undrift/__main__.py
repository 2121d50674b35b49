"""`python -m undrift` is `undrift`."""

from undrift.cli.app import main

main()
