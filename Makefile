# Every target sets itself up: a virtual environment in .venv, then the package, from scratch.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export OMP_WAIT_POLICY ?= PASSIVE
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false
# The CPU build of torch where there is no GPU and its index can be reached; else the default one.
TORCH_CPU := https://download.pytorch.org/whl/cpu

.PHONY: demo test lint study bench studies starter clean

$(VENV)/.demo: pyproject.toml constraints.txt
	@echo "+ setting up $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -U pip
	@if ! command -v nvidia-smi >/dev/null && $(PYTHON) -c "import urllib.request as u; u.urlopen('$(TORCH_CPU)/torch/', timeout=4)" 2>/dev/null; then \
	  $(BIN)/pip install -q -c constraints.txt torch --index-url $(TORCH_CPU); fi
	$(BIN)/pip install -q -c constraints.txt -e ".[ocr,serve]"
	@touch $@

$(VENV)/.test: $(VENV)/.demo
	$(BIN)/pip install -q -c constraints.txt -e ".[ocr,serve,dev]"
	@touch $@

demo: $(VENV)/.demo
	PATH="$(abspath $(BIN)):$$PATH" bash docs/demo.sh

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -q -m "not slow"

study: $(VENV)/.test
	$(BIN)/pytest -q -m slow

# Minutes each, one JSON line each; a bar that is missed is said and does not stop the others.
bench: $(VENV)/.test
	@for name in solve_weights marble nft_epoch online_credit rebrl judge_throughput; do \
	  $(BIN)/python benchmarks/$$name.py || echo "benchmarks/$$name.py missed its bar"; done

# The tables and figures of docs/: hours on two cores, and each goes on where it was stopped.
studies: $(VENV)/.test
	$(BIN)/python benchmarks/gain_curves.py --write docs/credit.md --figure docs/figures/credit-starter.svg
	$(BIN)/python benchmarks/credit_study.py
	$(BIN)/python benchmarks/conflict.py --write docs/methods.md --figure docs/figures/conflict.svg
	$(BIN)/python benchmarks/methods_table.py --write docs/methods.md
	$(BIN)/python benchmarks/rebrl_study.py --write docs/rebrl.md --figures docs/figures

starter: $(VENV)/.demo
	$(BIN)/recast-train starter build

clean:
	rm -rf $(VENV) runs evals
