#!/usr/bin/env bash
# image.sh BUILT [NAME]: the container image of the program in BUILT, as NAME (longshore), with podman or buildah.
#
# contrib/Containerfile builds the program first, in an image of Rust's from a registry. Here its second stage alone is
# used, so nothing is fetched; the files are those of scripts/image-root.sh. The program needs the C library of this
# machine, which is in the image. BUILDER names the builder and its options.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."

built=${1:-target/dist}
name=${2:-longshore}
if [ -z "${BUILDER:-}" ]; then
    BUILDER=$(command -v podman || command -v buildah) || {
        echo "image: no builder: apt-get install buildah" >&2
        exit 1
    }
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/context"
./scripts/image-root.sh "$built" "$work/build/image"
revision=$(git log -1 --format=%H 2>/dev/null || echo unknown)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
# BUILDER is a command with its options.
# shellcheck disable=SC2086
$BUILDER build --build-context "build=$work/build" --tag "$name" --file contrib/Containerfile \
    --label "org.opencontainers.image.version=$version" --label "org.opencontainers.image.revision=$revision" \
    "$work/context"
