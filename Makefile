# Every target creates .venv and installs what it needs; Python 3.11+, Java 17+ and make suffice.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
.DEFAULT_GOAL := help
.PHONY: help install demo test chaos soak lint bench docs clean

help:  ## Show the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Heliograph needs Python 3.11 or newer, this is "+sys.version.split()[0]+": set PYTHON=python3.x") if sys.version_info < (3,11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	-$(BIN)/heliograph prepare
	@touch $@

install: $(VENV)/.installed  ## Create .venv with everything in it

demo: install  ## Two real clusters, a mirror killed in mid-copy, and the proof
	$(BIN)/heliograph demo

test: install  ## All tests, with real brokers, real Spark and the real MM2
	$(BIN)/pytest -n 2 --dist loadfile --ignore tests/chaos -m "not full" --durations 20
	$(BIN)/pytest tests/chaos -m "not full" --durations 10

chaos: install  ## All fault tests, the slow ones too
	$(BIN)/pytest tests/chaos -m ''
	$(BIN)/pytest tests/integration tests/compat -m full

MINUTES ?= 30
soak: install  ## Random faults under load, every record checked, MM2 beside it: MINUTES=30 SEED=n
	PYTHONPATH=tests/chaos $(BIN)/python -m soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(SOAK_OPTIONS)

lint: install  ## ruff, mypy, import rules, generated docs up to date
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

bench: install  ## Heliograph beside the real MirrorMaker 2, results under benchmarks/results
	$(BIN)/python -m benchmarks

docs: install  ## Write the generated reference pages
	$(BIN)/python docs/generate.py

clean:  ## Remove .venv and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
