package main

import (
	"context"
	"io"
	"os"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/reader/order"
)

// cmdMixCheckpoint writes the checkpoint of a position of a mix that was started with --shuffle
// --seed 7 --tail wrap --global-batch 10: mixcheckpoint MIX POSITION FILE
func cmdMixCheckpoint(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: mixcheckpoint mix position file")
	}
	position, err := strconv.ParseUint(args[1], 10, 64)
	ts.Check(err)
	f := orderFlags{changed: func(string) bool { return false }}
	f.opt.Shuffle, f.opt.Seed, f.opt.Tail, f.opt.Order.Affinity, f.opt.World = true, 7, order.TailWrap, order.AffinityEpoch, 1
	f.opt.GlobalBatch, f.opt.Order.ShuffleMemory = 10, order.DefaultMemory
	run, err := f.openRun(context.Background(), io.Discard, ts.MkAbs(args[0]))
	ts.Check(err)
	defer run.Close()
	cp, err := run.mix().Checkpoint(position)
	ts.Check(err)
	cp.Steps = mix.Steps{GlobalBatch: 10}
	text, err := mix.AppendCheckpoint(nil, cp)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), text, 0o644))
}
