# The two commands of the README, and what else is done now and then. All share one profile, so nothing is compiled twice.

.PHONY: demo test build check install

demo: ## a service, a backfill, a night of changes, the nightly sync, and SQL over the result
	scripts/cargo.sh run --quiet -- demo

test: ## every test
	scripts/cargo.sh test

build: ## the program, in target/release/studysync
	scripts/cargo.sh build

check: ## what CI checks before the tests
	cargo fmt --check
	scripts/cargo.sh clippy --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" scripts/cargo.sh doc --no-deps --document-private-items

install: ## the program into ~/.cargo/bin, with DuckDB compiled in so that it needs nothing beside it
	cargo install --path . --locked
