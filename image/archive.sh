#!/usr/bin/env bash
# Makes an image archive (as `docker save` writes them) of one folder, without an image builder and without
# a base image. The same folder gives the same bytes.
#
#   archive.sh NAME:TAG FOLDER OUT.tar [--user NUMBER] [--env NAME=VALUE]… [-- COMMAND…]
#
# The user is 65532 if left out. Everything belongs to root, so no program can change itself.
set -euo pipefail
name=$1 folder=$2 out=$3 user=65532
shift 3
variables=(PATH=/bin)
while (($#)); do
    case $1 in
    --user) user=$2 && shift 2 ;;
    --env) variables+=("$2") && shift 2 ;;
    --) shift && break ;;
    *) echo "archive.sh: unknown option $1" >&2; exit 1 ;;
    esac
done

case $(uname -m) in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
*) echo "archive.sh: unknown machine $(uname -m)" >&2; exit 1 ;;
esac

work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
pack() { tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=gnu "$@"; }
list() { # WORD…: as a JSON list
    local word separator=''
    for word in "$@"; do
        [[ $word != *[\"\\]* ]] || { echo "archive.sh: '$word' holds a quote or a backslash" >&2; exit 1; }
        printf '%s"%s"' "$separator" "$word"
        separator=,
    done
}

pack -C "$folder" -cf "$work/layer" .
layer=$(sha256sum "$work/layer" | cut -d' ' -f1)
mv "$work/layer" "$work/$layer.tar"
printf '{"architecture":"%s","os":"linux","config":{"User":"%s","WorkingDir":"/","Env":[%s],"Cmd":[%s]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$architecture" "$user" "$(list "${variables[@]}")" "$(list "$@")" "$layer" >"$work/config"
config=$(sha256sum "$work/config" | cut -d' ' -f1)
mv "$work/config" "$work/$config.json"
printf '[{"Config":"%s.json","RepoTags":["%s"],"Layers":["%s.tar"]}]' "$config" "$name" "$layer" >"$work/manifest.json"
pack -C "$work" -cf "$out" manifest.json "$config.json" "$layer.tar"
