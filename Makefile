# Every target creates .venv and installs what it needs; Python 3.11+, Java 17+ and make suffice.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP = $(BIN)/pip install --quiet --disable-pip-version-check
.DEFAULT_GOAL := help
# Compiled modules are kept, whatever the shell says: the tests start hundreds of commands.
export PYTHONDONTWRITEBYTECODE :=
.PHONY: help install tools demo test chaos soak story lint audit bench canary measure docs screenshots dist pins clean

help:  ## Show the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

$(VENV)/.installed: pyproject.toml $(wildcard requirements/*.txt)
	$(PYTHON) -c 'import sys; sys.exit("Heliograph needs Python 3.11 or newer, this is "+sys.version.split()[0]+": set PYTHON=python3.x") if sys.version_info < (3,11) else None'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r requirements/runtime.txt
	$(PIP) --require-hashes -r requirements/dev.txt -r requirements/bench.txt
	$(PIP) --no-deps --no-build-isolation -e .
	-$(BIN)/heliograph prepare --lab
	@touch $@

install: $(VENV)/.installed  ## Create .venv with everything in it

tools:  ## Debian's browser and Prometheus for the tests that use them; needs root, others skip these tests
	@which chromium chromedriver promtool >/dev/null || { apt-get update -qq && \
		apt-get install -qq --no-install-recommends chromium chromium-driver prometheus; }

demo: install  ## Two real clusters, a mirror killed in mid-copy, and the proof
	$(BIN)/heliograph demo

test: install  ## All tests, with real brokers, real Spark and the real MM2
	$(BIN)/pytest -n 3 --no-loadscope-reorder -m "not full" --durations 20

chaos: install  ## All fault tests, the slow ones too
	$(BIN)/pytest tests/chaos -m ''
	$(BIN)/pytest tests/unit -m 'hypothesis and not full' --hypothesis-profile explore
	$(BIN)/pytest tests/unit tests/integration tests/compat -m full

MINUTES ?= 30
soak: install  ## Random faults under load, every record checked, MM2 beside it: MINUTES=30 SEED=n
	PYTHONPATH=tests/chaos:tests/integration $(BIN)/python -m soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(SOAK_OPTIONS)

story: MINUTES = 10
story: install  ## Faults one by one: do the dashboard, status, metrics and log tell the same? MINUTES=10
	PYTHONPATH=tests/chaos:tests/integration:tests/browser $(BIN)/python -m story --minutes $(MINUTES) --output benchmarks/results/story.md $(STORY_OPTIONS)

lint: install audit  ## ruff, mypy, import rules, known holes, generated docs up to date
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy tests/chaos/conftest.py
	$(BIN)/mypy tests/compat/conftest.py
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

$(VENV)/.audit: requirements/audit.txt $(VENV)/.installed
	$(PIP) --require-hashes -r requirements/audit.txt
	@touch $@

audit: $(VENV)/.audit  ## Known holes in what we depend on, as far as the index tells
	$(BIN)/pip-audit --progress-spinner off --disable-pip --require-hashes -r requirements/runtime.txt

dist: $(VENV)/.audit  ## The wheel, the source and a list of all parts (CycloneDX)
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/cyclonedx-py requirements requirements/runtime.txt --pyproject pyproject.toml -o dist/heliograph.cdx.json

pins: install  ## Pin what pyproject.toml asks for, with digests, under requirements/
	$(BIN)/python requirements/pin.py

bench: install  ## Heliograph beside the real MirrorMaker 2, results under benchmarks/results
	$(BIN)/python -m benchmarks

docs: install  ## Write the generated reference pages
	$(BIN)/python docs/generate.py

screenshots: install  ## Pictures of the dashboard in docs/screenshots; needs chromium and chromium-driver
	$(BIN)/python tests/browser/screenshots.py

canary: install  ## Does the canary say what records take? Also over a delayed and a cut link; 6 minutes
	PYTHONPATH=tests/chaos $(BIN)/python -m benchmarks.canary --output=benchmarks/results/canary.md $(CANARY_OPTIONS)

measure: install  ## What an open dashboard costs, with 10,000 partitions: on a quiet machine; needs a browser
	PYTHONPATH=. $(BIN)/python tests/browser/measure.py --output benchmarks/results/dashboard.md $(MEASURE_OPTIONS)

clean:  ## Remove .venv and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
