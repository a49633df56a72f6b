# The two commands of the README, and what else is done now and then. All share one profile, so that hardly anything is compiled
# twice: the tests alone add a switch of tokio that stops its clock.

.PHONY: demo test build check install simulate readers bench micro instructions

demo: ## a service, a backfill, a night of changes, the nightly sync, and SQL over the result
	scripts/cargo.sh run --quiet -- demo

test: ## every test
	scripts/cargo.sh test

MINUTES ?= 60
simulate: ## plays seeds against the whole program: SEEDS=2000 the same ones each time, else new ones for so many MINUTES
ifdef SEEDS
	STUDYSYNC_SEEDS=$(SEEDS) STUDYSYNC_SEEDS_FROM=$${STUDYSYNC_SEEDS_FROM:-1} scripts/cargo.sh test -- simulation::p1_ --nocapture
else
	STUDYSYNC_SIMULATE_MINUTES=$(MINUTES) STUDYSYNC_SEEDS_FROM=$${STUDYSYNC_SEEDS_FROM:-$$(date +%s)} scripts/cargo.sh test -- simulation::p1_ --nocapture
endif

readers: build ## reads both warehouses with DuckDB of two major versions, pandas, pyarrow, Polars, DataFusion and Spark
	scripts/readers/run.sh

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

check: ## what CI checks before the tests
	cargo fmt --check
	scripts/cargo.sh clippy --all-targets --bench floor --bench hot_paths -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" scripts/cargo.sh doc --no-deps --document-private-items

PREFIX ?= $(if $(CARGO_HOME),$(CARGO_HOME),$(HOME)/.cargo)
install: build ## the program into PREFIX/bin, and DuckDB's library into PREFIX/lib/studysync; PREFIX is ~/.cargo if not set
	scripts/install.sh "$(PREFIX)"
