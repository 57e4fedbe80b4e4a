#!/usr/bin/env bash
# Fills a folder with all that the programs need to run, and nothing else: no shell, no package manager.
#
#   rootfs.sh OUT [--model FOLDER] PROGRAM…
#
# Each program goes to /bin without its debug information, the loader and the libraries it is linked against
# to where the loader looks for them. One way for the Containerfile and for the image of the tests.
set -euo pipefail
out=$1
shift
model=''
if [[ ${1:-} == --model ]]; then model=$2; shift 2; fi
(($#)) || { echo "rootfs.sh: no program is named" >&2; exit 1; }

mkdir -p "$out"/{bin,etc/ssl/certs,data,tmp}
chmod 1777 "$out/tmp"
for program in "$@"; do
    [[ -x $program ]] || { echo "rootfs.sh: there is no program at $program" >&2; exit 1; }
    strip --strip-debug -o "$out/bin/$(basename "$program")" "$program"
    chmod 0755 "$out/bin/$(basename "$program")"
    # `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)`, and the loader without an arrow.
    ldd "$program" | awk '$2 == "=>" {print $3} $1 ~ "^/" {print $1}' | while read -r library; do
        [[ -f $out$library ]] || install -D -m 0755 "$(readlink -f "$library")" "$out$library"
    done
done
printf 'nonroot:x:65532:65532::/tmp:/bin/false\n' >"$out/etc/passwd"
printf 'nonroot:x:65532:\n' >"$out/etc/group"
# Without it glibc asks DNS before /etc/hosts.
printf 'hosts: files dns\n' >"$out/etc/nsswitch.conf"
if [[ -f /etc/ssl/certs/ca-certificates.crt ]]; then
    install -m 0644 /etc/ssl/certs/ca-certificates.crt "$out/etc/ssl/certs/ca-certificates.crt"
fi
if [[ -n $model ]]; then
    # The embedder's files: a cluster has no package client to fetch them with.
    mkdir -p "$out/models/$(basename "$model")"
    for file in "$model"/*; do install -m 0644 "$file" "$out/models/$(basename "$model")/"; done
fi
