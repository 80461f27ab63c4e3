# Everything runs from .venv, which these targets make and keep in step with pyproject.toml.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test lint bench serve simulate chaos fuzz clean

$(STAMP): pyproject.toml setup.py constraints.txt $(wildcard src/penstock/records/*.pyx src/penstock/records/*.pxi)
	@$(PYTHON) -c 'import sys; sys.exit("Penstock needs Python 3.11 or newer: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/penstock demo

# Most tests wait for processes, so that more workers than cores pay. A file stays with one: it shares its brokers.
test: lint
	$(BIN)/pytest -m 'not slow' -n 4 --dist loadfile

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
	$(BIN)/pytest -m slow tests/chaos tests/coordination

fuzz: $(STAMP)
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/pip install --quiet atheris==3.0.0
	$(BIN)/python tests/fuzz/fuzz_wire.py -max_total_time=$(or $(SECONDS_EACH),300)
	$(BIN)/python tests/fuzz/fuzz_records.py -max_total_time=$(or $(SECONDS_EACH),300)

bench: $(STAMP)
	$(BIN)/python -m bench

clean:
	rm -rf .venv build dist
