#!/usr/bin/env bash
# Puts a device check's Markdown report into docs/accelerators.md, replacing the text between the two marks.
#
# usage: device-results.sh device-check.md
set -euo pipefail
report=$(realpath "$1")
cd "$(dirname "$0")/.."
page=docs/accelerators.md
begin='<!-- device check: written by make device-results -->'
end='<!-- end of device check -->'
grep -qxF -- "$begin" "$page" && grep -qxF -- "$end" "$page" || {
    echo "device-results: $page lacks the marks $begin and $end"
    exit 1
}
awk -v begin="$begin" -v end="$end" -v report="$report" '
    $0 == begin {
        print
        print ""
        # One level below the third-level heading that it is under.
        while ((getline line < report) > 0) print (line ~ /^#/ ? "###" line : line)
        print ""
        within = 1
    }
    $0 == end { within = 0 }
    !within && $0 != begin
' "$page" >"$page.part"
mv "$page.part" "$page"
