# Each target is one command and sets itself up. Needs Python 3.11 or newer and make, nothing else.
#
#   make demo     watch an agent run durably: INPUT=file ASK=1 DATABASE=postgresql://... MODEL=... BASE_URL=...
#   make test     every test, on memory, SQLite and a real PostgreSQL
#   make lint     style, types, the import law, the contract's lint
#   make gen      the stubs, generated from protos/ into the clients
#   make bench    what each promise costs against baselines: CASE=commit BENCH_SCALE=small|full
#   make rules    each rule of the contract with the tests that prove it

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

INPUT ?= README.md
ASK ?=
DATABASE ?=
MODEL ?=
BASE_URL ?=
ARGS ?=
JOBS ?= auto
CASE ?=

.PHONY: help setup demo test lint gen rules bench
help:
	@sed -n 's/^#   //p' Makefile

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "threadkeep needs Python 3.11 or newer (with venv) on PATH, or PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

demo: export INPUT := $(INPUT)
demo: export ASK := $(ASK)
demo: export DATABASE := $(DATABASE)
demo: export MODEL := $(MODEL)
demo: export BASE_URL := $(BASE_URL)
demo: $(READY)
	@$(BIN)/python clients/examples/demo.py

# A worker per core, each with a PostgreSQL of its own. JOBS=0 runs everything in one process.
test: $(READY)
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

lint: $(READY)
	@$(BIN)/python -m tools.lint

gen: $(READY)
	@$(BIN)/python -m tools.gen

rules: $(READY)
	@$(BIN)/python -m tools.rules

bench: $(READY)
	@$(BIN)/python -m tests.benchmarks $(CASE)
