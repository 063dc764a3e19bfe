# From a fresh clone: `make run` or `make test`; each installs what it needs first.
PYTHON ?= python3
BIN := .venv/bin
export OMP_WAIT_POLICY ?= passive
unexport PYTHONDONTWRITEBYTECODE # else every process of the tests compiles them, and covey, anew

.PHONY: fuzz protocol chaos storm soak run test check suite format test-all mutants bench docs clean

.venv/ready: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

# For the tests: tools, and the extras that they cover.
.venv/ready-dev: .venv/ready
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,deploy,docs,ray,tensorboard]'
	@touch $@

run: .venv/ready
	$(BIN)/covey run

check: .venv/ready-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Which tests run in one process: tests/conftest.py. Copies of a process are safe on Linux only.
PROCESSES := $(if $(filter Linux,$(shell uname -s)),--copies auto,-n auto --dist loadfile)

suite: .venv/ready-dev
	$(BIN)/pytest $(PROCESSES) -m "not slow"

# Both at once: the type checker computes while the parties of a deployment wait for each other.
test: .venv/ready-dev
	@$(MAKE) --no-print-directory --jobs 2 check suite

test-all: check
	$(BIN)/pytest $(PROCESSES) --hypothesis-profile thorough

# Core lines, each broken on purpose: which tests notice? Minutes; not part of `make test`.
mutants: .venv/ready-dev
	$(BIN)/python tests/mutants.py

# The parties of a deployment under whatever can happen to letters, for longer than in `make test`.
protocol: .venv/ready-dev
	COVEY_PROTOCOL_STEPS=200 $(BIN)/pytest -n 0 tests/deploy/test_protocol.py

# Every reader and party under inputs that nobody means well: an hour of CPU, and how many inputs each had. Faults are kept in
# fuzz-faults/. With FUZZ="door --minutes 5" one of them, for less.
fuzz: .venv/ready-dev
	PYTHONPATH=tests $(BIN)/python -W ignore -m fuzz $(FUZZ)

# A deployment of real processes that are killed, stopped, cut off and slowed at random, for ten minutes; its models must be those of
# an undisturbed run, bit for bit. With CHAOS="cases" one trouble at a time, and after how many seconds all work together again.
chaos: .venv/ready-dev
	PYTHONPATH=tests $(BIN)/python -W ignore -m chaos $(or $(CHAOS),storm)

# The same by the seed whose figures are in docs/deployment/chaos.md.
storm: .venv/ready-dev
	PYTHONPATH=tests $(BIN)/python -W ignore -m chaos storm --minutes 10 --seed 20 --rounds 90

# A thousand rounds of a tiny model over ten silos: memory, handles and disk of every party must stay flat. SOAK="--rounds 300 --silos 3".
soak: .venv/ready-dev
	PYTHONPATH=tests $(BIN)/python -W ignore -m chaos soak $(SOAK)

format: .venv/ready-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The peers that we measure against pin other versions of what we use: they get an environment of their own.
.venv-bench/ready: pyproject.toml benchmarks/constraints.txt
	@test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	@.venv-bench/bin/pip install --quiet --disable-pip-version-check --constraint benchmarks/constraints.txt \
	  --editable . 'flwr[simulation]' pfl fedjax tenseal phe
	@touch $@

bench: .venv-bench/ready
	.venv-bench/bin/covey bench all

# The documentation as a site in build/site, which opens from there: no server, no network. Stops at the first broken link.
.venv/ready-docs: .venv/ready
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@

docs: .venv/ready-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo build/site/index.html

clean:
	rm -rf .venv .venv-bench build dist src/*.egg-info
