#!/usr/bin/env bash
# image-root.sh BUILT ROOT: the files of the container image: the program, the libraries that it is linked with, the
# certificates of authorities, and empty directories. No shell, no package manager. contrib/Containerfile copies ROOT to
# an empty image.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."

built=${1:-target/release}
root=${2:?"image-root: name the directory to make"}
program=$built/longshore
if [ ! -e "$program" ]; then
    echo "image-root: $program is not built; run: make build" >&2
    exit 1
fi

mkdir -p "$root/usr/bin" "$root/etc/longshore" "$root/etc/ssl/certs" "$root/var/lib" "$root/mnt" "$root/proc" "$root/dev"
install -d -m 1777 "$root/tmp"
strip --strip-unneeded -o "$root/usr/bin/longshore" "$program"
chmod 755 "$root/usr/bin/longshore"

# The loader and the libraries, at the paths by which the loader finds them. ISA-L is loaded at run time.
{
    ldd "$program" | grep -o '/[^ ]*'
    ls /usr/lib/*/libisal.so.2 2>/dev/null || true
} | sort -u | while read -r library; do
    mkdir -p "$root${library%/*}"
    cp -L "$library" "$root$library"
done

authorities=/etc/ssl/certs/ca-certificates.crt
if [ -e "$authorities" ]; then
    cp -L "$authorities" "$root$authorities"
fi
install -Dm644 LICENSE-MIT "$root/usr/share/doc/longshore/LICENSE-MIT"
install -Dm644 LICENSE-APACHE "$root/usr/share/doc/longshore/LICENSE-APACHE"
