#!/usr/bin/env bash
# Runs every fuzz target for SECONDS each: scripts/fuzz.sh [SECONDS] [TARGET...]
#
# Needs a nightly compiler for the sanitizers; cargo-fuzz is not needed. The script keeps interesting inputs in
# fuzz/corpus, and an input that crashes in fuzz/artifacts. Without nightly it says so and succeeds: the bounded fuzzers
# of the test suite have run then.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-30}
shift || true
targets=${*:-$(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | grep -v longshore)}

if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "fuzz: left out: no nightly compiler (rustup toolchain install nightly)"
    exit 0
fi

triple=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=$PWD/target/fuzz
export RUSTFLAGS="--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module \
-Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
# libdeflate includes one template several times, which looks like a duplicate definition.
export ASAN_OPTIONS=detect_odr_violation=0
# Of few targets only their crates are built.
read -ra chosen <<<"$(printf -- '--bin %s ' $targets)"
(cd fuzz && cargo +nightly build --release --target "$triple" "${chosen[@]}")

for target in $targets; do
    mkdir -p "fuzz/corpus/$target" fuzz/artifacts
    seeds=()
    [ -d "fuzz/seeds/$target" ] && seeds+=("fuzz/seeds/$target")
    # The best seeds for a stripe are stripes.
    [ "$target" = stripe ] && [ -d tests/golden/v1 ] && seeds+=(tests/golden/v1)
    echo "fuzz: $target, $seconds s, log in fuzz/artifacts/$target.log"
    log=fuzz/artifacts/$target.log
    if ! "target/fuzz/$triple/release/$target" -max_total_time="$seconds" -max_len=16000 -rss_limit_mb=2048 \
        -artifact_prefix=fuzz/artifacts/ "fuzz/corpus/$target" "${seeds[@]}" >"$log" 2>&1; then
        tail -40 "$log"
        exit 1
    fi
    grep DONE "$log"
done
