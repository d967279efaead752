#!/usr/bin/env bash
# install.sh install|uninstall PART...: puts built programs, units, pages and documents below PREFIX.
#
# Parts: longshore, lab (the studies), cache (the plugin for nbdkit, the unit). Variables: BUILT, the directory with the programs
# (target/release); PREFIX (/usr/local); DESTDIR, a root to install into; SYSCONFDIR (/etc for /usr and /usr/local, else
# PREFIX/etc).
#
# Programs are stripped. Each part keeps a list of its files in PREFIX/share/longshore; an installation removes what an
# earlier one had and this one lacks, and uninstall removes what the list has. The configuration is put in place only
# where there is none, and removed only as long as nobody has changed it.
#
# Invariants
# - A program gets its name in one step, so one that runs keeps its old file.
# - No service is enabled or started, and no user is made.
#
# Leaves to others: building (make build), and packages (scripts/package.sh, which scripts/test-packages.sh tries).
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."

BUILT=${BUILT:-target/release}
PREFIX=${PREFIX:-/usr/local}
DESTDIR=${DESTDIR:-}
case "$PREFIX" in
/usr | /usr/local) SYSCONFDIR=${SYSCONFDIR:-/etc} ;;
/*) SYSCONFDIR=${SYSCONFDIR:-$PREFIX/etc} ;;
*)
    echo "install: PREFIX is not absolute: $PREFIX" >&2
    exit 2
    ;;
esac
lists=$PREFIX/share/longshore
docs=$PREFIX/share/doc/longshore
config=$SYSCONFDIR/longshore/longshore.toml

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# put MODE FILE PATH: installs a file, in one step, and notes it in the part's list.
put() {
    local new
    mkdir -p "$DESTDIR${3%/*}"
    new=$(mktemp "$DESTDIR${3%/*}/.install.XXXXXX")
    if ! { cp "$2" "$new" && chmod "$1" "$new" && mv -f "$new" "$DESTDIR$3"; }; then
        rm -f "$new"
        return 1
    fi
    echo "$3" >>"$scratch/list"
}

# put_binary MODE FILE PATH: the same without symbols. The tables of lines stay with the build.
put_binary() {
    if [ ! -e "$2" ]; then
        echo "install: $2 is not built; run: make build" >&2
        exit 1
    fi
    strip --strip-unneeded -o "$scratch/stripped" "$2"
    put "$1" "$scratch/stripped" "$3"
}

# pages PROGRAM: its manual pages and completions.
pages() {
    local name=${1##*/} page
    rm -rf "$scratch/man"
    mkdir "$scratch/man"
    "$1" man "$scratch/man"
    for page in "$scratch"/man/*; do
        put 644 "$page" "$PREFIX/share/man/man${page##*.}/${page##*/}"
    done
    "$1" completions bash >"$scratch/bash"
    "$1" completions zsh >"$scratch/zsh"
    "$1" completions fish >"$scratch/fish"
    put 644 "$scratch/bash" "$PREFIX/share/bash-completion/completions/$name"
    put 644 "$scratch/zsh" "$PREFIX/share/zsh/site-functions/_$name"
    put 644 "$scratch/fish" "$PREFIX/share/fish/vendor_completions.d/$name.fish"
}

# Documents keep their places to one another, so that their links and commands work.
documents() {
    local file
    for file in README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE docs/*.md \
        docs/promises.proofs docs/decisions/*.md docs/pictures/*.svg docs/results/*.md docs/results/figures/*.md contrib/systemd/README.md \
        contrib/longshore.toml contrib/Containerfile contrib/monitoring/* tests/*/README.md \
        tests/golden/encryption.json tests/golden/key-object.json; do
        put 644 "$file" "$docs/$file"
    done
    find contrib/ansible -type f | LC_ALL=C sort >"$scratch/role"
    while read -r file; do
        put 644 "$file" "$docs/$file"
    done <"$scratch/role"
    put 755 tests/reader/longshore_reader.py "$docs/tests/reader/longshore_reader.py"
}

# unit FILE: a unit that calls the program where it is installed.
unit() {
    sed "s|/usr/local/bin/|$PREFIX/bin/|" "$1" >"$scratch/unit"
    put 644 "$scratch/unit" "$PREFIX/lib/systemd/system/${1##*/}"
}

# All units but the cache's, which needs the plugin.
units() {
    local file
    for file in contrib/systemd/longshore-*.service contrib/systemd/longshore-*.timer; do
        [ "${file##*/}" = longshore-cache@.service ] || unit "$file"
    done
    put 644 contrib/systemd/longshore.sysusers "$PREFIX/lib/sysusers.d/longshore.conf"
    put 644 contrib/systemd/longshore.tmpfiles "$PREFIX/lib/tmpfiles.d/longshore.conf"
}

install_part() {
    case "$1" in
    longshore)
        put_binary 755 "$BUILT/longshore" "$PREFIX/bin/longshore"
        pages "$BUILT/longshore"
        documents
        units
        if [ ! -e "$DESTDIR$config" ]; then
            install -Dm644 contrib/longshore.toml "$DESTDIR$config"
        fi
        ;;
    lab)
        put_binary 755 "$BUILT/longshore-lab" "$PREFIX/bin/longshore-lab"
        pages "$BUILT/longshore-lab"
        ;;
    cache)
        put_binary 644 "$BUILT/liblongshore_nbd.so" "$PREFIX/lib/longshore/liblongshore_nbd.so"
        unit contrib/systemd/longshore-cache@.service
        ;;
    esac
}

# remove LIST: the files of a list, and directories that are empty then.
remove() {
    local path dir
    while read -r path; do
        rm -f "$DESTDIR$path"
        dir=${path%/*}
        while [ "$dir" != "$PREFIX" ] && [ -n "$dir" ] && rmdir "$DESTDIR$dir" 2>/dev/null; do
            dir=${dir%/*}
        done
    done <"$1"
}

install_one() {
    local list=$lists/$1.files
    : >"$scratch/list"
    install_part "$1"
    echo "$list" >>"$scratch/list"
    sort -u "$scratch/list" >"$scratch/sorted"
    if [ -e "$DESTDIR$list" ]; then
        comm -13 "$scratch/sorted" "$DESTDIR$list" >"$scratch/gone"
        remove "$scratch/gone"
    fi
    install -Dm644 "$scratch/sorted" "$DESTDIR$list"
}

uninstall_one() {
    local list=$DESTDIR$lists/$1.files
    [ -e "$list" ] || return 0
    cp "$list" "$scratch/list"
    if [ "$1" = longshore ] && [ -e "$DESTDIR$config" ]; then
        if cmp -s "$DESTDIR$config" "$DESTDIR$docs/contrib/longshore.toml"; then
            rm -f "$DESTDIR$config"
            rmdir "$DESTDIR${config%/*}" 2>/dev/null || true
        else
            echo "uninstall: $DESTDIR$config stays: it was changed"
        fi
    fi
    remove "$scratch/list"
}

action=${1:-}
[ $# -gt 0 ] && shift
for part in "$@"; do
    case "$part" in
    longshore | lab | cache) ;;
    *)
        echo "install: no such part: $part (longshore, lab, cache)" >&2
        exit 2
        ;;
    esac
    case "$action" in
    install) install_one "$part" ;;
    uninstall) uninstall_one "$part" ;;
    *)
        echo "install: say install or uninstall" >&2
        exit 2
        ;;
    esac
done
