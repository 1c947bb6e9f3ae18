package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/explain"
	"github.com/shardtool/shardtool/objstore"
)

func readStanding(file string) (*explain.Standing, error) {
	cp, err := readCheckpoint(file)
	if err != nil {
		return nil, err
	}
	s, err := explain.Checkpoint(*cp)
	if errors.Is(err, explain.ErrUnits) {
		err = &exitError{exitCheckpoint, fmt.Errorf("%s: %w (`shardtool explain %[1]s DATASET`)", file, err)}
	}
	return s, err
}

// printStanding prints where a checkpoint stands, for people.
func printStanding(w io.Writer, name objstore.Address, s *explain.Standing) {
	kind := "one data set"
	if s.Sources[0].Name != "" {
		kind = "a mix of " + plural(len(s.Sources), "source")
	}
	fmt.Fprintf(w, "%s: version %d, of %s\n", shown(name.String()), s.Version, kind)
	step := "the batch size is not known"
	if s.GlobalBatch > 0 {
		step = fmt.Sprintf("step %s in batches of %s comes next", countText(s.Step), countText(uint64(s.GlobalBatch)))
	}
	fmt.Fprintf(w, "position %s, in epoch %d at %s of %s; %s\n", countText(s.Position), s.Epoch,
		countText(s.EpochPosition), countText(s.EpochLength), step)
	shuffled := "storage order"
	if s.Shuffle {
		shuffled = fmt.Sprintf("shuffled with seed %d", s.Seed)
	}
	fmt.Fprintf(w, "%s, tail %s%s\n", shuffled, s.Tail, skippedText(s.Skipped))
	if at := s.Steered; at != nil {
		step := ""
		if at.Step != nil {
			step = ", step " + countText(*at.Step)
		}
		fmt.Fprintf(w, "the training program set the weights at position %s%s\n", countText(at.Position), step)
	}
	for _, r := range s.LeftOut {
		fmt.Fprintf(w, "left out: %s from position %s on%s\n", plural(r.NextPosition-r.FirstPosition, "sample"),
			countText(r.FirstPosition), holeText(&r))
	}
	printTable(w, right, "\nSHARE\tGIVEN\t\tEPOCH\tNEXT PLACE\tOF\tDIGEST\t  SOURCE", s.Sources,
		func(t io.Writer, x *explain.StandingAt) {
			digest := strings.TrimPrefix(x.Digest, "sha256:")
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t  %s\n", percent(x.Share), countText(x.Given),
				percent(x.GivenShare), x.Epoch, countText(x.Place), countText(x.Samples),
				digest[:min(len(digest), 16)], x.Name)
		})
	for _, g := range s.Segments {
		shares := ""
		for _, name := range slices.Sorted(maps.Keys(g.Shares)) {
			shares += " " + name + " " + percent(g.Shares[name])
		}
		fmt.Fprintf(w, "from position %s on:%s\n", countText(g.At), shares)
	}
}

func holeText(r *explain.StandingHole) string {
	if r.FirstStep == nil {
		return ""
	}
	return fmt.Sprintf(", steps %s to %s", countText(*r.FirstStep), countText(*r.LastStep))
}
