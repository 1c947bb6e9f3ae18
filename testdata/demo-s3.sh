#!/usr/bin/env bash
# Packs the images of testdata/demo to an S3 bucket, looks at the data set there, reads it back, streams it on two ranks,
# kills one and resumes from its checkpoint. The server is named by the usual AWS_ variables, the bucket by BUCKET.
# Usage: demo-s3.sh SHARDTOOL
set -euo pipefail

tool=$(realpath "${1:?usage: demo-s3.sh SHARDTOOL}")
: "${BUCKET:?the bucket to write to}"
cd "$(dirname "$0")/.."
work=$(mktemp -d)
step=start
finish() {
	local rc=$?
	rm -rf "$work"
	if [ "$rc" != 0 ]; then
		printf '\ndemo-s3: FAILED (exit %d) at: %s\n' "$rc" "$step" >&2
	fi
}
trap finish EXIT

source=testdata/demo
dataset=s3://$BUCKET/demo
marker=__shardtool__/checkpoint.json
order="--shuffle --seed 7 --lanes 4 --delay 2 --epochs 2 --global-batch 16 --tail short"
files=$(find "$source" -type f | wc -l)
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

say "pack straight into a bucket. Nothing is staged on disk"
run "shardtool pack $source $dataset --shard-size 512KiB --block-size 128KiB"
run "shardtool inspect $dataset"
run "shardtool verify $dataset --deep"

say "a second pack there is refused: nothing is overwritten"
step="packing over a data set"
if shardtool pack "$source" "$dataset" --shard-size 512KiB --block-size 128KiB 2>"$work/refused"; then
	die "a second pack to $dataset succeeded"
fi
cat "$work/refused"
run "shardtool verify $dataset --deep --quiet"

say "all of it back, compared with the sources"
mkdir "$work/back"
run "shardtool cat $dataset | tar -xf - -C $work/back"
run "diff -r $source $work/back"

pids=()
say "two epochs, shuffled, on 2 ranks; rank 1 is killed in the middle"
for rank in 0 1; do
	mkfifo "$work/rank$rank.pipe"
	printf '\n$ shardtool cat %s %s --world-size 2 --rank %d --checkpoints\n' "$dataset" "$order" "$rank"
	# shellcheck disable=SC2086
	shardtool cat "$dataset" $order --world-size 2 --rank "$rank" --checkpoints >"$work/rank$rank.pipe" &
	pids[rank]=$!
done
cat "$work/rank0.pipe" >"$work/rank0.tar" &
reader=$!
step="reading rank 1 until it is killed"
head -c 400000 "$work/rank1.pipe" >"$work/rank1.tar"
kill -9 "${pids[1]}" 2>/dev/null || true
wait "${pids[1]}" 2>/dev/null || true
step="reading rank 0 to its end"
wait "${pids[0]}"
wait "$reader"

steps=
for rank in 0 1; do
	# What a killed process wrote ends in the middle of a member: tar lists all before it.
	tar -tf "$work/rank$rank.tar" >"$work/rank$rank.list" 2>/dev/null || true
	n=$(grep -c "^$marker\$" "$work/rank$rank.list" || true)
	echo "rank $rank finished $n batches"
	if [ -z "$steps" ] || [ "$n" -lt "$steps" ]; then steps=$n; fi
done
[ "$steps" -gt 0 ] || die "rank 1 was killed before its first batch"
: >"$work/delivered"
for rank in 0 1; do
	awk -v marker="$marker" -v steps="$steps" '$0 == marker { if (++n == steps) exit; next } { print }' "$work/rank$rank.list" >>"$work/delivered"
done

say "the checkpoint after $steps batches, taken out of the stream that was killed, is where both ranks go on"
run "tar -xOf $work/rank1.tar --occurrence=$steps $marker > $work/checkpoint.json 2>/dev/null || test -s $work/checkpoint.json"
run "shardtool inspect $dataset --checkpoint $work/checkpoint.json"
for rank in 0 1; do
	run "shardtool cat $dataset --checkpoint-in $work/checkpoint.json --epochs 2 --world-size 2 --rank $rank | tar -tf - >> $work/delivered"
done

step="counting what was delivered"
printf '\n%s members delivered in two epochs, %s different ones\n' "$(wc -l <"$work/delivered")" "$(sort -u "$work/delivered" | wc -l)"
sort "$work/delivered" | uniq -c | awk '$1 != 2 { print; bad = 1 } END { exit bad }' || die "these did not come exactly once an epoch"
[ "$(sort -u "$work/delivered" | wc -l)" -eq "$files" ] || die "not $files members"
echo "every sample came exactly once an epoch from s3, across the kill."
