#!/usr/bin/env bash
# Packs the images of testdata/demo, looks at the data set, reads every sample back, and streams through a kill.
# Usage: demo.sh SHARDTOOL
set -euo pipefail

tool=$(realpath "${1:?usage: demo.sh SHARDTOOL}")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
step=start
finish() {
	local rc=$?
	rm -rf "$work"
	if [ "$rc" != 0 ]; then
		printf '\ndemo: FAILED (exit %d) at: %s\n' "$rc" "$step" >&2
	fi
}
trap finish EXIT

source=testdata/demo
dataset=$work/clipart
shardtool() { "$tool" "$@"; }

# run prints a command line as a person would type it, then runs it.
run() {
	step=$*
	printf '\n$ %s\n' "$step"
	eval "$step"
}
say() {
	step=$*
	printf '\n# %s\n' "$*"
}
die() {
	printf '%s\n' "$*" >&2
	exit 1
}

files=$(find "$source" -type f | wc -l)
samples=$(find "$source" -type f -name '*.png' | wc -l)
say "$((samples)) public-domain images in class folders, each with a caption and its metadata"
run "ls $source"
run "ls $source/music | sed -n 1,6p"

say "pack them: files that share a base name are one sample. Shards this small are for show"
run "shardtool pack $source $dataset --shard-size 512KiB --block-size 128KiB"
run "ls -l $dataset"

say "what is in it"
run "shardtool inspect $dataset"
run "shardtool verify $dataset --deep"
run "shardtool ls $dataset > $work/keys"
run "head -5 $work/keys"
[ "$(wc -l <"$work/keys")" -eq "$samples" ] || die "ls gave $(wc -l <"$work/keys") keys for $samples samples"

say "one sample by its key, one field of it"
run "shardtool get $dataset food/bananas_nicu_buculei_01 | tar -tvf -"
run "shardtool get $dataset food/bananas_nicu_buculei_01.txt"
run "shardtool get $dataset food/bananas_nicu_buculei_01.png | cmp - $source/food/bananas_nicu_buculei_01.png"

shard=$(find "$dataset" -name '*.tar.zst' | sort | head -n 1)
[ -n "$shard" ] || die "no shard in $dataset"
if command -v zstd >/dev/null; then
	say "a shard is a plain .tar.zst: no shardtool needed to read it"
	run "zstd -dc $shard | tar -tf - > $work/members"
	run "head -3 $work/members"
fi

say "all of it back, as a tar stream, compared with the sources"
mkdir "$work/back"
run "shardtool cat $dataset | tar -xf - -C $work/back"
run "diff -r $source $work/back"
[ "$(find "$work/back" -type f | wc -l)" -eq "$files" ] || die "not $files files"

# shellcheck source=testdata/demo-resume.sh
. testdata/demo-resume.sh

printf '\n%d samples, %d files: every sample read back, byte for byte.\n' "$samples" "$files"
