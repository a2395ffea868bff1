# Everything a developer or an operator of one machine runs. `make help` lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CONSTRAINTS := constraints-cpu.txt
# The first Python that is new enough; override with PYTHON=…
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
# Further arguments for pip, such as PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
PIP_ARGS ?=
# The Mooncake conversation trace; docs/simulator.md says where it is published
TRACE ?= ../shared/data/traces/mooncake_conversation.jsonl
# Lengths of real chat requests: the Azure trace of 2023
LENGTHS ?= ../shared/data/traces/azure_conv_2023.csv
# Arguments for `slipstream up`, such as ARGS="--prefill 2 --decode 2"
ARGS ?=

.PHONY: help install native up test check format protos docs constraints exactness bench bench-peers accuracy bench-cpu bench-index bench-routing bench-transfer soak client-gone overload chaos wheel clean

help:  ## Show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)$$/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r target text; do \
		printf '  make %-14s %s\n' "$$target" "$$text"; done

install: $(STAMP)  ## Make .venv with everything that serving, tests and checks need
	@$(BIN)/python -m common.kernels.cpu.build || \
		echo 'The compiler failed (see above): the install goes on without native kernels; `make native` tries again.' >&2

native: $(STAMP)  ## Build the native CPU kernels again, where their sources changed (10 s)
	@$(BIN)/python -m common.kernels.cpu.build

# compat: a plain path entry, so that a script in the folder above finds the package and not the bare folder of its name
$(STAMP): pyproject.toml $(CONSTRAINTS)
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.11 or newer is needed; say which with PYTHON=…" >&2; exit 1; fi
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) $(PIP_ARGS) \
		--config-settings editable_mode=compat --editable '.[dev]'
	@touch $(STAMP)

up: install  ## Start everything on this machine and serve until Ctrl-C; flags in ARGS
	@exec $(BIN)/slipstream up $(ARGS)

test: install  ## Run all tests (about 13 minutes on two cores)
	$(BIN)/python -m pytest $(ARGS)

check: install  ## Lint, format, types, import rules, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python protos/generate.py --check
	$(BIN)/python -m slipstream.settings_table --check docs/configuration.md
	$(BIN)/python -m slipstream.metrics_table --check docs/metrics.md

format: install  ## Format the code and mend what ruff can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

protos: install  ## Generate the Python code of protos/*.proto
	$(BIN)/python protos/generate.py

docs: install  ## Write the tables of settings and of metrics into docs/
	$(BIN)/python -m slipstream.settings_table --write docs/configuration.md
	$(BIN)/python -m slipstream.metrics_table --write docs/metrics.md

constraints: install  ## Pin what is installed now in the constraints file
	@{ sed -n '/^#/p' $(CONSTRAINTS); $(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//'; } > $(CONSTRAINTS).new
	@mv $(CONSTRAINTS).new $(CONSTRAINTS)
	@touch $(STAMP)

exactness: install  ## Compare with transformers token by token (20 minutes on two cores)
	$(BIN)/python -m benchmarks.exactness $(ARGS)

bench: install  ## How fast this engine is, beside the machine's own limits (2 minutes); flags in ARGS
	$(BIN)/python -m benchmarks.speed $(ARGS)

bench-peers: install  ## The same beside its peers, into benchmarks/RESULTS.md (an hour, and as long to make them)
	$(BIN)/python -m benchmarks.speed --engines all --workloads all --repeats 3 --trace $(LENGTHS) \
		--write benchmarks/RESULTS.md $(ARGS)

accuracy: install  ## Compare bf16 with float32 and with transformers' bf16, with a verdict (3 minutes)
	$(BIN)/python -m benchmarks.speed.accuracy $(ARGS)

bench-index: install  ## Measure the prefix index, with a verdict (half a minute)
	$(BIN)/python -m benchmarks.index_cost $(ARGS)

bench-routing: install  ## Replay policies on TRACE and on real processes, with a verdict (20 minutes)
	$(BIN)/python -m benchmarks.plan_cost
	$(BIN)/python -m benchmarks.routing --trace $(TRACE) $(ARGS)

bench-transfer: install  ## Measure how KV blocks move, with a verdict (3 minutes on an idle machine)
	$(BIN)/python -m benchmarks.transfer $(ARGS)

bench-cpu: install  ## Measure the native CPU kernels beside torch and this machine's limits (3 minutes)
	$(BIN)/python -m benchmarks.cpu_kernels $(ARGS)

soak: install  ## 1,000 fake workers on one index for 10 minutes, with a verdict; ARGS="--seconds 120" for less
	$(BIN)/python -m benchmarks.index_soak $(ARGS)

chaos: install  ## Break a fleet in every way at every stage of a request, with a verdict (10 minutes)
	$(BIN)/python -m benchmarks.chaos $(ARGS)

client-gone: install  ## Measure what a caller who goes away leaves behind, with a verdict (two minutes)
	$(BIN)/python -m benchmarks.client_gone $(ARGS)

overload: install  ## Ten times the sustainable rate for a minute, with a verdict (three minutes)
	$(BIN)/python -m benchmarks.overload $(ARGS)

wheel: install  ## Build a wheel in dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:  ## Remove .venv and everything that was built
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
