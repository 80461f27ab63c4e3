# Everything runs from .venv, which these targets make and keep in step with pyproject.toml.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test lint bench serve simulate chaos fuzz clean

$(STAMP): pyproject.toml setup.py constraints.txt $(wildcard src/penstock/records/*.px[yi])
	@$(PYTHON) -c 'import sys; sys.exit("Penstock needs Python 3.11 or newer: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/python -m penstock.cli.demo

test: lint
	$(BIN)/pytest -m 'not slow'

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

serve: $(STAMP)
	$(BIN)/penstock serve

simulate: $(STAMP)
	$(BIN)/pytest -m slow tests/simulation

chaos: $(STAMP)
	$(BIN)/pytest -m slow tests/chaos

bench: $(STAMP)
	$(BIN)/python -m bench

clean:
	rm -rf .venv build dist
