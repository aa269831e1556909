"""Without the libraries that are integrated with, there is nothing to test."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("transformers") and find_spec("lightning") else ["test_*.py"]
collect_ignore = [] if find_spec("triton") else ["test_kernel.py"]
