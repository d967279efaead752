#!/usr/bin/env bash
# Checks advisories, licences, duplicates and sources of all dependencies (deny.toml). A check whose tool is missing says
# so in one line; LONGSHORE_REQUIRE_TOOLS makes that a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

skipped() {
    echo "skipped: $1"
    [ -z "${LONGSHORE_REQUIRE_TOOLS:-}" ] || exit 1
}

if ! cargo deny --version >/dev/null 2>&1; then
    skipped "cargo-deny is not installed; cargo install --locked cargo-deny"
    exit 0
fi
cargo deny --locked check licenses bans sources
# The database is a repository on github.com.
if cargo deny --locked fetch db >/dev/null 2>&1; then
    cargo deny --locked check advisories
else
    skipped "the database of advisories cannot be had here; licences, duplicates and sources were checked"
fi
