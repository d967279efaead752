#!/usr/bin/env bash
# test-packages.sh BUILT WORK: the Debian packages of the programs in BUILT, in a clean Debian below WORK.
#
# Installs them, follows the installed tutorial as it stands, moves a cluster that pgBackRest archives and backs up, runs what
# the units run in a night, upgrades to a package with a higher version, purges, and compares the root with what it was
# before. Needs root and debootstrap; the clean root is kept as WORK/clean.tar. What the tutorial and the move said is in
# WORK/tutorial.md and WORK/move.md; docs/results has these pages with a head. SUITE (this machine's) and MIRROR choose the distribution.
#
# Goal: the packages install, work for the user postgres as the units use them, upgrade, and leave nothing but backups.
# Method: one package in two versions, in a root that debootstrap made; the lists of its files before and after are
# compared.
# Not covered: the package of the cache, which needs nbdkit; units that systemd starts. RPM: test-rpm.sh.
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
        debootstrap --variant=minbase --include=postgresql,pgbackrest,ca-certificates,systemd "$suite" "$work/new" "$mirror" \
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

# Everything but dpkg's own records, logs, caches, the cluster and pgBackRest's own files.
listing() {
    (cd "$root" && find . -path ./proc -prune -o -path ./var/lib/dpkg -prune -o -path ./var/log -prune -o \
        -path ./var/cache -prune -o -path ./tmp -prune -o -path ./root -prune -o -path ./var/lib/postgresql -prune -o \
        -path ./run -prune -o -path ./dev -prune -o -path ./srv -prune -o -path ./etc/pgbackrest.conf -prune -o \
        -path ./var/spool -prune -o -printf '%p %y %m %u\n') | sort
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
    local page=$root/usr/share/doc/longshore/docs/tutorial.md begun=$SECONDS number=0 line words= start= block= heading=
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
    install -d -m 700 "$root/srv/copy"
    inside chown postgres: /srv/copy
}

# told USER COMMAND: runs a line of a shell, and writes it down with what it said, but for lines of progress.
told() {
    local prompt='$' brief='/^[0-9]{1,2} percent processed/d; s/ +$//'
    [ "$1" != root ] || prompt='#'
    printf '%s %s\n' "$prompt" "$2" >>"$work/move.md"
    if [ "$1" = root ]; then
        inside timeout 300 bash -c "$2" 2>&1 | sed -E "$brief" >>"$work/move.md" || fail "the move: $work/move.md"
    else
        as_postgres timeout 300 bash -c "cd && $2" 2>&1 | sed -E "$brief" >>"$work/move.md" || fail "the move: $work/move.md"
    fi
}

# chapter TITLE: a heading, and the fence of what follows.
chapter() {
    [ ! -s "$work/move.md" ] || printf '```\n' >>"$work/move.md"
    printf '\n## %s\n\n```\n' "$1" >>"$work/move.md"
}

# archived SEGMENT: waits until the server has archived it.
archived() {
    as_postgres timeout 300 sh -c "until [ \$(psql -Atc \"select last_archived_wal >= '$1' from pg_stat_archiver\") = t ]
        do sleep 0.5; done"
}

# The cluster of a shop with pgBackRest is moved by the steps of docs/moving.md; both archive at the end.
move() {
    local begun=$SECONDS before='pgbackrest --stanza=main archive-push %p'
    : >"$work/move.md"
    chapter "The packages"
    printf '# dpkg -i longshore_*.deb longshore-lab_*.deb\n' >>"$work/move.md"
    grep -v '^(Reading database' "$work/dpkg-0.0.1.log" | sed 's| /tmp/| |g; s| \.\.\./| |g' >>"$work/move.md"
    cat >"$root/etc/pgbackrest.conf" <<END
[global]
repo1-path=/srv/pgbackrest
repo1-retention-full=2
[main]
pg1-path=/var/lib/postgresql/$major/main
END
    install -d -m 700 "$root/srv/pgbackrest"
    inside chown postgres: /srv/pgbackrest
    as_postgres psql -qc "alter system set archive_mode = on" -c "alter system set archive_command = '$before'" postgres
    inside pg_ctlcluster "$major" main restart
    chapter "Before: pgBackRest archives and backs up"
    told postgres "psql -Atc 'show archive_command'"
    told postgres "pgbackrest --stanza=main stanza-create"
    told postgres "pgbackrest --stanza=main --start-fast --type=full backup"
    told postgres "pgbackrest --stanza=main info | head -5"
    chapter "1. Install, and translate the configuration"
    told root "install -d -o postgres -g postgres -m 700 /srv/backup"
    cat >"$root/etc/longshore/longshore.toml" <<'END'
[database.main]
url = "postgres:///postgres"
target = "disk"
retention = "month"

[database.main.wal]

[target.disk]
directories = ["/srv/backup"]

[retention.month]
keep_full = 4
END
    told root "cat /etc/longshore/longshore.toml"
    told root "runuser -u postgres -- longshore config check"
    chapter "2. Make the archive"
    told root "runuser -u postgres -- longshore wal create --database main"
    chapter "3. Archive to both"
    told postgres "psql -c \"alter system set archive_command = '$before && longshore wal push %p --database main'\""
    told postgres "psql -c 'select pg_reload_conf()'"
    told postgres "psql -Atc \"select pg_create_restore_point('both')\" -c 'select pg_walfile_name(pg_switch_wal())'"
    archived "$(tail -1 "$work/move.md")"
    chapter "4. Watch"
    told postgres "psql -c 'select archived_count, failed_count, last_archived_wal from pg_stat_archiver'"
    told postgres "longshore wal list --database main"
    chapter "5. A full backup, proved"
    told postgres "longshore backup main --verify"
    told postgres "longshore check main"
    told postgres "longshore drill main --work /var/tmp"
    local moment
    as_postgres psql -qc "create table moved as select now() at" -c "select pg_sleep(1.1)" postgres >/dev/null
    moment=$(as_postgres psql -Atc "select now()" postgres)
    # Recovery stops at the next commit. If that were the drop's, its lock would be there already, and queries would wait.
    as_postgres psql -qc "select pg_sleep(1.1)" -c "create table next ()" -c "drop table moved" \
        postgres >/dev/null
    archived "$(as_postgres psql -Atc "select pg_walfile_name(pg_switch_wal())" postgres)"
    told postgres "longshore restore --database main --to /srv/copy/try --target-time '$moment' --no-archiving"
    told postgres "cd /srv/copy/try/longshore-config/files/etc/postgresql/$major/main && /usr/lib/postgresql/$major/bin/pg_ctl \\
      -s -w -D /srv/copy/try -l /srv/copy/try.log -o \"-p 5433 -c config_file=\$PWD/postgresql.conf -c data_directory=/srv/copy/try \\
      -c hba_file=\$PWD/pg_hba.conf -c external_pid_file=\" start"
    told postgres "psql -p 5433 -c 'select count(*) from moved' -c 'select pg_get_wal_replay_pause_state()'"
    told postgres "/usr/lib/postgresql/$major/bin/pg_ctl -s -D /srv/copy/try -m fast stop"
    chapter "6. Schedule"
    told root "systemctl enable longshore-full@main.timer longshore-differential@main.timer longshore-expire@main.timer \\
      longshore-verify@main.timer longshore-drill@main.timer longshore-check@main.timer 2>&1"
    told postgres "longshore info main"
    chapter "A night: what the timers start"
    local unit
    for unit in backup differential verify expire drill check; do
        told postgres "$(sed -n 's/^ExecStart=//p' "$root/usr/lib/systemd/system/longshore-$unit@.service" |
            sed 's/%i/main/')"
    done
    told postgres "longshore history --runs"
    chapter "Both tools still agree"
    told postgres "pgbackrest --stanza=main check && pgbackrest --stanza=main info | head -5"
    told postgres "longshore wal list --database main"
    told postgres "longshore check main"
    printf '```\n' >>"$work/move.md"
    inside sh -c 'systemctl disable $(cd /etc/systemd/system/timers.target.wants && ls longshore-*) 2>/dev/null'
    rm -rf "$root/srv/copy/try"
    step "the move took $((SECONDS - begun)) seconds"
}

# A night, a restore and a drill, with the commands of the units.
use() {
    as_postgres longshore --quiet backup main --differential --or-full --verify
    as_postgres longshore --quiet verify --database main
    as_postgres longshore --quiet expire main
    as_postgres longshore drill main --work /var/tmp >"$work/drill.log"
    rm -rf "$root/srv/copy/data"
    as_postgres longshore --quiet restore --database main --to /srv/copy/data --no-archiving
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
step "the move from pgBackRest"
cluster
move
step "use, as postgres"
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
step "passed: install, tutorial, move, backup, verify, restore, drill, upgrade, purge on $suite"
