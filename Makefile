# Commands for development. Each target sets up its requirements.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE_SOURCES := $(shell find kraft/_core -name "*.pyx" -o -name "*.pxd") setup.py
KIND := $(if $(filter-out 0,$(KRAFT_DEBUG)),debug,release)
STAMP := $(VENV)/.built-$(KIND)
# The extensions of the other kind appear up to date, so a change of kind needs --force.
OTHER_KIND := $(filter-out $(STAMP),$(wildcard $(VENV)/.built-*))
# Tests start hundreds of Python processes, which would all compile the package's modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help build demo test spark lint lint-style lint-types docs package release-check interop interop-kafka interop-zookeeper interop-matrix leadership-moves transplant broker-lives broker-faults zk-races zk-outages zk-moves clients operations kafka-tests client-tests bench bench-quick bench-peers fuzz clean \
  bench-instructions bench-compare baseline history performance-page \
  differential differential-coverage otava simulate simulate-controllers simulate-replication mutants core-mutants sanitize sanitize-threads disk-proof processes upgrade soak soak-simulate soak-processes

help:
	@echo "make build                  Set up the environment and build the extensions for this machine; KRAFT_DEBUG=1 adds checks"
	@echo "make demo                   Open a real cluster's metadata and grow it to a million partitions"
	@echo "make test                   Run the tests that need no Java and no quorum of processes, on all cores; WORKERS=0 runs in one process"
	@echo "make spark                  Run the tests of data sources, store and analyses on Spark, the last also on a cluster of processes (needs Java 17)"
	@echo "make lint                   Run ruff, mypy, stubtest, cython-lint and the import linter"
	@echo "make docs                   Build the documentation site into build/site (needs npm); a warning fails it"
	@echo
	@echo "make interop                Run the tests against Apache Kafka (needs Java 17 and Maven)"
	@echo "make interop-matrix         Run quorums with Kafka's controllers of every release from 3.7 to 4.4"
	@echo "make leadership-moves       Move leadership between Kafka's controllers and kraft's under load, MOVES=30 RELEASES='3.7.2 4.1.1 4.3.1'"
	@echo "make broker-faults          Kill, stop and cut off Kafka's brokers and kraft's controllers under load, ROUNDS=50"
	@echo "make zk-races               Let candidates of the ZooKeeper era race while sessions expire, ELECTORS=20 ROUNDS=500"
	@echo "make zk-outages             Stop ZooKeeper below controllers of its era, STOP_S=30, and kill most of an ensemble"
	@echo "make zk-moves               Move the controller between kraft and Kafka 1.1.1's brokers on ZooKeeper under load, MOVES=20"
	@echo "make transplant             Replace Kafka's controllers by kraft's and back, 2,000 partitions, beside Kafka's rolling restart"
	@echo "make broker-lives           Run brokers of 3.9, 4.1 and 4.3 on kraft controllers: lost disks, unclean shutdowns, an upgrade; LIVES=all"
	@echo "make clients                Let clients and tools of every kind use brokers on kraft's controllers, beside Kafka's own"
	@echo "make operations             Run the operators' commands on quorums and directories of every kind"
	@echo "make kafka-tests            Run Kafka's own integration tests on a kraft controller, BACKEND=kraft CLASSES='A B'"
	@echo "make client-tests           Run kafka-python's own integration tests at a kraft broker, BACKEND=kraft FILES='a b'"
	@echo "make differential           Compare generated requests with Kafka's controller classes, CASES=20000 SEED=1"
	@echo "make differential-coverage  Report the coverage of differential sequences, QUORUMS=300 SEED=1"
	@echo "make otava                  Compare the regression analysis with the otava program, SERIES=1000 (needs Java 17)"
	@echo
	@echo "make simulate               Simulate quorums with faults in virtual time, SEEDS=2000 EVENTS=10000; SEED=n replays one"
	@echo "make simulate-replication   The same with brokers that replicate, producers and consumers, SEEDS=200 EVENTS=3000"
	@echo "make simulate-controllers   The same with real controllers, simulated brokers and clients, SEEDS=100 EVENTS=4000"
	@echo "make processes              Kill, pause, cut off, flood and upgrade the processes of a real quorum and its brokers, CYCLES=30 NODES=3"
	@echo "make upgrade                Upgrade and downgrade a running quorum between two versions of kraft, FROM=c588195 ROUNDS=2"
	@echo "make disk-proof             Crash a node's disk between any two calls and flip bits in its files, FLIPS=10000; kill writers of a store of results and of its verdicts"
	@echo "make mutants                Check that the simulation detects planted faults of the state machine"
	@echo "make core-mutants           Check that the tests detect planted faults of the compiled core; takes minutes"
	@echo "make sanitize               Run the core's tests under gcc's address and undefined-behaviour sanitizers"
	@echo "make sanitize-threads       Run the tests of the data loop under gcc's thread sanitizer"
	@echo "make fuzz                   Fuzz the parsers under sanitizers, SECONDS=60 (needs clang)"
	@echo "make soak                   Run simulation and processes at a hundred times their size; takes hours"
	@echo
	@echo "make bench                  Measure kraft and its peers and print the speed table; SUITE=codec runs one suite, HUGE=1 adds ten million partitions"
	@echo "make bench-peers            Measure only the benchmarks that have a peer"
	@echo "make bench-quick            Run every benchmark at a fraction of its size; the figures mean nothing"
	@echo "make bench-instructions     Count instructions with valgrind: independent of the machine's load"
	@echo "make bench-compare          Compare instruction counts with the baseline in the repository"
	@echo "make baseline               Replace the baseline of instruction counts"
	@echo "make history                Run the benchmarks at past commits, COMMITS='a b' RUNS=3"
	@echo "make performance-page       Write docs/performance.md and the README's table from the benchmark history"
	@echo "make sensitivity            Measure the regression analysis on known histories; writes docs/regressions.md"
	@echo
	@echo "make package                Build source distribution and wheel, and test the wheel in an empty environment"
	@echo "make release-check          The same, then check version, changelog, metadata and a clean tree"
	@echo "make clean                  Remove the environment and everything built"

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q --upgrade "setuptools>=77" "cython>=3.1" "numpy>=2.0"
	KRAFT_MODULES=none $(BIN)/python -m pip install -q --no-build-isolation -e ".[dev]"
	touch $@

$(STAMP): $(VENV)/.installed $(CORE_SOURCES)
	KRAFT_MARCH=$(or $(KRAFT_MARCH),native) $(BIN)/python setup.py -q build_ext --inplace -j 2 $(if $(OTHER_KIND),--force)
	rm -f $(VENV)/.built-*
	touch $@

build: $(STAMP)

demo: build
	$(BIN)/kraft lab million

# One process more than cores, as tests with real nodes wait; WORKERS=0 runs in this process, for a
# debugger.
test: WORKERS ?= $(shell echo $$((1 + $$(getconf _NPROCESSORS_ONLN))))
test: build
	$(BIN)/python -m pytest tests -m "not interop and not spark and not nodes" -n $(WORKERS)

# One process has the session of tests/unit/spark, the other the cluster: a master, two workers and
# their executors.
spark: build
	$(BIN)/python -m pytest tests/unit/spark tests/e2e -m spark -n 2

BENCH_RUN := full
bench: build
	@mkdir -p benchmarks/results
	$(BIN)/python -m pytest $(if $(SUITE),benchmarks/bench_$(SUITE)*.py,benchmarks) --benchmark-quiet \
	  $(if $(filter quick,$(BENCH_RUN)),--quick) $(if $(filter peers,$(BENCH_RUN)),-m peer) \
	  $(if $(HUGE),--huge) \
	  --benchmark-json=benchmarks/results/$(BENCH_RUN).json; status=$$?; \
	$(BIN)/python -m benchmarks.report benchmarks/results/$(BENCH_RUN).json; exit $$status

# Every benchmark at a fraction of its size: a check that all run, without meaningful figures.
bench-quick: BENCH_RUN := quick
bench-quick: bench

# Only benchmarks with a peer: Kafka's classes and quorums, aiokafka.
bench-peers: BENCH_RUN := peers
bench-peers: bench

# Instructions instead of time: independent of the machine's load. Needs valgrind.
COUNTED := benchmarks/results/instructions.json
BASELINE := benchmarks/baseline/instructions.json
bench-instructions: build
	@mkdir -p benchmarks/results
	$(BIN)/python -m pytest -p benchmarks.counted.plugin benchmarks/counted/suite.py -q --benchmark-quiet \
	  --benchmark-json=$(COUNTED)

# Fails if a work needs more instructions than in the baseline, beyond the differences of toolchains.
bench-compare: bench-instructions
	threshold=$$($(BIN)/python -m benchmarks.counted.check $(BASELINE) $(COUNTED)) && \
	  $(BIN)/kraft regress compare $(BASELINE) $(COUNTED) --statistic instructions --threshold $$threshold

# After an intended change of instruction counts; the commit message gives the reason.
baseline: bench-instructions
	cp $(COUNTED) $(BASELINE)

# Runs the suites of past commits, each on its own code: COMMITS="v1 v2~3", RUNS=3 of each.
history: RUNS ?= 3
history: WORK ?= $(or $(TMPDIR),/tmp)/kraft-history
history: build
	$(BIN)/python -m benchmarks.history_run --work $(WORK) --runs $(RUNS) $(COMMITS)

# Writes docs/performance.md and the README's table from benchmarks/history; FULL=RUN.json is added first.
performance-page: build
	$(BIN)/python -m benchmarks.performance_page $(if $(FULL),--keep $(FULL))

# --jobs=2 runs both parts at once.
interop: interop-kafka interop-zookeeper

# WORKERS=2 runs two files at once.
interop-kafka: WORKERS ?= 0
interop-kafka: build
	$(BIN)/python -m pytest tests/interop tests/differential -m "interop and not zookeeper" -n $(WORKERS) --dist loadfile

# Three at a time: these tests wait for the timeouts of sessions.
interop-zookeeper: build
	$(BIN)/python -m pytest tests/interop -m zookeeper -n 3 --dist worksteal

# Quorums with controllers of every release from 3.7 to 4.4; fetches their jars; takes five minutes.
interop-matrix: build
	INTEROP_RELEASES=all $(BIN)/python -m pytest tests/interop/test_quorum_releases.py -m interop

# Leadership moves between Kafka's controllers and kraft's, with brokers and a live load: first the
# control, a quorum of Kafka's controllers alone, then the mixed quorums; takes 20 minutes.
leadership-moves: MOVES ?= 30
leadership-moves: RELEASES ?= 3.7.2 4.1.1 4.3.1
leadership-moves: export LEADERSHIP_RELEASES = $(RELEASES)
leadership-moves: build
	LEADERSHIP_CONTROL=1 LEADERSHIP_MOVES=6 $(BIN)/python -m pytest tests/interop/test_leadership_moves.py -m interop -s
	LEADERSHIP_MOVES=$(MOVES) $(BIN)/python -m pytest tests/interop/test_leadership_moves.py -m interop -s

# Faults of brokers and controllers under a verified load, drawn from SEED; takes 15 minutes.
broker-faults: ROUNDS ?= 50
broker-faults: build
	BROKER_FAULTS=$(ROUNDS) $(if $(SEED),SEED=$(SEED)) $(BIN)/python -m pytest tests/interop/test_broker_faults.py -m interop -s

# Both eras; takes a quarter of an hour. CI runs 50 rounds.
zk-races: ELECTORS ?= 20
zk-races: ROUNDS ?= 500
zk-races: build
	ZK_ELECTORS=$(ELECTORS) ZK_ROUNDS=$(ROUNDS) $(if $(SEED),SEED=$(SEED)) \
	  $(BIN)/python -m pytest tests/interop/test_zookeeper_races.py -m interop -s

# Both eras; CI stops ZooKeeper for 6 s.
zk-outages: STOP_S ?= 30
zk-outages: build
	ZK_STOP_S=$(STOP_S) $(BIN)/python -m pytest tests/interop/test_zookeeper_outages.py -m interop -s

zk-moves: MOVES ?= 20
zk-moves: build
	ZK_MOVES=$(MOVES) $(BIN)/python -m pytest tests/interop/test_zookeeper_brokers.py -k moves -m interop -s

# Brokers and controllers of 3.9, 4.1 and 4.3, plain and secured: CLUSTERS=all.
transplant: CLUSTERS ?= 4.3.1-static-plaintext 4.3.1-dynamic-plaintext
transplant: build
	TRANSPLANT_PARTITIONS=2000 TRANSPLANT="$(CLUSTERS)" $(BIN)/python -m pytest tests/interop/test_transplant.py -m interop -s

# Brokers of Kafka 3.9, 4.1 and 4.3 and a mixture of them, with static and dynamic voters, plaintext
# and secured, and an upgrade from 3.9 to 4.3; takes half an hour. LIVES="4.3.1-static-secured" runs some.
broker-lives: LIVES ?= all
broker-lives: build
	BROKER_LIVES="$(LIVES)" $(BIN)/python -m pytest tests/interop/test_broker_lives.py tests/interop/test_broker_upgrade.py -m interop -s

# Clients and tools of every kind at Kafka's brokers: first with Kafka's own controllers, then with
# kraft's; takes 15 minutes.
clients: export CLIENTS = all
clients: build
	CLIENTS_CONTROL=1 $(BIN)/python -m pytest tests/interop/test_clients.py tests/interop/test_admin_effects.py -m interop
	$(BIN)/python -m pytest tests/interop/test_clients.py tests/interop/test_admin_effects.py -m interop

# The operators' commands on quorums and directories of every kind, 5,000 operations by three
# clients, 200 disasters; takes ten minutes.
operations: build
	RESCUE_DISASTERS=200 $(BIN)/python -m pytest tests/unit/server/rescue/test_disasters.py
	OPERATIONS=all GENERATED_OPERATIONS=5000 $(BIN)/python -m pytest $(addprefix tests/interop/test_,$(addsuffix .py, \
	  admin_commands follow generated_operations preflight rescue restore restore_static shell)) -m interop

# Kafka's published test classes; the backend kafka is the control. RECORD=1 keeps the results and
# writes docs/kafka-tests.md; METHODS=REGEX runs and records only some tests; LOGS=DIR keeps what the
# processes print. All classes take two hours.
kafka-tests: BACKEND ?= kraft
kafka-tests: build
	$(BIN)/python -m tests.kafka_suites.run --backend $(BACKEND) $(if $(CLASSES),--classes $(CLASSES)) \
	  $(if $(METHODS),--methods '$(METHODS)') $(if $(RECORD),--record) $(if $(LOGS),--directory $(LOGS))

# kafka-python's tests; the backend kafka is the control. RECORD=1 keeps the results and writes
# docs/client-tests.md; LOGS=DIR keeps what the processes print.
client-tests: BACKEND ?= kraft
client-tests: build
	$(BIN)/python -m tests.client_suites.run --backend $(BACKEND) $(if $(FILES),--files $(FILES)) \
	  $(if $(RECORD),--record) $(if $(LOGS),--directory $(LOGS))

# Cases of the pure functions; per hundred also one sequence of the managers and one of whole controllers.
differential: CASES ?= 20000
differential: SEED ?= 1
differential: build
	$(BIN)/python -m tests.differential.run --cases $(CASES) --seed $(SEED)

# Lines of the controller and its images that the sequences of whole controllers execute, by module.
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
	$(BIN)/python -m benchmarks.sensitivity_page --series $(SERIES)

# In parts, which `make -j` runs at once.
lint: lint-style lint-types

lint-style: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH=$(BIN):$$PATH $(BIN)/cython-lint kraft/_core
	$(BIN)/lint-imports

lint-types: build
	$(BIN)/mypy
	$(BIN)/stubtest --concise --mypy-config-file pyproject.toml --ignore-missing-stub \
	  --ignore-disjoint-bases --allowlist tests/stubtest_allowlist.txt kraft._core

# mermaid.js, which draws the site's diagrams: the site must not load it from another server.
MERMAID := build/mermaid-11.12.0.tgz
$(MERMAID):
	mkdir -p build
	npm pack --silent --pack-destination build mermaid@11.12.0

# A warning fails it: a broken link, an unknown anchor, a page outside the navigation.
docs: $(VENV)/.installed $(MERMAID)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

fuzz: SECONDS ?= 60
fuzz:
	$(PYTHON) tests/fuzz/run.py --seconds $(SECONDS) $(if $(TARGETS),--targets $(TARGETS))

simulate: SEEDS ?= 2000
simulate: EVENTS ?= 10000
simulate: FIRST ?= 0
simulate: build
	$(BIN)/python -m tests.simulation.run --events $(EVENTS) \
	  $(if $(SEED),--seed $(SEED),--first $(FIRST) --seeds $(SEEDS)) $(if $(JSON),--json)

simulate-controllers: SEEDS ?= 200
simulate-controllers: EVENTS ?= 4000
simulate-controllers: FIRST ?= 0
simulate-controllers: build
	$(BIN)/python -m tests.simulation.run --controllers --events $(EVENTS) \
	  $(if $(SEED),--seed $(SEED),--first $(FIRST) --seeds $(SEEDS)) $(if $(JSON),--json)

simulate-replication: SEEDS ?= 200
simulate-replication: EVENTS ?= 3000
simulate-replication: FIRST ?= 0
simulate-replication: build
	$(BIN)/python -m tests.simulation.run --replication --events $(EVENTS) \
	  $(if $(SEED),--seed $(SEED),--first $(FIRST) --seeds $(SEEDS)) $(if $(JSON),--json)

mutants: build
	$(BIN)/python -m tests.simulation.mutants

core-mutants: build
	$(BIN)/python -m tests.compiled.mutants $(if $(ONLY),--only $(ONLY))

sanitize: build
	$(BIN)/python -m tests.compiled.sanitize

# The sanitizer needs the usual addresses of a process: no random ones.
sanitize-threads: build
	setarch -R $(BIN)/python -m tests.compiled.sanitize_threads

disk-proof: SEED ?= 1
disk-proof: OPERATIONS ?= 500
disk-proof: FLIPS ?= 10000
disk-proof: build
	$(BIN)/python -m tests.simulation.disk_proof --seed $(SEED) --operations $(OPERATIONS) --flips $(FLIPS)
	$(BIN)/python -m tests.durability.run --first $(SEED) --seeds 20 --operations $(OPERATIONS)
	$(BIN)/python -m tests.durability.results_store_proof --rounds 300 --seed $(SEED)
	$(BIN)/python -m tests.durability.object_store_proof --rounds 200 --seed $(SEED)
	$(BIN)/python -m tests.durability.verdict_ledger_proof --rounds 300 --seed $(SEED)

# The same faults in every run: a rare one must not fail the check of an unrelated change.
processes: SEED ?= 1
processes: CYCLES ?= 30
processes: NODES ?= 3
processes: build
	$(BIN)/python -m pytest tests/e2e -m nodes -n 3
	$(BIN)/python -m tests.e2e.quorum_chaos --cycles $(CYCLES) --nodes $(NODES) \
	  $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.e2e.quorum_chaos --cycles 4 --nodes 1 $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.e2e.quorum_chaos --cycles $(CYCLES) --nodes $(NODES) --controllers \
	  $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.e2e.admin_chaos --cycles $(CYCLES) --nodes $(NODES) \
	  $(if $(SEED),--seed $(SEED))

# Builds the commit FROM in an environment of its own, below WORK, and restarts a quorum under load
# node by node in this version and back; the first build takes four minutes, a round two.
upgrade: FROM ?= c588195
upgrade: ROUNDS ?= 2
upgrade: WORK ?= $(or $(TMPDIR),/tmp)/kraft-versions
upgrade: build
	$(BIN)/python -m tests.e2e.rolling_upgrade --from $(FROM) --rounds $(ROUNDS) --work $(WORK) \
	  $(if $(SEED),--seed $(SEED))

soak-processes:
	BROKER_CHAOS=300 POWER_LOSSES=200 $(MAKE) processes CYCLES=1000 SEED=$$(date +%s)

# Seeds beyond those of CI.
soak-simulate: build
	$(BIN)/python -m tests.simulation.run --first 1000000 --seeds 200000
	$(BIN)/python -m tests.simulation.run --controllers --first 1000000 --seeds 20000
	$(BIN)/python -m tests.simulation.run --replication --first 1000000 --seeds 20000

soak: soak-simulate soak-processes

# A portable wheel, as for the package index; FRESH=1 also installs a clone by `pip install .`.
package: build
	$(BIN)/python -m tests.package.run $(if $(FRESH),--fresh)

release-check: package
	$(BIN)/python -m tests.package.release

clean:
	rm -rf build dist $(VENV)
	find kraft/_core \( -name "*.so" -o -name "*.c" \) -delete
