"""`python -m nnrs`."""

from nnrs.cli.main import main

main()
