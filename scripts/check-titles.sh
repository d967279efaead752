#!/usr/bin/env bash
# Checks the commits since the start of the kept history: one title of at most 72 characters, a body that says why, no merges.
set -euo pipefail
cd "$(dirname "$0")/.."

# Older commits are not checked.
since=5640f277c2ee
if ! git cat-file -e "$since^{commit}" 2>/dev/null; then
    echo "check-titles: the history is not here, or not all of it: nothing was checked"
    exit 0
fi
wrong=0
complain() {
    echo "check-titles: ${commit:0:10} $*"
    wrong=1
}
while read -r commit; do
    if [ "$(git log -1 --format=%P "$commit" | wc -w)" -gt 1 ]; then
        # The newest may be the one with which somebody else puts all of this into a history.
        [ "$commit" = "$(git rev-parse HEAD)" ] || complain "a merge: rebase it"
        continue
    fi
    title=$(git log -1 --format=%s "$commit")
    body=$(git log -1 --format=%b "$commit")
    [ "${#title}" -le 72 ] || complain "the title has ${#title} characters, 72 are allowed: $title"
    [ -n "$body" ] || complain "no body says why: $title"
done < <(git rev-list "$since..HEAD")
exit "$wrong"
