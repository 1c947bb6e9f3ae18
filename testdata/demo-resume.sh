# shellcheck shell=bash
# Sourced by demo.sh: streams two epochs on 4 ranks, kills one in the middle, resumes all of them on 3 ranks from the last
# step that every rank finished, and counts every sample.

order="--shuffle --seed 7 --lanes 8 --delay 2 --epochs 2 --global-batch 32 --tail short"
marker=__shardtool__/checkpoint.json

say "two epochs, shuffled, on 4 ranks; rank 2 is killed in the middle. A checkpoint stands in the stream after every batch"
pids=()
for rank in 0 1 2 3; do
	mkfifo "$work/rank$rank.pipe"
	printf '\n$ shardtool cat %s %s --world-size 4 --rank %d --checkpoints\n' "$dataset" "$order" "$rank"
	# shellcheck disable=SC2086
	shardtool cat "$dataset" $order --world-size 4 --rank "$rank" --checkpoints >"$work/rank$rank.pipe" &
	pids[rank]=$!
done
for rank in 0 1 3; do
	cat "$work/rank$rank.pipe" >"$work/rank$rank.tar" &
done
step="reading rank 2 until it is killed"
head -c 300000 "$work/rank2.pipe" >"$work/rank2.tar" &
taken=$!
wait "$taken"
kill -9 "${pids[2]}" 2>/dev/null || true
wait 2>/dev/null || true

steps=
for rank in 0 1 2 3; do
	# What a killed process wrote ends in the middle of a member: tar lists all before it.
	tar -tf "$work/rank$rank.tar" >"$work/rank$rank.list" 2>/dev/null || true
	n=$(grep -c "^$marker\$" "$work/rank$rank.list" || true)
	echo "rank $rank finished $n batches"
	[ -z "$steps" ] || [ "$n" -ge "$steps" ] || steps=$n
	[ -n "$steps" ] || steps=$n
done
[ "$steps" -gt 0 ] || die "rank 2 was killed before its first batch"

say "all ranks finished $steps batches: that step's checkpoint, from any rank, is where the job goes on"
run "tar -xOf $work/rank0.tar --occurrence=$steps $marker > $work/checkpoint.json"
run "shardtool inspect $dataset --checkpoint $work/checkpoint.json"
: >"$work/delivered"
for rank in 0 1 2 3; do
	awk -v marker="$marker" -v steps="$steps" '$0 == marker { if (++n == steps) exit; next } { print }' "$work/rank$rank.list" >>"$work/delivered"
done

say "on 3 ranks this time: other world sizes give the same global batches"
for rank in 0 1 2; do
	run "shardtool cat $dataset --checkpoint-in $work/checkpoint.json --epochs 2 --world-size 3 --rank $rank | tar -tf - >> $work/delivered"
done

step="counting what was delivered"
printf '\n%s members delivered in two epochs, %s different ones\n' "$(wc -l <"$work/delivered")" "$(sort -u "$work/delivered" | wc -l)"
sort "$work/delivered" | uniq -c | awk '$1 != 2 { print; bad = 1 } END { exit bad }' || die "these did not come exactly once an epoch"
[ "$(sort -u "$work/delivered" | wc -l)" -eq "$files" ] || die "not $files members"
echo "every sample came exactly once an epoch, across the kill and the change from 4 ranks to 3."
