# The two commands of the README, and what else is done now and then. What only tests or shows the program is built with the profile
# `quick`, which compiles in a third of the time; `build`, `install`, `bench` and `instructions` use `release`.

.PHONY: browser demo test test-otlp test-slow build build-quick check install dist dist-test simulate readers schedulers book bench micro instructions

QUICK = PROFILE=quick scripts/cargo.sh
# Many tests wait: for a service that is slow, or says to come back later.
THREADS = $$(($$(getconf _NPROCESSORS_ONLN) * 2))

demo: ## a service, a backfill, a night of changes, the nightly sync, and SQL over the result
	$(QUICK) run -- demo

test: ## every test but the slow ones
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$(THREADS)} $(QUICK) test --workspace

test-otlp: ## what only a build with the feature otlp has: traces and metrics for an OpenTelemetry collector
	$(QUICK) test --features otlp --test tests -- watching::otlp

test-slow: ## what takes too long for each change: slow tests, 2,000 seeds, the instructions of the hot paths; see docs/testing.md
	$(QUICK) test --workspace -- --ignored slow
	$(MAKE) simulate SEEDS=2000
	$(MAKE) instructions
	$(MAKE) test-otlp

MINUTES ?= 60
simulate: ## plays seeds against the whole program: SEEDS=2000 the same ones each time, else new ones for so many MINUTES
ifdef SEEDS
	STUDYSYNC_SEEDS=$(SEEDS) STUDYSYNC_SEEDS_FROM=$${STUDYSYNC_SEEDS_FROM:-1} $(QUICK) test --test tests -- simulation::p1_ --nocapture
else
	STUDYSYNC_SIMULATE_MINUTES=$(MINUTES) STUDYSYNC_SEEDS_FROM=$${STUDYSYNC_SEEDS_FROM:-$$(date +%s)} $(QUICK) test --test tests -- simulation::p1_ --nocapture
endif

readers: build-quick ## reads both warehouses with DuckDB of two major versions, pandas, pyarrow, Polars, DataFusion, Spark, a notebook and dbt
	scripts/readers/run.sh $${CARGO_TARGET_DIR:-target}/quick/studysync

book: ## the documentation as a site, in target/book
	mdbook=$$(scripts/mdbook.sh) && "$$mdbook" build docs

schedulers: build-quick ## runs the examples for cron, systemd, Kubernetes, Airflow and Dagster, and provokes each exit code
	scripts/schedulers/run.sh $${CARGO_TARGET_DIR:-target}/quick/studysync

browser: build-quick ## looks at the status page of `serve` with headless Chromium; pictures in target/status-page
	scripts/browser/run.sh $${CARGO_TARGET_DIR:-target}/quick/studysync

# SECTIONS: some rows of the table only. N rounds, ROWS responses; BIG_ROWS=10000000 for the rows that ask for it.
bench: build ## measures the table of docs/benchmarks.md, floors beside it; takes about an hour at its full size
	scripts/cargo.sh build --bench floor
	scripts/bench/run.sh $(SECTIONS)

micro: ## what one page costs: criterion
	scripts/cargo.sh test --bench micro -- --bench

instructions: ## counts instructions of the hot paths against the kept numbers; RECORD=1 keeps new ones
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
install: build ## the program into PREFIX/bin, and DuckDB's library into PREFIX/lib/studysync; PREFIX is ~/.cargo if not set
	scripts/install.sh "$(PREFIX)"

dist: ## packages in dist/: a tarball, a wheel, a .deb on Debian, an SBOM and checksums. PROGRAM=path packs a program that is there
	scripts/dist/build.sh $(PROGRAM)

dist-test: ## installs each package of dist/ as a user would, and works with it
	scripts/dist/test.sh
