# Entresol. `make demo` and `make test` each do all set-up and work alone on a Debian machine that has Rust.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# rustup puts cargo here; a shell that has not been started anew may not have it on its path yet.
export PATH := $(HOME)/.cargo/bin:$(PATH)

CARGO ?= cargo
# Further arguments, as in: make demo DEMO_ARGS='--data DIR --meters 20'
DEMO_ARGS ?=
# What `make bench` measures, and further arguments; `lab list` says what there is. At full sizes every figure is judged: a
# miss that crates/lab/known-misses.toml does not list fails the run, and its last line names it.
BENCH ?= basics journal-commit allocation flush-cost crash-states race-trees recovery page-replacement wire-rate \
	scan-rate load-rate stream-rate commit-latency subscribe-latency mview-cost nexmark resume \
	mvcc-versions independence protocol-overhead cc-short cc-medium cc-long abort-rate hotspot bandwidth e2 e6 e7 \
	ptable-key-range ptable-attribute-range ptable-block-size ptable-point cost-model representations \
	elf-policies elf-exact elf-range elf-partial elf-parallel encodings \
	ssb hpcache-ssb ssb-pmem ssb-steps
BENCH_ARGS ?=
RACE_ARGS ?=
DAX_ARGS ?=

.PHONY: help
help: ## Print this list.
	@grep -hE '^[a-z -]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.PHONY: demo
demo: setup ## Set up, build and run the smart metering demo.
	$(CARGO) run --profile demo -p entresol-cli --bin entresol -- demo smart-metering $(DEMO_ARGS)

.PHONY: test
test: setup ## Set up, build and run all tests.
	ENTRESOL_CHECK_ON_CLOSE=1 $(CARGO) test --workspace --no-fail-fast
	@# The workspace with the name of a target is what the line above has built; a package alone has other features.
	ENTRESOL_SHORT_MEMORY=1 $(CARGO) test -p entresol-memory --lib
	ENTRESOL_SHORT_MEMORY=1 $(CARGO) test --workspace --test memory
	ENTRESOL_SHORT_MEMORY=1 $(CARGO) test --workspace --test transactions -- bank:: stress::
	@# Where a run must end, MUTANTS_BEGIN_BY is the time in seconds since 1970 behind which they are left out.
	@if [ -n "$$MUTANTS_BEGIN_BY" ] && [ "$$(date +%s)" -gt "$$MUTANTS_BEGIN_BY" ]; then \
		echo "make test-mutants is skipped: it begins too late to end in time; run it by itself"; \
	else \
		$(MAKE) --no-print-directory test-mutants; \
	fi

.PHONY: test-mutants
test-mutants: setup ## Leave out each flush and fence of memory, structures and transactions in turn; a part of make test.
	$(CARGO) test -p entresol-transactions --features mutants --test mutants --test protocol_mutants
	$(CARGO) test -p entresol-memory -p entresol-structures --features mutants --lib --test crash every_mutant

# The same tests of crashes with a hundred times the histories: about 100 M states; and 25,000 random topologies of each of five
# kinds. For the night.
.PHONY: soak
soak: setup ## Run the crash tests at large size and churn for eight hours; ENTRESOL_SOAK=0.1 for a tenth.
	ENTRESOL_SOAK=$${ENTRESOL_SOAK:-1} $(CARGO) test -p entresol-memory -p entresol-structures \
		-p entresol-transactions -p entresol-tables --tests -- crash --nocapture --test-threads 1
	ENTRESOL_SOAK=$${ENTRESOL_SOAK:-1} $(CARGO) test -p entresol-memory --lib no_power_failure -- --nocapture
	ENTRESOL_TOPOLOGIES=$$(awk -v part=$${ENTRESOL_SOAK:-1} 'BEGIN { print int(25000 * part) }') \
		$(CARGO) test -p entresol --test topologies -- --nocapture random chains_of_steps
	$(CARGO) run --profile demo -p entresol-lab --bin lab -- run churn \
		--seconds $$(awk -v part=$${ENTRESOL_SOAK:-1} 'BEGIN { print int(28800 * part) }')

.PHONY: test-dax
test-dax: setup ## Fail the power on an emulated NVDIMM in QEMU; skipped where QEMU can't be had.
	CARGO=$(CARGO) tests/dax/run $(DAX_ARGS)

.PHONY: lint
lint: setup ## Check format and features of the release build, and run clippy; every warning is an error.
	@$(CARGO) fmt --version >/dev/null 2>&1 && $(CARGO) clippy --version >/dev/null 2>&1 \
		|| rustup component add rustfmt clippy
	$(CARGO) fmt --all --check
	CARGO=$(CARGO) tools/release-features
	$(CARGO) check -p entresol-dax-test # Without `testkit`: a flush or fence without a name is an error.
	$(CARGO) clippy --workspace --all-targets -- -D warnings

.PHONY: shape
shape: ## Count files, lines, switches, cycles and doc comments of each crate, tests left out.
	@tools/shape

.PHONY: bench
bench: setup ## Measure the floors at full sizes; fails where a figure misses what is asked of it.
	$(CARGO) run --profile demo -p entresol-lab --bin lab -- run $(BENCH) $(BENCH_ARGS)

# `-march=native` is how RocksDB's own makefile builds it. Its binding is generated from headers, by libclang.
.PHONY: race race-tsp
race race-tsp: setup ## Race our structures, or two states under transactions, against RocksDB, LMDB, redb, fjall, SQLite.
	@libclang() { ls /usr/lib/llvm-*/lib/ /usr/lib/*/ 2>/dev/null | grep -qE '^libclang(-[0-9.]+)?\.so'; }; \
	if [ -z "$${LIBCLANG_PATH:-}" ] && ! libclang; then \
		echo "installing libclang-dev"; \
		as_root=$$( [ "$$(id -u)" = 0 ] || echo sudo ); \
		$$as_root apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive $$as_root apt-get install -y -qq --no-install-recommends libclang-dev; \
	fi
	CXXFLAGS="$${CXXFLAGS:--march=native}" $(CARGO) run --profile demo -p entresol-lab --no-default-features --features peers \
		--bin lab -- run $(if $(filter race-tsp,$@),race-tsp,race-kv) $(RACE_ARGS)

# Its checker is a program of its own, kept with the other things that are made once.
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/entresol/tools
HISTORIES_ARGS ?=
.PHONY: histories checker
histories: checker ## Kill random transactions again and again; an independent checker judges what they saw.
	$(CARGO) run --profile demo -p entresol-lab --no-default-features --bin lab -- run histories $(HISTORIES_ARGS)

checker: setup
	@command -v adya >/dev/null || [ -x $(TOOLS)/bin/adya ] || env -u CARGO_TARGET_DIR \
		$(CARGO) install adya --version 0.1.0 --locked --no-default-features --features postgres --root $(TOOLS)

# libFuzzer without sanitizers, so the stable compiler will do. What is instrumented lies apart from all other builds;
# what inputs were found stays in fuzz/corpus for the next run.
FUZZ ?= wire statements values binary_copy copy_lines conversation
FUZZ_SECONDS ?= 60
FUZZ_ARGS ?=
FUZZ_TARGET = $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR)/fuzz,$(CURDIR)/fuzz/target)
.PHONY: fuzz
fuzz: setup ## Fuzz the parsers of untrusted input; FUZZ='wire values' FUZZ_SECONDS=600 for more of less.
	@command -v c++ >/dev/null || { \
		echo "installing g++"; \
		as_root=$$( [ "$$(id -u)" = 0 ] || echo sudo ); \
		$$as_root apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive $$as_root apt-get install -y -qq --no-install-recommends g++; \
	}
	cp Cargo.lock fuzz/Cargo.lock
	CARGO_TARGET_DIR=$(FUZZ_TARGET) CARGO_INCREMENTAL=0 RUSTC_WRAPPER=$(CURDIR)/fuzz/rustc \
		$(CARGO) build --manifest-path fuzz/Cargo.toml
	@for target in $(FUZZ); do \
		echo "== $$target =="; \
		mkdir -p fuzz/corpus/$$target fuzz/artifacts/$$target; \
		$(FUZZ_TARGET)/debug/$$target fuzz/corpus/$$target -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=2048 \
			-timeout=60 -dict=fuzz/sql.dict -artifact_prefix=fuzz/artifacts/$$target/ -print_final_stats=1 $(FUZZ_ARGS); \
	done

# Pinned in tests/drivers; outside of the clone, for the next run. psql comes with postgresql-client.
DRIVERS ?= $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/entresol/drivers
JDBC ?= org.postgresql:postgresql:42.7.4

.PHONY: drivers
drivers: ## Install the PostgreSQL drivers that tests use; those tests are skipped without them.
	@missing=(); \
	python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv); \
	command -v javac >/dev/null || missing+=(default-jdk-headless); \
	command -v mvn >/dev/null || missing+=(maven); \
	command -v psql >/dev/null || missing+=(postgresql-client); \
	if [ $${#missing[@]} -gt 0 ]; then \
		echo "installing $${missing[*]}"; \
		as_root=$$( [ "$$(id -u)" = 0 ] || echo sudo ); \
		$$as_root apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive $$as_root apt-get install -y -qq --no-install-recommends "$${missing[@]}"; \
	fi
	@wanted=$$(cat tests/drivers/requirements.txt; echo $(JDBC)); \
	if [ "$$(cat "$(DRIVERS)/installed" 2>/dev/null)" != "$$wanted" ]; then \
		rm -rf "$(DRIVERS)"; mkdir -p "$(DRIVERS)/jars"; \
		python3 -m venv "$(DRIVERS)/venv"; \
		"$(DRIVERS)/venv/bin/pip" install -q --disable-pip-version-check -r tests/drivers/requirements.txt; \
		mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy \
			-Dartifact=$(JDBC) -DoutputDirectory="$(DRIVERS)/jars"; \
		echo "$$wanted" >"$(DRIVERS)/installed"; \
	fi

# What runs beside ours is pinned in RACE_NEEDS, and left out of a race where it can't be installed; files and databases stay in
# RACE for the next run.
SF ?= 1
RACE ?= $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/entresol/race
RACE_SSB_ARGS ?=
RACE_TPCH_ARGS ?=
RACE_SELECTION_ARGS ?=
RACE_STREAMS_ARGS ?=
RACE_NEEDS = tests/race/requirements.txt
RACE_VENV = $(RACE)/venv
.PHONY: race-ssb race-ssb-sorted race-tpch race-selection race-streams
race-ssb race-ssb-sorted: race-setup ## Run the Star Schema Benchmark beside DuckDB, DataFusion and ClickHouse, or all sorted by date; SF=10.
	"$(RACE_VENV)/bin/python" tests/race-ssb/race.py --dir "$(RACE)/ssb-$(SF)" --sf $(SF) $(if $(filter race-ssb-sorted,$@),--sorted) \
		--entresol "$(or $(CARGO_TARGET_DIR),target)/demo/entresol" $(RACE_SSB_ARGS)

race-tpch: race-setup ## Run the 22 queries of TPC-H on columns and rows beside DuckDB and DataFusion; SF=0.1 for less.
	"$(RACE_VENV)/bin/python" tests/race-tpch/race.py --dir "$(RACE)/tpch-$(SF)" --sf $(SF) \
		--entresol "$(or $(CARGO_TARGET_DIR),target)/demo/entresol" $(RACE_TPCH_ARGS)

race-selection: race-setup ## Select by one to six attributes beside DuckDB, a scan of plain columns and RocksDB; SF=0.1 for less.
	"$(RACE_VENV)/bin/python" tests/race-selection/race.py --dir "$(RACE)/selection-$(SF)" --sf $(SF) \
		--entresol "$(or $(CARGO_TARGET_DIR),target)/demo/entresol" $(RACE_SELECTION_ARGS)

.PHONY: race-nexmark
race-streams race-nexmark: RACE_VENV = $(RACE)/venv-streams
race-streams race-nexmark: race-streams-setup race-dbsp ## Run questions of NEXMark beside bytewax, pathway and dbsp; RACE_STREAMS_ARGS='--queries q1,q7'.
	"$(RACE_VENV)/bin/python" tests/race-streams/race.py --dir "$(RACE)/streams" --dbsp "$(RACE)/dbsp/release/with-dbsp" \
		--entresol "$(or $(CARGO_TARGET_DIR),target)/demo/entresol" $(RACE_STREAMS_ARGS)

# A program apart from the workspace, with a lock file of its own. Without it the race goes on beside the others.
.PHONY: race-dbsp
race-dbsp: setup
	@CARGO_TARGET_DIR="$(RACE)/dbsp" $(CARGO) build --release --locked --manifest-path tests/race-streams/with_dbsp/Cargo.toml \
		|| { rm -f "$(RACE)/dbsp/release/with-dbsp"; echo "dbsp could not be built" >&2; }

race-streams-setup: RACE_NEEDS = tests/race-streams/requirements.txt
race-streams-setup: RACE_VENV = $(RACE)/venv-streams
.PHONY: race-setup race-streams-setup
race-setup race-streams-setup: setup
	@python3 -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "installing python3-venv"; \
		as_root=$$( [ "$$(id -u)" = 0 ] || echo sudo ); \
		$$as_root apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive $$as_root apt-get install -y -qq --no-install-recommends python3-venv; \
	}
	@wanted=$$(cat $(RACE_NEEDS)); \
	if [ "$$(cat "$(RACE_VENV)/installed" 2>/dev/null)" != "$$wanted" ]; then \
		rm -rf "$(RACE_VENV)"; mkdir -p "$(RACE)"; \
		python3 -m venv "$(RACE_VENV)"; \
		if "$(RACE_VENV)/bin/pip" install -q --disable-pip-version-check -r $(RACE_NEEDS); then \
			echo "$$wanted" >"$(RACE_VENV)/installed"; \
		else \
			grep -v '^#' $(RACE_NEEDS) | while read -r one; do \
				"$(RACE_VENV)/bin/pip" install -q --disable-pip-version-check "$$one" || echo "$$one could not be installed" >&2; \
			done; \
		fi; \
	fi
	@"$(RACE_VENV)/bin/python" -B tests/race/test_asked.py
	$(CARGO) build --profile demo -p entresol-cli --bin entresol

# The seed is printed; RANDOM_SEED=SEED:INDEX runs one query again.
RANDOM_QUERIES ?= 20000
RANDOM_SEED ?=
.PHONY: random-queries
random-queries: setup drivers ## Compare random queries with DuckDB; RANDOM_QUERIES=100000 for more of them.
	ENTRESOL_RANDOM_QUERIES=$(RANDOM_QUERIES) ENTRESOL_RANDOM_SEED=$(RANDOM_SEED) \
		$(CARGO) test -p entresol-query --test query random_queries -- --nocapture

# A C compiler links Rust programs and builds one dependency. Nothing is installed where it is there.
.PHONY: setup
setup:
	@if ! command -v cc >/dev/null; then \
		echo "installing build-essential"; \
		as_root=$$( [ "$$(id -u)" = 0 ] || echo sudo ); \
		$$as_root apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive $$as_root apt-get install -y -qq --no-install-recommends build-essential; \
	fi
	@command -v $(CARGO) >/dev/null || { echo "cargo was not found: install Rust from https://rustup.rs" >&2; exit 1; }
