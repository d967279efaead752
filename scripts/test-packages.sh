#!/usr/bin/env bash
# test-packages.sh BUILT WORK: the Debian packages of the programs in BUILT, in a clean Debian below WORK.
#
# Installs them, follows the installed tutorial as it stands, backs up a PostgreSQL cluster as the user postgres, verifies,
# restores, drills, upgrades to a package with a higher version, purges, and compares the root with what it was before. Needs
# root and debootstrap; the clean root is kept as WORK/clean.tar, and what the tutorial said as WORK/tutorial.md. SUITE (this
# machine's) and MIRROR choose the distribution.
#
# Goal: the packages install, work for the user postgres as the units use them, upgrade, and leave nothing but backups.
# Method: one package in two versions, in a root that debootstrap made; the lists of its files before and after are
# compared.
# Not covered: the package of the cache, which needs nbdkit; packages for rpm; units that systemd starts.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."

built=${1:-target/release}
mkdir -p "${2:-.work/packages}"
work=$(cd "${2:-.work/packages}" && pwd)
suite=${SUITE:-$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")}
mirror=${MIRROR:-http://deb.debian.org/debian}
root=$work/root

if [ "$(id -u)" != 0 ]; then
    echo "test-packages: only root can make and enter a root directory: sudo make test-packages" >&2
    exit 2
fi
if ! command -v debootstrap >/dev/null; then
    echo "test-packages: debootstrap is missing: apt-get install debootstrap" >&2
    exit 1
fi

# Ends what runs in the root, and unmounts what was mounted there.
leave() {
    [ -d "$root/proc" ] || return 0
    inside pg_ctlcluster "$major" main stop -m immediate >/dev/null 2>&1 || true
    umount "$root/proc" 2>/dev/null || true
}
major=15
trap leave EXIT

inside() {
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"
}

# as_postgres COMMAND...: without a login's variables, as units and cron have it.
as_postgres() {
    inside setpriv --reuid=postgres --regid=postgres --init-groups env HOME=/var/lib/postgresql "$@"
}

step() {
    echo "test-packages: $*"
}

fail() {
    echo "test-packages: FAIL: $*" >&2
    exit 1
}

clean_root() {
    if [ ! -e "$work/clean.tar" ]; then
        step "a clean $suite with PostgreSQL"
        rm -rf "$work/new"
        debootstrap --variant=minbase --include=postgresql,ca-certificates,systemd "$suite" "$work/new" "$mirror" \
            >"$work/debootstrap.log" 2>&1 || fail "debootstrap: $work/debootstrap.log"
        rm -rf "$work/new/var/cache/apt/archives"/*.deb
        tar -C "$work/new" -cf "$work/clean.tar.new" .
        mv "$work/clean.tar.new" "$work/clean.tar"
        rm -rf "$work/new"
    fi
    rm -rf "$root"
    mkdir -p "$root"
    tar -C "$root" -xf "$work/clean.tar"
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    # PostgreSQL makes its shared memory there; a bare root has the directory without the rights.
    chmod 1777 "$root/dev/shm"
    mount -t proc proc "$root/proc"
    major=$(ls "$root/usr/lib/postgresql")
}

# Everything but dpkg's own records, logs, caches and the cluster.
listing() {
    (cd "$root" && find . -path ./proc -prune -o -path ./var/lib/dpkg -prune -o -path ./var/log -prune -o \
        -path ./var/cache -prune -o -path ./tmp -prune -o -path ./root -prune -o -path ./var/lib/postgresql -prune -o \
        -path ./run -prune -o -path ./dev -prune -o -path ./srv -prune -o -printf '%p %y %m %u\n') | sort
}

packages() {
    local version
    for version in 0.0.1 0.0.2; do
        step "packages of version $version"
        COMPRESSION=none VERSION=$version ./scripts/package.sh deb "$built" "$work/debs" >/dev/null
    done
}

# install_packages VERSION: the packages that need nothing from the network. The cache's needs nbdkit.
install_packages() {
    local name
    for name in longshore longshore-lab; do
        cp "$work/debs/${name}_$1"_*.deb "$root/tmp/"
    done
    inside sh -c "dpkg -i /tmp/longshore*_$1_*.deb" >"$work/dpkg-$1.log" 2>&1 || fail "dpkg -i: $work/dpkg-$1.log"
    rm -f "$root"/tmp/*.deb
}

# Runs the commands of the installed tutorial, one block after another, and writes them down with what they said.
tutorial() {
    local page=$root/usr/share/doc/longshore/tutorial.md begun=$SECONDS number=0 line words= start= block= heading=
    [ -e "$page" ] || page=$page.gz
    : >"$work/tutorial.md"
    while IFS= read -r line; do
        case $line in
        "## "*) heading=${line#\#\# } ;;
        '```sh run'*) words=${line#'```sh run'} block=' ' ;;
        '```')
            [ -n "$block" ] || continue
            number=$((number + 1))
            block=${block# }
            # The second one sets variables, which a shell would keep.
            [ "$number" != 2 ] || start=$block
            printf '%s\nset -e\n%s' "$start" "$block" >"$root/tmp/block"
            printf '\n## %s\n\n```\n%s```\n\n```\n' "$heading" "$block" >>"$work/tutorial.md"
            if [ "$words" = " as root" ]; then
                inside bash /tmp/block >>"$work/tutorial.md" 2>&1 || fail "the tutorial: $work/tutorial.md"
            else
                as_postgres bash -c 'cd && bash /tmp/block' >>"$work/tutorial.md" 2>&1 ||
                    fail "the tutorial: $work/tutorial.md"
            fi
            printf '```\n' >>"$work/tutorial.md"
            block=
            ;;
        *) [ -z "$block" ] || block+=$line$'\n' ;;
        esac
    done < <(case $page in *.gz) zcat "$page" ;; *) cat "$page" ;; esac)
    [ "$number" -gt 9 ] || fail "the tutorial has $number blocks"
    step "the tutorial's $number blocks took $((SECONDS - begun)) seconds"
}

cluster() {
    [ -d "$root/etc/postgresql/$major/main" ] || inside pg_createcluster "$major" main >/dev/null
    inside pg_ctlcluster "$major" main start
    as_postgres psql -qc "create table t as select generate_series(1, 10000) g" postgres
    install -d -m 700 "$root/srv/backup" "$root/srv/copy"
    inside chown postgres: /srv/backup /srv/copy
}

configure() {
    cat >"$root/etc/longshore/longshore.toml" <<'END'
[database.main]
url = "postgres:///postgres"
target = "disk"
retention = "month"
[target.disk]
directories = ["/srv/backup"]
[retention.month]
keep_full = 4
END
}

# A night, a restore and a drill, with the commands of the units.
use() {
    as_postgres longshore --quiet backup main --differential --or-full --verify
    as_postgres longshore --quiet verify --database main
    as_postgres longshore --quiet expire main
    as_postgres longshore drill main --work /var/tmp >"$work/drill.log"
    rm -rf "$root/srv/copy/data"
    as_postgres longshore --quiet restore --database main --to /srv/copy/data
    # Debian keeps postgresql.conf outside of the data directory.
    as_postgres sh -c "touch /srv/copy/data/postgresql.conf
        printf 'local all all trust\n' >/srv/copy/data/pg_hba.conf
        /usr/lib/postgresql/$major/bin/pg_ctl -s -w -D /srv/copy/data -l /srv/copy/log \
            -o '-p 5499 -k /tmp -c listen_addresses=' start"
    local rows
    rows=$(as_postgres psql -h /tmp -p 5499 -Atc "select count(*) from t" postgres)
    as_postgres "/usr/lib/postgresql/$major/bin/pg_ctl" -s -D /srv/copy/data -m fast stop
    [ "$rows" = 10000 ] || fail "the copy has $rows rows"
}

packages
clean_root
listing >"$work/before"

step "install"
install_packages 0.0.1
inside longshore --version
inside test -e /usr/lib/systemd/system/longshore-backup@.service
# The clean root has no `man`, so the units' Documentation= cannot be looked up.
inside sh -c 'systemd-analyze verify /usr/lib/systemd/system/longshore-*.service' 2>&1 |
    grep longshore | grep -v "Command 'man " >"$work/verify.log" || true
[ ! -s "$work/verify.log" ] || fail "systemd-analyze verify: $(cat "$work/verify.log")"
inside sh -c 'ls /etc/systemd/system/*.wants/longshore* 2>/dev/null' && fail "a unit is enabled"
inside longshore config check >/dev/null
step "the tutorial"
tutorial
step "use, as postgres"
cluster
configure
use
if inside longshore backup main >"$work/root.log" 2>&1; then
    fail "root's backup to the target of postgres was not refused"
fi
step "upgrade"
install_packages 0.0.2
grep -q 'database.main' "$root/etc/longshore/longshore.toml" || fail "the upgrade replaced the configuration"
[ "$(inside dpkg-query -f '${Version}' -W longshore)" = 0.0.2 ] || fail "not upgraded"
use
step "purge"
inside systemctl enable longshore-full@main.timer >/dev/null 2>&1
inside dpkg --purge longshore-lab longshore >"$work/purge.log" 2>&1 || fail "dpkg --purge: $work/purge.log"
listing >"$work/after"
# The cluster was made after the first listing.
diff "$work/before" "$work/after" | grep '^[<>]' | grep -v 'postgresql' >"$work/left" || true
[ -s "$work/left" ] && fail "left after the purge: $(cat "$work/left")"
inside test -d /srv/backup/main || fail "the purge removed backups"
leave
rm -rf "$root"
step "passed: install, backup, verify, restore, drill, upgrade, purge on $suite"
