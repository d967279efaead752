#!/usr/bin/env bash
# test-rpm.sh BUILT WORK: the RPM packages of the programs in BUILT, in the clean Debian that test-packages.sh made in WORK.
#
# Installs them with rpm, backs up as postgres, finds the symbols by build id, upgrades to a package with a higher version,
# erases, and compares the root with what it was before. Needs root, rpm and WORK/clean.tar.
#
# Goal: what RPM packages do on a host is what the Debian ones do: files, scripts, configuration, and nothing left behind.
# Method: rpm with a database of its own works on that root, and runs the packages' scripts inside it.
# Not covered: a system of Fedora's or SUSE's. Dependencies are not resolved (--nodeps): the root's C library is dpkg's, so
# rpm does not know it. What the packages require is printed by `rpm -qp --requires`.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."

built=${1:-target/release}
work=$(cd "${2:-.work/packages}" && pwd)
root=$work/rpm-root

if [ "$(id -u)" != 0 ]; then
    echo "test-rpm: only root can enter a root directory: sudo make test-packages" >&2
    exit 2
fi
for tool in rpm rpmbuild gdb; do
    if ! command -v "$tool" >/dev/null; then
        echo "test-rpm: $tool is missing: apt-get install rpm gdb" >&2
        exit 1
    fi
done
if [ ! -e "$work/clean.tar" ]; then
    echo "test-rpm: $work/clean.tar is missing: run ./scripts/test-packages.sh first" >&2
    exit 1
fi

step() {
    echo "test-rpm: $*"
}

fail() {
    echo "test-rpm: FAIL: $*" >&2
    exit 1
}

inside() {
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C chroot "$root" "$@"
}

as_postgres() {
    inside setpriv --reuid=postgres --regid=postgres --init-groups env HOME=/var/lib/postgresql "$@"
}

# Everything but rpm's records, and what backups write.
listing() {
    (cd "$root" && find . -path ./var/lib/rpm -prune -o -path ./srv -prune -o -path ./var/lib/postgresql -prune -o \
        -path ./tmp -prune -o -path ./proc -prune -o -path ./var/log -prune -o -printf '%p %y %m %u\n') | sort
}

rpm_of() {
    local name files=()
    for name in longshore longshore-lab longshore-cache longshore-debuginfo; do
        files+=("$work/rpms"/*/"$name-$1-1".*.rpm)
    done
    printf '%s\n' "${files[@]}"
}

# rpms ACTION...: rpm on the root.
rpms() {
    rpm --root "$root" --dbpath /var/lib/rpm "$@"
}

# A run that was killed leaves it mounted.
umount "$root/proc" 2>/dev/null || true
rm -rf "$work/rpms" "$root"
mkdir -p "$root"
tar -C "$root" -xf "$work/clean.tar"
mount -t proc proc "$root/proc"
trap 'umount "$root/proc" 2>/dev/null || true' EXIT
for version in 0.0.1 0.0.2; do
    step "packages of version $version"
    COMPRESSION=none VERSION=$version ./scripts/package.sh rpm "$built" "$work/rpms" >/dev/null
done
rpms --initdb
listing >"$work/rpm-before"

step "install"
mapfile -t files < <(rpm_of 0.0.1)
rpms -i --nodeps "${files[@]}" >"$work/rpm.log" 2>&1 || fail "rpm -i: $work/rpm.log"
grep -E '^(warning|error):' "$work/rpm.log" && fail "rpm -i: $work/rpm.log"
rpms -V --nodeps longshore longshore-lab longshore-cache longshore-debuginfo >"$work/rpm.log" ||
    fail "rpm -V: $(cat "$work/rpm.log")"
inside getent passwd longshore >/dev/null || fail "the user longshore was not made"
inside test -d /var/lib/longshore-serve || fail "the directory of longshore-serve was not made"
inside sh -c 'ls /etc/systemd/system/*.wants/longshore* 2>/dev/null' && fail "a unit is enabled"
inside longshore --version >/dev/null
inside longshore config check >/dev/null

step "use, as postgres"
install -d "$root/srv/shop"
python3 -c 'import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript("create table t (a); insert into t values (1)")' \
    "$root/srv/shop/shop.db"
inside chown -R postgres: /srv/shop
install -d -m 700 "$root/srv/backup"
inside chown postgres: /srv/backup
cat >>"$root/etc/longshore/longshore.toml" <<'END'
[database.shop]
url = "sqlite:/srv/shop/shop.db"
target = "disk"

[target.disk]
directories = ["/srv/backup"]
END
as_postgres longshore --quiet backup shop --verify
as_postgres longshore --quiet lab --help >/dev/null

step "symbols"
# gdb resolves a name that only the stripped symbols have.
gdb -batch -nx -ex "set debug-file-directory $root/usr/lib/debug" -ex "file $root/usr/bin/longshore" \
    -ex "info address main" >"$work/gdb.log" 2>&1 || true
grep -q 'Symbol "main" is' "$work/gdb.log" || fail "gdb: $(cat "$work/gdb.log")"

step "upgrade"
mapfile -t files < <(rpm_of 0.0.2)
rpms -U --nodeps "${files[@]}" >"$work/rpm.log" 2>&1 || fail "rpm -U: $work/rpm.log"
grep -q 'database.shop' "$root/etc/longshore/longshore.toml" || fail "the upgrade replaced the configuration"
[ "$(rpms -q --qf '%{VERSION}' longshore)" = 0.0.2 ] || fail "not upgraded"
as_postgres longshore --quiet verify --database shop

step "erase"
inside systemctl enable longshore-full@main.timer longshore-cache@shop >/dev/null 2>&1 || fail "systemctl enable"
rpms -e --nodeps longshore-debuginfo longshore-cache longshore-lab longshore >"$work/rpm.log" 2>&1 ||
    fail "rpm -e: $work/rpm.log"
# rpm keeps a configuration that was changed, under another name.
[ -e "$root/etc/longshore/longshore.toml.rpmsave" ] || fail "the configuration is gone"
inside test -d /srv/backup/shop || fail "the erasure removed backups"
rm -r "$root/etc/longshore"
# The user and its directories stay, as users of packages do with rpm. Directories for completions and symbols belong to
# packages that this root does not have.
listing >"$work/rpm-after"
[ -s "$work/rpm-before" ] && [ -s "$work/rpm-after" ] || fail "the root could not be listed"
diff "$work/rpm-before" "$work/rpm-after" | grep '^[<>]' |
    grep -v -e '/var/lib/longshore' -e '/etc/\(passwd\|group\|shadow\|gshadow\)' -e ' \./etc ' \
        -e ' \./usr/lib/debug ' -e ' \./usr/share/fish\( \|/vendor_completions.d \)' -e ' \./usr/share/zsh/site-functions ' >"$work/rpm-left" || true
[ ! -s "$work/rpm-left" ] || fail "left after the erasure: $(cat "$work/rpm-left")"
umount "$root/proc"
rm -rf "$root"
step "passed: install, backup, symbols, upgrade, erase; dependencies were not resolved"
