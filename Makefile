# viewkit: `make help` lists the targets.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
VIEWKIT := $(BIN)/viewkit
CONSTRAINTS ?= constraints.txt

# Two processes of one thread each; a file's tests stay together, for they share what is slow to make.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile
SHAPES := --jaxtyping-packages=viewkit,typechecker.check

DEMO ?= demo
EXPERIMENT ?= pipeline
TEST ?=
LABELS ?= none
SIGN ?= auto
EVIDENCE ?= evidence
PART ?= 1
BENCHMARKS ?= startup shards pack views score generate formats train_step evaluate feed page memory scale cluster house
STUDY_IMAGES = $(foreach each,cifar10 imagenette,$(call image_options,$(each),$(shell echo $(each) | tr a-z A-Z)))
image_options = $(if $($(2)),--$(1) '$($(2))') $(if $($(2)_TEST),--$(1)-test '$($(2)_TEST)')

.DEFAULT_GOAL := help
.PHONY: help setup setup-scale demo test test-all check format docs site man dist pipeline bench gpu evidence gpu-evidence clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ready  ## make a virtual environment and install viewkit with everything it needs (5.5 GB)

$(VENV)/.ready: pyproject.toml setup.py pipelines/views/render/kernels.c $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) --editable '.[dev]'
	@touch $@

setup-scale: setup  ## what tests of stores and clusters need: azurite, s3rver and rclone into build, Slurm by apt where root
	.ci/setup-scale

demo: setup  ## which pairs help? mosaics of photographs that ship with scikit-image; ends with verdicts and two pages
	$(VIEWKIT) run demo demo:train $(DEMO)/train --test demo:test

test: setup  ## run the tests (two minutes on two cores)
	$(PYTEST) -m 'not slow and not gpu'

test-all: setup  ## run the slow tests too, and check the annotated types and shapes of every call
	$(PYTEST) $(SHAPES) -m 'not gpu'

check: setup  ## lint, formatting, types, and whether the generated docs are fresh
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@mkdir -p build/typing/viewkit
	@for package in cli pipelines shards; do ln -sfn ../../../$$package build/typing/viewkit/$$package; done
	@ln -sfn ../../../cli/api/__init__.py build/typing/viewkit/__init__.py
	MYPYPATH=build/typing $(BIN)/mypy -p viewkit
	$(BIN)/python -m viewkit.cli.reference --check docs
	$(BIN)/python benchmarks/results.py --check

format: setup  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup  ## write the generated pages: commands, columns, experiments, licences, benchmarks
	$(BIN)/python -m viewkit.cli.reference docs
	$(BIN)/python docs/licences.py
	$(BIN)/python benchmarks/results.py

site: setup  ## build the site of the docs, build/site/index.html; a warning is an error
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -q -W --keep-going -b html docs build/site

man: setup  ## write the man pages of all commands to build/man
	$(BIN)/python -m viewkit.cli.man build/man

dist: setup  ## build the sdist and the wheel, dist/
	$(BIN)/python -m build --outdir dist .

pipeline: setup  ## an experiment on your images: make pipeline DATA=folder OUT=dataset [EXPERIMENT=file.toml] [TEST=folder] [LABELS=folders] [SIGN=+]
	@test -n "$(DATA)" || { echo "error: DATA is not set; use make pipeline DATA=folder OUT=dataset"; exit 2; }
	@test -n "$(OUT)" || { echo "error: OUT is not set; use make pipeline DATA=folder OUT=dataset"; exit 2; }
	$(VIEWKIT) run '$(EXPERIMENT)' '$(DATA)' '$(OUT)' $(if $(TEST),--test '$(TEST)') --set pack.labels=$(LABELS) --set generate.sign=$(SIGN)

bench: setup  ## measure ours against the peers, every program of benchmarks/ that fits this machine, and write the page
	@for program in $(BENCHMARKS); do \
	  echo "== benchmarks/$$program.py"; $(BIN)/python benchmarks/$$program.py --out benchmarks/results || exit $$?; \
	done
	$(BIN)/python benchmarks/results.py

gpu: setup  ## what only a GPU can show, a part of at most ten minutes a call, resumable: make gpu PART=1 ... PART=5
	$(BIN)/python benchmarks/gpu.py --part $(PART) --out benchmarks/results
	$(BIN)/python benchmarks/results.py

evidence: setup  ## run the studies of docs/evidence.md: [CIFAR10=train CIFAR10_TEST=test IMAGENETTE=train IMAGENETTE_TEST=test]
	$(BIN)/python benchmarks/evidence.py --out $(EVIDENCE) $(STUDY_IMAGES)

gpu-evidence: setup  ## those that need a GPU, ten minutes a call; the same command goes on: IMAGENETTE=train IMAGENETTE_TEST=test
	$(BIN)/python benchmarks/evidence.py --out $(EVIDENCE) --gpu --minutes 9.5 $(STUDY_IMAGES)

clean:  ## delete the demo, the build and the caches; the virtual environment stays
	rm -rf $(DEMO) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
