package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/explain"
	"github.com/shardtool/shardtool/objstore"
)

// explainFlags are the flags of explain.
type explainFlags struct {
	order orderFlags
	keys  bool
	json  bool
}

func newExplain() *cobra.Command {
	f := explainFlags{keys: true}
	cmd := &cobra.Command{
		Use:   "explain [CHECKPOINT] [DATASET|MIX.yaml]",
		Short: "Describe what a step reads, or the position of a checkpoint",
		Long: `With a data set or a mix, print what one step reads: the samples with their source, shard, block and key, the share of each source
in the step and so far, and the epochs of the sources. The step is --step N; the default is the first one, or the next one after
the checkpoint. All ranks are listed unless --rank is given. Only tables are read, and for the keys the indexes or blocks of these samples;
--keys=false reads the tables alone.

With --pack or --bucket, or a checkpoint of packed sequences or micro-batches, a step consists of these: each sample is listed with its row in
the batch of its rank, and with the offset and the length of its piece. The epochs before the step are planned, unless their plans are stored;
in a mix only epochs that its sources are in.

With a checkpoint alone, print its position, step and epoch, and for each source how many samples it has given and where it continues. With a
checkpoint and the data set or mix, the steps are the ones of the checkpoint's run; the mix file is used only to find the data sets, so its
weights may have changed since. With --change-mix the run continues with the weights of the file.`,
		Example: "  shardtool explain mix.yaml --shuffle --seed 7 --global-batch 4096 --step 40000 --world-size 8 --rank 3\n" +
			"  shardtool explain text/ --shuffle --pack 8192 --long split --global-batch 256 --world-size 8 --rank 3 --step 40000\n" +
			"  shardtool explain ckpt.json\n  shardtool explain ckpt.json mix.yaml --step 39990",
		Args: usageArgs(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if v := &f.order.view; v.keys == "false" || v.keys == bareKeys {
				f.keys, v.keys = v.keys == bareKeys, ""
			}
			if err := f.order.fill(); err != nil {
				return err
			}
			return f.run(cmd, args)
		},
	}
	f.order.add(cmd)
	f.order.addCheckpointIn(cmd)
	f.order.addUnits(cmd)
	f.order.layers.add(cmd)
	f.order.mix.add(cmd)
	cmd.Flags().Uint64Var(&f.order.step, "step", 0, "describe this step, counted from 0 in batches of the same size")
	cmd.Flags().Lookup("keys").NoOptDefVal = bareKeys
	cmd.Flags().Lookup("keys").Usage = "`false` prints no keys; with a file, take the samples whose keys are in it, one in each line"
	cmd.Flags().BoolVar(&f.json, "json", false, "print as JSON")
	return cmd
}

// isCheckpoint reports whether an argument is the file of a checkpoint, of a data set or a mix, or
// the state of a Loader with one.
func isCheckpoint(arg string) bool {
	file, err := os.Open(arg)
	if err != nil {
		return false
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return false
	}
	text, err := io.ReadAll(io.LimitReader(file, 1<<10))
	text = bytes.TrimSpace(text)
	return err == nil && bytes.HasPrefix(text, []byte("{")) &&
		(bytes.Contains(text, []byte(`"algorithm"`)) || bytes.Contains(text, []byte(`\"algorithm\"`)))
}

func (f *explainFlags) run(cmd *cobra.Command, args []string) error {
	data := args[len(args)-1]
	if isCheckpoint(args[0]) {
		if f.order.in != "" {
			return usagef("--checkpoint-in %s: %s is a checkpoint: give one of them", f.order.in, args[0])
		}
		f.order.ins, f.order.in = args[:1], args[0]
		if len(args) == 1 {
			return f.standing(cmd)
		}
	} else if len(args) == 2 {
		return &exitError{exitCheckpoint, fmt.Errorf("%s is not a checkpoint: write `shardtool explain CHECKPOINT %s`",
			args[0], data)}
	}
	f.order.mix.asSaved = len(args) == 2 && !f.order.mix.change
	f.order.anyEpoch()
	step, err := f.step(cmd, data)
	if errors.Is(err, explain.ErrEnd) {
		err = &exitError{exitNotFound, err}
	}
	if err != nil {
		return f.order.explain(err)
	}
	return present(cmd, f.json, step, func(w io.Writer) { printStep(w, objstore.NewAddress(data), step) })
}

// step explains the step that the flags ask for.
func (f *explainFlags) step(cmd *cobra.Command, arg string) (*explain.Step, error) {
	run, err := f.order.openRun(cmd.Context(), cmd.ErrOrStderr(), arg)
	if err != nil {
		return nil, err
	}
	defer run.Close()
	at, err := f.order.stepPlace(cmd.Context(), run)
	if errors.Is(err, io.EOF) {
		err = explain.ErrEnd
	}
	if err != nil {
		return nil, err
	}
	o := &f.order
	return explain.Of(cmd.Context(), run.Run, at, explain.Options{
		GlobalBatch: o.opt.GlobalBatch, World: o.opt.World, Rank: o.opt.Rank, OneRank: o.changed("rank") || o.fromEnv,
		Keys: f.keys, Limit: int(o.limit),
	})
}

// printStep prints a step for people.
func printStep(w io.Writer, name objstore.Address, s *explain.Step) {
	of := ""
	if s.Sources[0].Name != "" {
		of = " of the mix"
	}
	fmt.Fprintf(w, "step %s of %s: %s from position %s on, at %s of %s in epoch %d%s\n", countText(s.Step),
		shown(name.String()), plural(uint64(s.GlobalBatch), s.Holds),
		countText(s.Position), countText(s.EpochPosition), countText(s.EpochLength), s.Epoch, of)
	if s.LeftOut {
		fmt.Fprintln(w, "this run leaves the step out: no rank reads these samples")
	}
	printTable(w, right, "\nSHARE\tIN STEP\t\tGIVEN BEFORE\t\tEPOCH\tNEXT PLACE\tOF\t  SOURCE", s.Sources,
		func(t io.Writer, x *explain.Source) {
			epochs := strconv.FormatUint(x.Epoch, 10)
			if x.LastEpoch > x.Epoch {
				epochs += "-" + strconv.FormatUint(x.LastEpoch, 10)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t  %s\n", percent(x.Share), countText(x.InStep),
				percent(x.StepShare), countText(x.Given), percent(x.GivenShare),
				epochs, countText(x.Place), countText(x.Samples), x.Name)
		})
	row, piece := "", ""
	if s.Units != nil {
		fmt.Fprintf(w, "\n%s tokens in what is listed: fill %s\n", countText(s.Units.Tokens), percent(s.Units.Fill))
		row, piece = "ROW\t", "OFFSET\tLENGTH\t"
	}
	printTable(w, 0, "\nPOSITION\tRANK\t"+row+"SOURCE\tEPOCH\tSHARD\tBLOCK\tNUMBER\t"+piece+"KEY", s.Samples,
		func(t io.Writer, x *explain.Sample) {
			if x.Row != nil {
				row, piece = fmt.Sprintf("%d\t", *x.Row), fmt.Sprintf("%d\t%d\t", *x.Offset, *x.Length)
			}
			fmt.Fprintf(t, "%d\t%d\t%s%s\t%d\t%s\t%d\t%d\t%s%s\n", x.Position, x.Rank, row, x.Source, x.Epoch,
				shown(x.Shard), x.Block, x.Number, piece, keyText(x))
		})
}

// keyText is the key of a sample, or why it has none.
func keyText(x *explain.Sample) string {
	switch {
	case x.Removed:
		return "(removed)"
	case x.Padding:
		return shown(x.Key) + " (padding)"
	}
	return shown(x.Key)
}

// standing prints where the checkpoint stands.
func (f *explainFlags) standing(cmd *cobra.Command) error {
	if f.order.changed("step") {
		return usagef("--step: the checkpoint has no addresses: write `shardtool explain %s DATASET|MIX.yaml --step N`",
			f.order.in)
	}
	s, err := readStanding(f.order.in)
	if err != nil {
		return err
	}
	return present(cmd, f.json, s, func(w io.Writer) { printStanding(w, objstore.NewAddress(f.order.in), s) })
}
