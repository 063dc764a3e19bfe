# From a fresh clone: `make run` or `make test`; each installs what it needs first.
PYTHON ?= python3
BIN := .venv/bin
export OMP_WAIT_POLICY ?= passive

.PHONY: run test check format test-all bench clean

.venv/ready: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

run: .venv/ready
	$(BIN)/covey run

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: check
	$(BIN)/pytest -n auto -m "not slow"

test-all: check
	$(BIN)/pytest -n auto

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/bench-ready: .venv/ready
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,bench]'
	@touch $@

bench: .venv/bench-ready
	$(BIN)/covey bench

clean:
	rm -rf .venv build dist src/*.egg-info
