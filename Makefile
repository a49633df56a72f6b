# `make` alone lists the targets. Targets that only test or demonstrate the program use the profile `quick`, which
# compiles in a third of the time; `build`, `install`, `bench` and `instructions` use `release`.

.DEFAULT_GOAL := help
.PHONY: help browser demo test test-one test-otlp test-slow build build-quick check install dist dist-test simulate
.PHONY: size bucket lakes readers schedulers book bench micro instructions

QUICK = PROFILE=quick scripts/cargo.sh
# Many tests wait, for a slow service or for a `Retry-After`, so there are more threads than processors.
THREADS = $$(($$(getconf _NPROCESSORS_ONLN) * 2))

help: ## lists the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s%s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: ## a service, a backfill, a sync, SQL; STORE=s3 or iceberg: a lake
	$(if $(STORE),PROFILE=quick scripts/demo.sh $(STORE),$(QUICK) run -- demo)

test: ## every test but the slow ones
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$(THREADS)} $(QUICK) test --workspace

# Incremental: 15 seconds after an edit instead of 60, on two cores. The first such build compiles the crate again.
test-one: ## the unit tests whose name contains T: make test-one T=plan::
	@test -n "$(T)" || { echo "usage: make test-one T=plan::   or, over HTTP, make test-one T=tour IN=tests" >&2; exit 2; }
	CARGO_INCREMENTAL=1 $(QUICK) test $(if $(IN),--test $(IN),--lib) -- $(T)

test-otlp: ## the feature otlp: traces and metrics for OpenTelemetry
	$(QUICK) test --features otlp --test tests -- watching::otlp

test-slow: ## slow tests, 2,000 seeds, instruction counts: before a release
	$(QUICK) test --workspace -- --ignored slow
	$(MAKE) simulate SEEDS=2000
	$(MAKE) instructions
	$(MAKE) test-otlp

size: ## tokens, lines and files of the code, by folder
	$(QUICK) test --test tests -- architecture::size --nocapture

MINUTES ?= 60
simulate: ## the simulator: SEEDS=2000 plays these, MINUTES=60 new ones
ifdef SEEDS
	STUDYSYNC_SEEDS=$(SEEDS) STUDYSYNC_SEEDS_FROM=$${STUDYSYNC_SEEDS_FROM:-1} $(QUICK) test --test tests -- simulation::p1_ --nocapture
else
	STUDYSYNC_SIMULATE_MINUTES=$(MINUTES) STUDYSYNC_SEEDS_FROM=$${STUDYSYNC_SEEDS_FROM:-$$(date +%s)} $(QUICK) test --test tests -- simulation::p1_ --nocapture
endif

# DuckDB of two major versions, pandas, pyarrow, Polars, DataFusion, Spark, a notebook and dbt.
readers: build-quick ## reads both warehouses with other programs: pandas, Spark, dbt
	scripts/readers/run.sh $${CARGO_TARGET_DIR:-target}/quick/studysync

book: ## the documentation as a site, in target/book
	mdbook=$$(scripts/mdbook.sh) && "$$mdbook" build docs

# Cron, systemd, Kubernetes, Airflow and Dagster.
schedulers: build-quick ## runs the examples for schedulers, with each exit code
	scripts/schedulers/run.sh $${CARGO_TARGET_DIR:-target}/quick/studysync

bucket: ## a Parquet warehouse against a real S3 server
	PROFILE=quick scripts/bucket.sh

lakes: ## the store of attached catalogs: DuckLake, PostgreSQL, Iceberg
	PROFILE=quick scripts/lakes.sh

browser: build-quick ## the status page in headless Chromium; see target/status-page
	scripts/browser/run.sh $${CARGO_TARGET_DIR:-target}/quick/studysync

# SECTIONS: measures only some rows of the table. N rounds, ROWS responses; BIG_ROWS=10000000 enables the rows that need
# it.
bench: build ## measures the table of docs/benchmarks.md, in about an hour
	scripts/cargo.sh build --bench floor
	scripts/bench/run.sh $(SECTIONS)

micro: ## measures what one page costs (criterion)
	scripts/cargo.sh test --bench micro -- --bench

instructions: ## instruction counts of hot paths; RECORD=1 keeps them
	scripts/bench/instructions.sh $(if $(RECORD),--record)

build: ## the program, in target/release/studysync
	scripts/cargo.sh build

build-quick:
	$(QUICK) build

check: ## what CI checks before the tests
	cargo fmt --check
	$(QUICK) clippy --workspace --all-targets --bench floor --bench hot_paths -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" $(QUICK) doc --workspace --no-deps --document-private-items

PREFIX ?= $(if $(CARGO_HOME),$(CARGO_HOME),$(HOME)/.cargo)
# The program goes to PREFIX/bin, and DuckDB's library to PREFIX/lib/studysync.
install: build ## installs the program into PREFIX, which is ~/.cargo by default
	scripts/install.sh "$(PREFIX)"

# A tarball, a wheel, a .deb on Debian, an SBOM and checksums. PROGRAM=path packs an existing program.
dist: ## packages in dist/; PROGRAM=path packs a program that is there
	scripts/dist/build.sh $(PROGRAM)

dist-test: ## installs each package of dist/ as a user would, and uses it
	scripts/dist/test.sh
