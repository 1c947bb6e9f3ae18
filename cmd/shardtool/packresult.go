package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer"
)

// sweep removes the temporary files of killed uploads.
func sweep(ctx context.Context, store objstore.Store) {
	if sweep := objstore.TraitsOf(store).Sweep; sweep != nil {
		_, _ = sweep(ctx, time.Minute) // they are harmless where it fails
	}
}

// skipPrinter prints the first skipped samples; their number is printed at the end.
func skipPrinter(w interface{ Write([]byte) (int, error) }) func(*writer.SampleError) {
	const most = 20
	var mu sync.Mutex
	n := 0
	return func(e *writer.SampleError) {
		mu.Lock()
		defer mu.Unlock()
		switch n++; {
		case n <= most:
			fmt.Fprintf(w, "skipped: %v\n", e)
		case n == most+1:
			fmt.Fprintln(w, "skipped: more follow, which are counted only")
		}
	}
}

// runJSON is what a run packed.
type runJSON struct {
	Samples      uint64  `json:"samples"`
	Shards       uint64  `json:"shards"`
	Blocks       uint64  `json:"blocks"`
	Bytes        uint64  `json:"bytes"`         // stored
	PayloadBytes uint64  `json:"payload_bytes"` // of fields
	Written      int64   `json:"written"`       // samples of this run
	Adopted      int64   `json:"adopted"`       // samples taken over by `--resume`
	Already      bool    `json:"already"`       // it had been published before
	Seconds      float64 `json:"seconds"`
	*namesJSON
}

// namesJSON is what became of the files, rows or samples of the sources.
type namesJSON struct {
	// Files, rows or samples of the sources; [by rule](files.md#what-was-left-out), left out; skipped
	// for another reason.
	Listed  int64                `json:"listed"`
	LeftOut map[tally.Rule]int64 `json:"left_out"`
	Refused int64                `json:"refused"`
}

// skippedJSON counts samples that could not be packed.
type skippedJSON struct {
	// Samples left out by `--on-error skip`, and the object that lists them.
	Skipped     int64  `json:"skipped"`
	SkippedList string `json:"skipped_list"`
}

// packJSON is what pack, index and commit print of what they published.
type packJSON struct {
	Dataset    string `json:"dataset"`
	Generation uint64 `json:"generation"`
	Tables     string `json:"tables"` // its name: DATASET@ with the 16 digits opens it
	Digest     string `json:"digest"` // of its content
	runJSON
	skippedJSON
}

// printResult prints what was published.
// names accounts for the names and rows that the sources have; nil where they are not known.
func printResult(cmd *cobra.Command, f *outputFlags, store objstore.Store, res *writer.Result, names *tally.Tally,
	took time.Duration) error {
	if err := f.result(cmd, names, packJSON{
		Dataset: store.String(), Generation: res.Generation, Tables: res.Tables, Digest: format.DigestString(res.Digest),
		runJSON: runJSON{res.Samples, res.Shards, res.Blocks, res.Bytes, res.PayloadBytes,
			res.Written, res.Adopted, res.Already, took.Seconds(), namesOf(names, refused(res.Skipped, res.LeftOut))},
		skippedJSON: skippedJSON{res.Skipped, res.SkippedList},
	}, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %s in %s, %s of fields stored in %s, %s\n", store, plural(res.Samples, "sample"),
			plural(res.Shards, "shard"),
			bytesText(res.PayloadBytes), bytesText(res.Bytes), format.DigestString(res.Digest))
		printEnd(w, res, names, took)
	}); err != nil {
		return err
	}
	return skippedError(store, res.Skipped, res.SkippedList)
}

// refused is how many samples were skipped that no rule left out.
func refused(skipped int64, left writer.RowsLeft) int64 { return skipped - left.Null - left.Duplicate }

// printEnd prints what became of the names, and how the generation was made.
func printEnd(w io.Writer, res *writer.Result, names *tally.Tally, took time.Duration) {
	printLeft(w, names)
	if res.Generation > 1 {
		fmt.Fprintf(w, "generation %d, %s\n", res.Generation, res.Tables)
	}
	printResumed(w, res.Adopted, res.Written)
	fmt.Fprintf(w, "took %.1fs\n", took.Seconds())
}

// namesOf returns what became of the names that were listed; nil where they are not known.
func namesOf(names *tally.Tally, refused int64) *namesJSON {
	if names == nil {
		return nil
	}
	return &namesJSON{names.Listed, names.LeftOut(), refused}
}

// printLeft prints what was left out, by rule.
func printLeft(w io.Writer, names *tally.Tally) {
	if names != nil && names.Total() > 0 {
		fmt.Fprintf(w, "left out: %s\n", shown(names.String()))
	}
}

// printResumed prints how much of an interrupted pack was reused.
func printResumed(out io.Writer, adopted, written int64) {
	if adopted > 0 {
		fmt.Fprintf(out, "resumed: %s were there already, %s more read\n", plural(adopted, "sample"),
			countText(uint64(written)))
	}
}

// skippedError returns the error of a pack that skipped samples, or nil.
func skippedError(store objstore.Store, skipped int64, list string) error {
	if skipped == 0 {
		return nil
	}
	return &exitError{exitSkipped, fmt.Errorf("%s left out: %s/%s lists each with the reason",
		plural(skipped, "sample"), strings.TrimSuffix(store.String(), "/"), list)}
}
