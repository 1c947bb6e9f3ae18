// Package order computes the order of samples: the order "lane-delay/1" of ORDER.md, its split over
// ranks, seeking in it, and the checkpoint that names a place in it. Shuffling, resuming,
// simulating and inspecting all use this package, and no other code may decide the order.
//
// It is pure: no files, no network, no clock, no goroutines. The order is a function of the table
// of blocks and the frozen parameters alone, so all machines, builds and languages agree on it.
//
//	Table ──Choose──▶ Params          sizes lanes, runs and delay for a shuffle memory, once, at the first start
//	Table, Params ──New──▶ Plan       immutable; shared by any number of goroutines
//	Plan ──Seek(epoch, position)──▶ Cursor ──NextBatch──▶ []Ref, Batch
//	Checkpoint ──AppendCheckpoint──▶ JSON under 1 KiB ──DecodeCheckpoint──▶ Checkpoint ──Fits──▶ Plan
//
// How an epoch is ordered: the runs (blocks read together) are permuted and laid end to end; the
// line is cut into V arcs of equal length, the lanes; a lane's pieces of runs are its slots. Slot
// q's samples, permuted, are dealt out evenly over the ticks q..q+W-1 of the lane, and each tick is
// permuted again. Global positions take the lanes in turn. So at most about V·W runs are live at
// once, and any place is found by arithmetic.
//
//	tick     0    1    2    3    4    5      W = 3, H = 1
//	slot 0   aaa  aaa  aaa
//	slot 1        bbb  bbb  bbb
//	slot 2             ccc  ccc  ccc
//	slot 3                  ddd  ddd  ddd →  the last tick takes what is left
//
// Nothing here is proportional to the samples of an epoch: a Plan and a Cursor hold four bytes a
// run each, and a Cursor the permutations of the slots in the windows of the lanes its rank
// touches.
package order
