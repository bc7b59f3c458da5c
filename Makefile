# viewkit: `make help` lists the targets.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
VIEWKIT := $(BIN)/viewkit
CONSTRAINTS ?= constraints.txt

# Two processes of one thread each; a file's tests stay together, for they share what is slow to make.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile

DEMO ?= demo
EXPERIMENT ?= pipeline
TEST ?=
LABELS ?= none
SIGN ?= auto

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all check format docs pipeline bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ready  ## make a virtual environment and install viewkit with everything it needs (5.5 GB)

$(VENV)/.ready: pyproject.toml setup.py pipelines/views/render/kernels.c $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) --editable '.[dev]'
	@touch $@

demo: setup  ## run the whole chain on photographs that ship with scikit-image; ends with a table and a page
	$(VIEWKIT) run demo demo:train $(DEMO)/train --test demo:test

test: setup  ## run the tests (under three minutes on two cores)
	$(PYTEST) -m 'not slow and not gpu'

test-all: setup  ## run the slow tests too
	$(PYTEST) -m 'not gpu'

check: setup  ## lint, formatting, types, and whether the generated docs are fresh
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@mkdir -p build/typing/viewkit
	@for package in cli pipelines shards; do ln -sfn ../../../$$package build/typing/viewkit/$$package; done
	@ln -sfn ../../../cli/api/__init__.py build/typing/viewkit/__init__.py
	MYPYPATH=build/typing $(BIN)/mypy -p viewkit
	$(BIN)/python -m viewkit.cli.reference --check docs

format: setup  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup  ## write the generated pages, docs/cli.md, docs/columns.md and docs/experiments.md
	$(BIN)/python -m viewkit.cli.reference docs

pipeline: setup  ## an experiment on your images: make pipeline DATA=folder OUT=dataset [EXPERIMENT=file.toml] [TEST=folder] [LABELS=folders] [SIGN=+]
	@test -n "$(DATA)" || { echo "error: DATA is not set; use make pipeline DATA=folder OUT=dataset"; exit 2; }
	@test -n "$(OUT)" || { echo "error: OUT is not set; use make pipeline DATA=folder OUT=dataset"; exit 2; }
	$(VIEWKIT) run '$(EXPERIMENT)' '$(DATA)' '$(OUT)' $(if $(TEST),--test '$(TEST)') --set pack.labels=$(LABELS) --set generate.sign=$(SIGN)

bench: setup  ## measure ours against the peers, every program that fits this machine
	@for program in startup shards views score generate train_step; do \
	  test -f benchmarks/$$program.py || continue; \
	  echo "== benchmarks/$$program.py"; $(BIN)/python benchmarks/$$program.py || exit $$?; \
	done

clean:  ## delete the demo, the build and the caches; the virtual environment stays
	rm -rf $(DEMO) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
