#!/usr/bin/env bash
# Builds Intel's QATzip over a qatlib without a device (scripts/witness/qatlib.c), to try our use of the library against the
# real code on any machine. No part of a build or of `make test`: it needs the sources of both, and libnuma and liblz4.
#
#   git clone https://github.com/intel/QATzip && git clone https://github.com/intel/qatlib
#   scripts/qatzip-witness.sh QATzip qatlib .work/witness
#   LONGSHORE_QATZIP_WITNESS=$PWD/.work/witness/libqatzip.so.3 cargo test -p longshore-accel --lib intels
#
# CPATH and LIBRARY_PATH name the directories of headers and libraries, if they are not the default ones.
set -eu
[ $# = 3 ] || { sed -n 's/^#   //p' "$0"; exit 2; }
qatzip=$1 qatlib=$2/quickassist out=$3
here=$(dirname "$0")
mkdir -p "$out"
"${CC:-cc}" -std=gnu11 -w -O1 -fPIC -shared -Wl,-soname,libqatzip.so.3 -o "$out/libqatzip.so.3.2.0" \
    -D_GNU_SOURCE -DSAL_DEV_API -DQATZIP_API= -DXXH_NAMESPACE=QATZIP_ \
    -I"$qatzip/include" -I"$qatzip/src" -I"$qatlib/include" -I"$qatlib/include/dc" \
    -I"$qatlib/lookaside/access_layer/include" -I"$qatlib/utilities/libusdm_drv" \
    "$qatzip"/src/*.c "$here/witness/qatlib.c" -lz -lpthread -l:libnuma.so.1 -l:liblz4.so.1
ln -sf libqatzip.so.3.2.0 "$out/libqatzip.so.3"
echo "$out/libqatzip.so.3"
