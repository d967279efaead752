#!/usr/bin/env bash
# test-image.sh BUILT WORK: the container image of the program in BUILT, built and run by buildah below WORK.
#
# Needs root and buildah. Nothing is fetched, and other images of the machine are not touched.
#
# Goal: the image is what contrib/Containerfile promises: the program, no shell, user 26, and it backs up and restores.
# Method: buildah runs the image's program in a root of its own (isolation chroot).
# Not covered: a read-only root, which that isolation does not have; the first stage, which needs a registry.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."

built=${1:-target/release}
mkdir -p "${2:-.work/packages}"
work=$(cd "${2:-.work/packages}" && pwd)

case $work in
*" "*)
    echo "test-image: $work has a space in it, which buildah's options here do not bear" >&2
    exit 2
    ;;
esac
if [ "$(id -u)" != 0 ]; then
    echo "test-image: only root can enter an image's root: sudo make test-packages" >&2
    exit 2
fi
if ! command -v buildah >/dev/null; then
    echo "test-image: buildah is missing: apt-get install buildah" >&2
    exit 1
fi

fail() {
    echo "test-image: FAIL: $*" >&2
    exit 1
}

builder="buildah --storage-driver vfs --root $work/images --runroot $work/images-run"
cleanup() {
    $builder rm --all >/dev/null 2>&1 || true
    $builder rmi --all >/dev/null 2>&1 || true
    rm -rf "$work/images" "$work/images-run" "$work/mounted"
}
trap cleanup EXIT
cleanup

BUILDER=$builder ./scripts/image.sh "$built" longshore-test >"$work/image.log" 2>&1 || fail "see $work/image.log"
setting() {
    $builder inspect --type image --format "{{.OCIv1.Config.$1}}" longshore-test
}
[ "$(setting User)" = 26:26 ] || fail "the user is $(setting User)"
[ "$(setting Entrypoint)" = "[/usr/bin/longshore]" ] || fail "the entry point is $(setting Entrypoint)"
labels=$(setting Labels)
[[ $labels == *"image.revision:$(git log -1 --format=%H)"* ]] || fail "the labels are $labels"

container=$($builder from --pull-never longshore-test)
install -d -o 26 -g 26 -m 700 "$work/mounted"
install -d -m 755 "$work/mounted/files"
echo "a row" >"$work/mounted/files/rows"
run() {
    $builder run --isolation chroot --volume "$work/mounted:/mnt/work" "$container" -- "$@"
}
version=$(run /usr/bin/longshore --version)
[[ $version == *"engines: isa-l"* ]] || fail "the engine ISA-L is missing: $version"
# The history is the user's own, whoever built the image.
run /usr/bin/longshore history >/dev/null || fail "the history cannot be read"
run /usr/bin/longshore backup /mnt/work/files --to /mnt/work/history.bak >"$work/image.log" 2>&1 ||
    fail "a backup with a history: $(cat "$work/image.log")"
run /usr/bin/longshore --quiet backup /mnt/work/files --to /mnt/work/files.bak --verify
[ "$(stat -c %u "$work/mounted/files.bak")" = 26 ] || fail "the backup is not user 26's"
run /usr/bin/longshore --quiet restore /mnt/work/files.bak --to /mnt/work/restored
diff -r "$work/mounted/files" "$work/mounted/restored" || fail "not what was backed up"
if run /bin/sh -c true 2>/dev/null; then
    fail "there is a shell"
fi
echo "test-image: passed: build, user, entry point, backup, verify, restore, no shell"
