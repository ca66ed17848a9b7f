# Everything a newcomer types. Each target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE_SOURCES := $(wildcard kraft/_core/*.pyx kraft/_core/*.pxd) setup.py
KIND := $(if $(filter-out 0,$(KRAFT_DEBUG)),debug,release)
STAMP := $(VENV)/.built-$(KIND)
# A build of the other kind leaves files that look up to date.
OTHER_KIND := $(filter-out $(STAMP),$(wildcard $(VENV)/.built-*))

.PHONY: help build demo test lint interop interop-matrix bench bench-quick bench-peers fuzz clean \
  bench-instructions bench-compare baseline history performance-page \
  differential differential-coverage otava simulate simulate-controllers mutants core-mutants sanitize disk-proof processes soak soak-simulate soak-processes

help:
	@echo "make demo     build, then open a real cluster's metadata and run a million partitions on it"
	@echo "make test     build, then the tests (no Java needed)"
	@echo "make lint     ruff, mypy, cython-lint, the floors of the house"
	@echo "make interop  the tests against Apache Kafka (needs Java 17 and Maven)"
	@echo "make interop-matrix  quorums with Kafka's controllers of every release from 3.7 to 4.4"
	@echo "make differential  generated cases on Kafka's own controller classes and here, CASES=20000 SEED=1 (full: 1000000)"
	@echo "make differential-coverage  the coverage by module of sequences for whole controllers, QUORUMS=300 SEED=1"
	@echo "make bench    the speed table: this package beside its peers; SUITE=codec runs one floor of it"
	@echo "make bench-peers  only what has a peer"
	@echo "make bench-instructions  instructions in place of time; bench-compare holds them against the baseline"
	@echo "make history  the suites at past commits, COMMITS='a b' RUNS=3; performance-page writes docs/performance.md"
	@echo "make otava    regression analysis beside the otava program on the same histories, SERIES=1000 (needs Java 17)"
	@echo "make sensitivity  what the analysis of regressions finds and invents, into docs/regressions.md"
	@echo "make fuzz     the parsers under a fuzzer and sanitizers, SECONDS=60 by default (needs clang)"
	@echo "make simulate whole clusters in virtual time, SEEDS=2000 EVENTS=10000; SEED=n replays one"
	@echo "make simulate-controllers  the same with real controllers, simulated brokers and clients"
	@echo "make mutants  faults planted into the state machine: the simulation has to catch each"
	@echo "make core-mutants  faults planted into the compiled core: its tests have to catch each; some minutes"
	@echo "make sanitize the tests of the core under gcc's address and undefined-behaviour sanitizers"
	@echo "make disk-proof  a node's disk, simulated and real, crashed between any two calls; bits flipped in its files"
	@echo "make processes a real quorum, with and without its controllers, whose processes are killed under load"
	@echo "make soak     the proofs at a hundred times their size; hours"
	@echo "make build    only the environment and the extensions (KRAFT_DEBUG=1 for a checked build)"

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q --upgrade "setuptools>=77" "cython>=3.1" "numpy>=2.0"
	KRAFT_MODULES=none $(BIN)/python -m pip install -q --no-build-isolation -e ".[dev]"
	touch $@

$(STAMP): $(VENV)/.installed $(CORE_SOURCES)
	$(BIN)/python setup.py -q build_ext --inplace -j 2 $(if $(OTHER_KIND),--force)
	rm -f $(VENV)/.built-*
	touch $@

build: $(STAMP)

demo: build
	$(BIN)/kraft lab million

# On all cores; WORKERS=0 runs in this process, as a debugger wants it.
test: WORKERS ?= auto
test: build
	$(BIN)/python -m pytest tests -m "not interop" -n $(WORKERS)

BENCH_RUN := full
bench: build
	@mkdir -p benchmarks/results
	$(BIN)/python -m pytest $(if $(SUITE),benchmarks/bench_$(SUITE)*.py,benchmarks) --benchmark-quiet \
	  $(if $(filter quick,$(BENCH_RUN)),--quick) $(if $(filter peers,$(BENCH_RUN)),-m peer) \
	  --benchmark-json=benchmarks/results/$(BENCH_RUN).json; status=$$?; \
	$(BIN)/python -m benchmarks.report benchmarks/results/$(BENCH_RUN).json; exit $$status

# Every benchmark at a fraction of its size: all must run, no figure means anything.
bench-quick: BENCH_RUN := quick
bench-quick: bench

# Only what runs beside a peer: Kafka's classes and quorums, aiokafka.
bench-peers: BENCH_RUN := peers
bench-peers: bench

# Instructions in place of time: the same on a noisy machine. Needs valgrind.
COUNTED := benchmarks/results/instructions.json
BASELINE := benchmarks/baseline/instructions.json
bench-instructions: build
	@mkdir -p benchmarks/results
	$(BIN)/python -m pytest -p benchmarks.counted.plugin benchmarks/counted/suite.py -q --benchmark-quiet \
	  --benchmark-json=$(COUNTED)

# Fails where a work needs more instructions than the baseline's, beyond what toolchains allow to tell.
bench-compare: bench-instructions
	threshold=$$($(BIN)/python -m benchmarks.counted.check $(BASELINE) $(COUNTED)) && \
	  $(BIN)/kraft regress compare $(BASELINE) $(COUNTED) --statistic instructions --threshold $$threshold

# What becomes slower on purpose becomes the baseline; the commit says why.
baseline: bench-instructions
	cp $(COUNTED) $(BASELINE)

# The suites of past commits, each on its own code: COMMITS="v1 v2~3", RUNS=3 of each.
history: RUNS ?= 3
history: WORK ?= $(or $(TMPDIR),/tmp)/kraft-history
history: build
	$(BIN)/python -m benchmarks.history_run --work $(WORK) --runs $(RUNS) $(COMMITS)

# docs/performance.md and the README's table, out of benchmarks/history; FULL=RUN.json is kept there first.
performance-page: build
	$(BIN)/python -m benchmarks.performance_page $(if $(FULL),--keep $(FULL))

interop: build
	$(BIN)/python -m pytest tests/interop tests/differential -m interop

# Quorums with controllers of every release from 3.7 to 4.4, whose jars it fetches; five minutes.
interop-matrix: build
	INTEROP_RELEASES=all $(BIN)/python -m pytest tests/interop/test_quorum_releases.py -m interop

# Cases of the pure functions; for every hundred a sequence for the managers and one for whole controllers.
differential: CASES ?= 20000
differential: SEED ?= 1
differential: build
	$(BIN)/python -m tests.differential.run --cases $(CASES) --seed $(SEED)

# Which lines of the controller and its images the sequences for whole controllers reach, by module.
differential-coverage: QUORUMS ?= 300
differential-coverage: SEED ?= 1
differential-coverage: build
	$(BIN)/coverage run --source=kraft.controller,kraft.image -m tests.differential.run --quorums $(QUORUMS) --seed $(SEED)
	$(BIN)/coverage report --show-missing

otava: SERIES ?= 1000
otava: SEED ?= 1
otava: build
	$(BIN)/python -m tests.otava.run --series $(SERIES) --seed $(SEED)

sensitivity: SERIES ?= 1000
sensitivity: build
	$(BIN)/python -m benchmarks.sensitivity --series $(SERIES)

lint: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH=$(BIN):$$PATH $(BIN)/cython-lint kraft/_core
	$(BIN)/mypy
	$(BIN)/lint-imports

fuzz: SECONDS ?= 60
fuzz:
	$(PYTHON) tests/fuzz/run.py --seconds $(SECONDS) $(if $(TARGETS),--targets $(TARGETS))

simulate: SEEDS ?= 2000
simulate: EVENTS ?= 10000
simulate: FIRST ?= 0
simulate: build
	$(BIN)/python -m tests.simulation.run --events $(EVENTS) \
	  $(if $(SEED),--seed $(SEED),--first $(FIRST) --seeds $(SEEDS)) $(if $(JSON),--json)

simulate-controllers: SEEDS ?= 100
simulate-controllers: EVENTS ?= 4000
simulate-controllers: FIRST ?= 0
simulate-controllers: build
	$(BIN)/python -m tests.simulation.run --controllers --events $(EVENTS) \
	  $(if $(SEED),--seed $(SEED),--first $(FIRST) --seeds $(SEEDS)) $(if $(JSON),--json)

mutants: build
	$(BIN)/python -m tests.simulation.mutants

core-mutants: build
	$(BIN)/python -m tests.compiled.mutants $(if $(ONLY),--only $(ONLY))

sanitize: build
	$(BIN)/python -m tests.compiled.sanitize

disk-proof: SEED ?= 1
disk-proof: OPERATIONS ?= 500
disk-proof: FLIPS ?= 10000
disk-proof: build
	$(BIN)/python -m tests.simulation.disk_proof --seed $(SEED) --operations $(OPERATIONS) --flips $(FLIPS)
	$(BIN)/python -m tests.durability.run --first $(SEED) --seeds 20 --operations $(OPERATIONS)

processes: CYCLES ?= 30
processes: NODES ?= 3
processes: build
	$(BIN)/python -m tests.e2e.quorum_chaos --cycles $(CYCLES) --nodes $(NODES) \
	  $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.e2e.quorum_chaos --cycles $(CYCLES) --nodes $(NODES) --controllers \
	  $(if $(SEED),--seed $(SEED))

soak-processes:
	$(MAKE) processes CYCLES=1000

# Seeds that CI does not run.
soak-simulate: build
	$(BIN)/python -m tests.simulation.run --first 1000000 --seeds 200000
	$(BIN)/python -m tests.simulation.run --controllers --first 1000000 --seeds 20000

soak: soak-simulate soak-processes

clean:
	rm -rf build $(VENV) kraft/_core/*.so kraft/_core/*.c
