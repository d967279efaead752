#!/usr/bin/env bash
# Measures how near the program comes to this machine's limits: table on the terminal, report.html and report.md.
#
# usage: bench.sh BINARY DIRECTORY [OPTION...]     options go to `longshore lab bench`
set -euo pipefail
binary=$(realpath "$1")
work=$2
shift 2
mkdir -p "$work"
"$binary" lab bench --work "$work" --html "$work/report.html" --markdown "$work/report.md" "$@"
printf '\nLook at\n  %s/report.html   the same with plots\n  %s/report.md     the same for a repository\n' "$work" "$work"
