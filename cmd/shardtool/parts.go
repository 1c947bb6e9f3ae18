package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/ingest"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
)

// partFlags identify a part of a pack; parts is 0 for a pack that is not divided.
type partFlags struct{ part, parts int }

func (p *partFlags) add(cmd *cobra.Command) {
	cmd.Flags().IntVar(&p.parts, "parts", 0,
		"divide the sources into this many parts and pack one; commit publishes all")
	cmd.Flags().IntVar(&p.part, "part", 0,
		"number of the part, from 0 (default with --parts: the number of the Slurm array task or pod)")
}

// taskNumbers are the environment variables in which schedulers put the number of a task. They
// count from 0 if the job is written that way.
var taskNumbers = []string{"SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"}

// resolve checks the flags, and takes the part from the environment if the user gives none. Without
// --parts the environment is ignored: a pack in an array job is divided only on request.
func (p *partFlags) resolve(cmd *cobra.Command, getenv func(string) string) error {
	given := cmd.Flags().Changed("part")
	if !cmd.Flags().Changed("parts") {
		if given {
			return usagef("--part %d: write --parts N too, the same N for all of them", p.part)
		}
		return nil
	}
	if err := checkParts(p.parts); err != nil {
		return err
	}
	from := ""
	if !given {
		var err error
		if p.part, from, err = taskNumber(getenv); err != nil {
			return err
		}
	}
	if p.part < 0 || p.part >= p.parts {
		if from != "" {
			return usagef("%s is %d: parts count from 0, so that --parts %d takes the numbers 0-%d", from, p.part,
				p.parts, p.parts-1)
		}
		return usagef("--part %d: give 0 to %d with --parts %d", p.part, p.parts-1, p.parts)
	}
	return nil
}

func checkParts(parts int) error {
	if parts < 1 || parts > writer.MaxParts {
		return usagef("--parts %d: give a number from 1 to %d", parts, writer.MaxParts)
	}
	return nil
}

// taskNumber returns the number that the scheduler gave this task, and the variable it is from.
func taskNumber(getenv func(string) string) (part int, from string, err error) {
	for _, name := range taskNumbers {
		text := getenv(name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, "", usagef("%s is %q, no number: write --part", name, text)
		}
		if from != "" && n != part {
			return 0, "", usagef("%s is %d and %s is %d: write --part", from, part, name, n)
		}
		part, from = n, name
	}
	if from == "" {
		return 0, "", usagef("--parts: write --part too; outside a Slurm array or an Indexed Job of Kubernetes the number of the part is not known (%s)",
			strings.Join(taskNumbers, ", "))
	}
	return part, from, nil
}

// partJSON is what pack --parts prints.
type partJSON struct {
	Dataset string `json:"dataset"`
	// The generation that commit will publish, or has published.
	Generation uint64 `json:"generation"`
	Published  bool   `json:"published"`

	Part     int    `json:"part"` // from 0
	Parts    int    `json:"parts"`
	Manifest string `json:"manifest"` // object that describes the part
	runJSON
	skippedJSON
}

// packPart packs one part.
func (f *packFlags) packPart(cmd *cobra.Command, store objstore.Store, in *ingest.Input, bar *progress,
	begin time.Time) error {
	ctx := cmd.Context()
	whole, ok := in.Source.(writer.Splitter)
	if !ok {
		return usagef("--parts: %s cannot be divided", in.Kind)
	}
	f.opt.LeftOut = func() map[string]int64 { return leftOut(in.PartNames(f.parts.part)) }
	res, err := writer.PackPart(ctx, store, whole, f.parts.part, f.parts.parts, f.opt)
	bar.end()
	if err != nil {
		if stopped(ctx) {
			return stoppedError(ctx, err, "the same command continues")
		}
		return in.Explain(err)
	}
	took := time.Since(begin)
	names := in.Tally(f.parts.part, res.Written+res.Adopted, res.Skipped, res.LeftOut)
	if res.Already { // it was not read
		names = nil
	}
	if err := f.result(cmd, names, partJSON{
		Dataset: store.String(), Generation: res.Generation, Part: f.parts.part, Parts: f.parts.parts,
		Manifest: res.Object, Published: res.Published,
		runJSON: runJSON{res.Samples, res.Shards, res.Blocks, res.Bytes, res.PayloadBytes,
			res.Written, res.Adopted, res.Already, took.Seconds(), namesOf(names, refused(res.Skipped, res.LeftOut))},
		skippedJSON: skippedJSON{res.Skipped, res.SkippedList},
	}, func(w io.Writer) { f.printPart(w, store, res, names, took) }); err != nil {
		return err
	}
	if res.Already {
		return nil
	}
	return skippedError(store, res.Skipped, res.SkippedList)
}

func (f *packFlags) printPart(out io.Writer, store objstore.Store, res *writer.PartResult, names *tally.Tally,
	took time.Duration) {
	what := fmt.Sprintf("%s: part %d of %d", store, f.parts.part, f.parts.parts)
	switch {
	case res.Published:
		fmt.Fprintf(out, "%s is packed already, and published in generation %d\n", what, res.Generation)
		return
	case res.Already:
		fmt.Fprintf(out, "%s is packed already: %s in %s\n", what, plural(res.Samples, "sample"),
			plural(res.Shards, "shard"))
		return
	}
	fmt.Fprintf(out, "%s: %s in %s, %s of fields stored in %s\n", what, plural(res.Samples, "sample"),
		plural(res.Shards, "shard"),
		bytesText(res.PayloadBytes), bytesText(res.Bytes))
	printLeft(out, names)
	printResumed(out, res.Adopted, res.Written)
	fmt.Fprintf(out, "took %.1fs; when all parts are packed: shardtool commit %s --parts %d\n", took.Seconds(), store,
		f.parts.parts)
}

// partsCommand has the flags that missing and commit share.
type partsCommand struct {
	parts int
	name  string
	json  bool
}

func (p *partsCommand) add(cmd *cobra.Command) {
	cmd.Flags().IntVar(&p.parts, "parts", 0, "number of parts that the pack was divided into")
	cmd.Flags().StringVar(&p.name, "name", "", "beginning of the shards' names (default: as in the parts found)")
	cmd.Flags().BoolVar(&p.json, "json", false, "print the result as JSON")
}

// store checks the flags and opens the data set.
func (p *partsCommand) store(cmd *cobra.Command, arg string) (objstore.Store, error) {
	if !cmd.Flags().Changed("parts") {
		return nil, usagef("write --parts N, the number that the parts were packed with")
	}
	if err := checkParts(p.parts); err != nil {
		return nil, err
	}
	if cmd.Flags().Changed("name") {
		if err := writer.CheckName(p.name); err != nil {
			return nil, optionError(err)
		}
	}
	return current(cmd.Context(), arg, cmd.Name()+" works on the whole data set: give it without @%[2]s")
}
