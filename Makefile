# The tasks of this repository. `make` alone lists the targets.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
WORK := .work
BUILT ?= $(or $(CARGO_TARGET_DIR),target)/release
BINARY := $(BUILT)/longshore
DIST ?= $(or $(CARGO_TARGET_DIR),target)/dist
PROGRAMS := -p longshore -p longshore-nbd -p longshore-lab -p longshore-lab-nbd
PARTS ?= longshore lab cache
# Tests need a `python3` with the modules that setup installs.
export PATH := $(CURDIR)/$(WORK)/venv/bin:$(PATH)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup build dist compilers demo demo-cache test bench bench-postgres bench-buckets bench-sealed soak fuzz deny device-check device-results man completions install install-built uninstall deb rpm image test-packages test-recipes clean

help: ## Lists the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Installs what building and testing need (apt as root or with sudo; pip into .work/venv)
	@./scripts/setup.sh

# Building and installing need cargo and a C compiler, and nothing else.
build: compilers ## Builds target/release/longshore, longshore-lab (studies), and the cache's plugins for nbdkit
	$(CARGO) build --release $(PROGRAMS)

dist: compilers ## Builds the same into target/dist as packages have them: a third smaller, in more time
	$(CARGO) build --profile dist $(PROGRAMS)

compilers:
	@command -v $(firstword $(CARGO)) >/dev/null || { echo "make: cargo is missing: install Rust 1.89 or later with rustup (https://rustup.rs)"; exit 1; }
	@command -v $(firstword $(CC)) >/dev/null || { echo "make: a C compiler is missing: apt-get install gcc libc6-dev"; exit 1; }

demo: setup build ## Backs up, verifies and restores a sample database; report in .work/demo/report.html
	@./scripts/demo.sh $(BINARY) $(WORK)/demo

demo-cache: setup build ## Runs SQLite on a disk with the cache: nbdkit, nbdfuse, loop, ext4 (root); cleans up after itself
	@./scripts/demo-cache.sh $(BINARY) $(WORK)/demo-cache

# The rules of the house come first. They are built as a part of the workspace: alone they would have SQLite with other
# features, and it would be compiled twice.
HOUSE := $(patsubst tests/tests/%.rs,--test %,$(wildcard tests/tests/*.rs))

test: setup ## Formatting, lints and all tests, AT_A_TIME (one more than CPUs) test programs; missing tools are failures here
	$(CARGO) fmt --all --check
	$(CARGO) test -q --workspace $(HOUSE)
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	umask 022 && LONGSHORE_REQUIRE_TOOLS=1 AT_A_TIME=$(AT_A_TIME) python3 scripts/run-tests.py $(CARGO)

bench: setup build ## Measures against the limits of this machine; report in .work/bench
	$(BINARY) lab bench --catalog none --work $(WORK)/bench --html $(WORK)/bench/report.html --markdown $(WORK)/bench/report.md
	@echo "$(WORK)/bench/report.html"

bench-postgres: setup build ## Backups, restores and archiving of a PostgreSQL cluster, next to pgBackRest, WAL-G and pg_basebackup where installed
	python3 scripts/bench-postgres.py --longshore $(BINARY) --work $(WORK)/bench-postgres $(BENCH)

bench-buckets: setup build ## Object stores: backups, WAL, listings and lost packets, next to pgBackRest and WAL-G where installed (as root)
	python3 scripts/bench-postgres.py --longshore $(BINARY) --work $(WORK)/bench-postgres --rows bucket,distant $(BENCH)
	python3 scripts/bench-listing.py --longshore $(BINARY)
	python3 scripts/bench-loss.py --longshore $(BINARY)

bench-sealed: setup build ## What encryption, parity, and restores without two stripes cost; in memory
	python3 scripts/bench-sealed.py --longshore $(BINARY) $(BENCH)

soak: export LONGSHORE_TEST_DIR = /tmp
soak: setup ## ROUNDS (200) of backups under writers, and kills at random moments; PG_ROUNDS (10), PG_SOAK (100), PG_CHAINS (100), PG_CLUSTERS (50) of PostgreSQL, all majors
	LONGSHORE_ROUNDS=$(or $(ROUNDS),200) LONGSHORE_KILLS=$(or $(ROUNDS),200) \
	$(CARGO) test --release -p longshore --test sqlite_live --test kill -- --nocapture
	LONGSHORE_PG_ROUNDS=$(or $(PG_ROUNDS),10) LONGSHORE_PG_SOAK=$(or $(PG_SOAK),100) LONGSHORE_SEED=$$(date +%s) \
	LONGSHORE_PG_LARGE=$(or $(PG_LARGE),5) LONGSHORE_PG_FILES=$(or $(PG_FILES),1000000) \
	LONGSHORE_PG_CHAINS=$(or $(PG_CHAINS),100) LONGSHORE_PG_CLUSTERS=$(or $(PG_CLUSTERS),50) \
	$(CARGO) test --release -p longshore --test postgres_backup -- live large many soak chains clusters --nocapture --test-threads 1
	LONGSHORE_ROUNDS=$(or $(ROUNDS),200) $(CARGO) test --release -p longshore-blockcache --test cached other_seeds -- --nocapture
	LONGSHORE_ROUNDS=$(or $(ROUNDS),200) LONGSHORE_SEED=$$(date +%s) $(CARGO) test --release -p longshore --test cache killed -- --nocapture
	LONGSHORE_ALL_MAJORS=1 $(CARGO) test --release -p longshore --test postgres_backup --test postgres_restore
	LONGSHORE_PG_ROUNDS=$(or $(ROUNDS),200) LONGSHORE_ROUNDS=$(or $(ROUNDS),200) LONGSHORE_SEED=$$(date +%s) $(CARGO) test --release -p longshore --test postgres_restore -- faults killed --nocapture

fuzz: setup ## Mutates media for SECONDS (600), encrypted ones and batches of T-SQL ROUNDS times (100000), damaged ones with parity PARITY_ROUNDS times (10000), from another seed each time
	LONGSHORE_CRYPT_ROUNDS=$(or $(ROUNDS),100000) LONGSHORE_SEED=$$(date +%s) $(CARGO) test --release -p longshore-media --test encrypted random -- --nocapture
	LONGSHORE_PARITY_ROUNDS=$(or $(PARITY_ROUNDS),10000) LONGSHORE_SEED=$$(date +%s) $(CARGO) test --release -p longshore-media --test parity --test parity_encrypted damage
	LONGSHORE_MUTATION_SECONDS=$(or $(SECONDS),600) LONGSHORE_MUTATION_SEED=$$(date +%s) $(CARGO) test --release -p longshore-media --test mutations -- --nocapture
	LONGSHORE_SQL_ROUNDS=$(or $(ROUNDS),100000) LONGSHORE_SEED=$$(date +%s) $(CARGO) test --release -p longshore-tsql --test batches -- --nocapture
	LONGSHORE_MUTATION_SECONDS=$(or $(SECONDS),600) LONGSHORE_MUTATION_SEED=$$(date +%s) $(CARGO) test --release -p longshore-wal --test archive hostile -- --nocapture
	LONGSHORE_MUTATION_SECONDS=$(or $(SECONDS),600) LONGSHORE_MUTATION_SEED=$$(date +%s) $(CARGO) test --release -p longshore-source --test postgres hostile -- --nocapture

device-check: setup build ## Bundle in .work/device-check that checks GPU compression on a machine without Rust and network
	@./scripts/device-check.sh $(BINARY)-lab $(WORK)/device-check

device-results: ## Puts the Markdown report of a device check, REPORT=device-check.md, into docs/accelerators.md
	@./scripts/device-results.sh "$(REPORT)"

deny: ## Advisories, licences, duplicates and sources of all dependencies (deny.toml), where cargo-deny is installed
	@./scripts/deny.sh

man: build ## Manual pages into target/man
	@mkdir -p target/man && $(BINARY) man target/man && $(BINARY)-lab man target/man && echo "target/man"

completions: build ## Completion scripts into target/completions
	@mkdir -p target/completions
	@for name in longshore longshore-lab; do \
	    program=$(dir $(BINARY))$$name; \
	    $$program completions bash > target/completions/$$name.bash && \
	    $$program completions zsh > target/completions/_$$name && \
	    $$program completions fish > target/completions/$$name.fish || exit; done
	@echo "target/completions"

install: build install-built ## Builds, and installs below PREFIX (/usr/local); DESTDIR for packagers; PARTS="longshore" leaves lab and cache out

install-built: ## Installs what is built in BUILT (target/release)
	@BUILT="$(BUILT)" PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" ./scripts/install.sh install $(PARTS)

uninstall: ## Removes what install has put below PREFIX; a changed configuration stays
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" ./scripts/install.sh uninstall $(PARTS)

deb: dist ## Debian packages in target/packages: longshore, -lab, -cache, -dbgsym (dpkg-deb)
	@SIZE_MAX=24000000 ./scripts/package.sh deb "$(DIST)" target/packages

rpm: dist ## RPM packages in target/packages (rpmbuild)
	@SIZE_MAX=24000000 ./scripts/package.sh rpm "$(DIST)" target/packages

image: dist ## The container image longshore of target/dist, by podman or buildah; nothing is fetched
	@./scripts/image.sh "$(DIST)"

test-packages: ## Packages and image of BUILT in a clean Debian (root, debootstrap, rpm, gdb, buildah): install, use, upgrade, remove; minutes
	@./scripts/test-packages.sh "$(BUILT)" $(WORK)/packages
	@./scripts/test-rpm.sh "$(BUILT)" $(WORK)/packages
	@./scripts/test-image.sh "$(BUILT)" $(WORK)/packages

test-recipes: ## The Patroni and repmgr recipes of docs/recipes.md with the program of BUILT (root, etcd, repmgr; Patroni by pip); minutes
	@python3 scripts/test-recipes.py $(BINARY) $(WORK)/recipes

clean: ## Removes build results and .work
	$(CARGO) clean
	rm -rf $(WORK)
