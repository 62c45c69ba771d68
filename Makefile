# `make demo` and `make test` need nothing but Python 3.11 or later: they set up what they use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT ?= runs/demo

# Without a compiler on the machine, the demo takes one from a wheel.
COMPILER := $(if $(shell command -v cc gcc clang),,yes)
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup demo deploy-demo test test-long lint docs report notebooks format clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.installed ## Make .venv with everything

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing sdfeel and the tools of its tests and documentation into $(VENV) (2.4 GB) ...'
	@$(PIP) -e '.[dev]'
	@touch $(VENV)/.demo $(VENV)/.deploy $@

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing sdfeel into $(VENV) (1 GB, mostly PyTorch; only the first time) ...'
	@$(PIP) --no-compile -e '.$(if $(COMPILER),[compiler])'
	@touch $@

$(VENV)/.deploy: $(VENV)/.demo
	@echo 'installing gRPC and TLS for sdfeel into $(VENV) (only the first time) ...'
	@$(PIP) --no-compile -e '.[deploy]'
	@touch $@

demo: $(VENV)/.demo ## Train four schemes on embedded data and draw them over simulated time (QUICK=1: shorter)
	@echo 'training four schemes on 5,000 images, 50 clients and 10 edge servers; about a minute ...'
	@$(BIN)/sdfeel compare demo --out $(OUT) $(if $(QUICK),--set until=20 --set evaluation.every=20)
	@echo
	@echo 'The figure is $(OUT)/over_time.png, the page $(OUT)/index.html.'
	@echo 'Type `source $(BIN)/activate` to have the command `sdfeel`; docs/quickstart.md goes on from here.'

deploy-demo: $(VENV)/.deploy ## Run 3 edge servers and 9 clients as real processes on this machine
	$(BIN)/python examples/deployment/demo.py

test: setup ## Run all tests
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations 40

test-long: setup ## The same with 10,000 histories of deployments, and every compiler for every processor
	SDFEEL_LONG=1 $(BIN)/python -m pytest -n 2 --dist worksteal --timeout 3600

lint: setup ## ruff, mypy over src and the packages of benchmarks, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup ## Build the documentation into site/, warnings as errors
	$(BIN)/python docs/house.py --check
	$(BIN)/python docs/references.py --check
	rm -rf site
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet --fresh-env -d build/doctrees docs site

report: docs ## The report as site/report.pdf, by Debian's chromium
	chromium --headless --no-sandbox --disable-gpu --no-pdf-header-footer \
		--print-to-pdf=site/report.pdf file://$(CURDIR)/site/report.html 2>/dev/null
	@echo site/report.pdf

notebooks: setup ## Run the notebooks of docs/notebooks
	$(BIN)/python docs/notebooks.py

format: setup ## Let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove what was made
	rm -rf $(VENV) build dist site runs .mypy_cache .pytest_cache .ruff_cache
