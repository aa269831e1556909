# Two commands do everything on a fresh machine with Python 3.11+ and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FAST := not slow and not gpu and not data
# Small tensors gain nothing from a second thread, and lose much where another program wants the core.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
# A file's tests stay in one process: they share what is costly to make. Files are taken in the order of
# tests/conftest.py, the longest first.
SPREAD := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# A warning fails it (with --quiet none would); the variable silences what the theme says of its own future.
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.NOTPARALLEL: # two targets fill one environment
.PHONY: demo test check test-all docs bench results clean

demo: $(VENV)/.demo
	$(BIN)/nnrs demo

test: $(VENV)/.installed
	$(PYTEST) $(SPREAD) -m "$(FAST)" tests

test-all: $(VENV)/.installed
	$(PYTEST) tests

check: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST) tests/test_layout.py src
	$(SITE)

docs: $(VENV)/.installed
	$(SITE)

# Tables, pages and pictures of what was run, from the records alone.
results: $(VENV)/.installed
	$(BIN)/python -m results.rebuild

bench: $(VENV)/.installed
	$(BIN)/pip install -q -c constraints.txt -e '.[bench]'
	for script in benchmarks/[a-z]*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

# What the demo needs takes less than half of the time and room of all that the tests need.
$(VENV)/.demo: pyproject.toml constraints.txt
	@echo "installing PyTorch and what the demo needs into $(VENV), which takes a minute or more"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e '.[demo]'
	touch $@

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "installing PyTorch and what the tests need into $(VENV), which takes some minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache
