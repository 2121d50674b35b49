PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test slow ray flower check format docs wheel bench bench-peers bench-scale bench-ray bench-draw conform clean

help: ## list the targets
	@echo "usage: make [target]    (PYTHON=python3.12 chooses the interpreter)"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(READY) ## create .venv and install undrift with everything it needs

# The build tools come first and the build is not isolated, so that constraints.txt rules them too.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "undrift needs Python >= 3.11, but '$(PYTHON) --version' says: $$($(PYTHON) --version 2>&1 | tail -n 1); try make PYTHON=python3.11" >&2; exit 1; }
	@echo "creating .venv and installing (about 3 minutes) ..."
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@$(BIN)/pip install -qq -c constraints.txt hatchling editables
	@$(BIN)/pip install -qq -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

demo: $(READY) ## compare the optimisers on a small problem and write demo-report
	@$(BIN)/undrift demo --out demo-report

test: $(READY) ## run the tests, in parallel
	$(BIN)/pytest -n auto --maxprocesses 8

slow: $(READY) ## run the slow tests; UNDRIFT_TEST_DATA names the folder of the real data
	$(BIN)/pytest -m slow -rs -n auto --maxprocesses 8

ray: $(READY) ## install Ray (240 MB) and run the tests that need it, on loopback
	@$(BIN)/pip install -qq -c constraints.txt --no-build-isolation -e '.[ray]'
	$(BIN)/pytest tests/engines/test_ray.py

flower: $(READY) ## install Flower and run the tests that need it, and a deployment on loopback
	@$(BIN)/pip install -qq -c constraints.txt --no-build-isolation -e '.[flower]'
	$(BIN)/pytest -n auto --maxprocesses 8 tests/deploy
	$(BIN)/undrift deploy check

check: $(READY) ## check the format, the lint rules and the types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict

format: $(READY) ## repair what the linter can repair, then format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## run the notebooks, and build the documentation into build/docs
	$(BIN)/pytest -m slow -n auto --maxprocesses 8 tests/test_notebooks.py
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs
	@echo "documentation: build/docs/index.html"

wheel: $(READY) ## test the wheel, and build it into dist
	$(BIN)/pytest -m slow tests/test_wheel.py
	@$(BIN)/pip wheel -q --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

bench: $(READY) ## measure the engines beside a plain PyTorch loop
	@$(BIN)/python -m benchmarks

bench-peers: $(READY) ## measure undrift beside other simulators, which it installs first
	@$(BIN)/python -m benchmarks.peers

bench-scale: $(READY) ## measure federations of up to a million clients
	@$(BIN)/python -m benchmarks.scale

conform: $(READY) ## compare other libraries, which it installs first, with the methods
	@$(BIN)/python -m benchmarks.conform

bench-ray: $(READY) ## measure the Ray engine beside the local one; needs the extra ray
	@$(BIN)/python -m benchmarks.machines

bench-draw: $(READY) ## draw the figures and tables of the documentation from the results
	@$(BIN)/python -m benchmarks.draw

clean: ## remove caches, builds and the demo's report; .venv and runs stay
	@rm -rf build dist demo-report .hypothesis .mypy_cache .pytest_cache .ruff_cache .coverage
	@find . -path ./.venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
