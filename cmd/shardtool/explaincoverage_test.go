package main

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdSeen compares what explain --coverage counted with lines of cat --json: seen COVERAGE LINES
func cmdSeen(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: seen coverage lines")
	}
	var got coverageJSON
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &got))
	seen := map[string]map[uint64]uint64{} // by source, then number
	for text := range strings.Lines(ts.ReadFile(args[1])) {
		var line orderLine
		ts.Check(json.Unmarshal([]byte(text), &line))
		if seen[line.Source] == nil {
			seen[line.Source] = map[uint64]uint64{}
		}
		if !line.Padding {
			seen[line.Source][line.Number]++
		}
	}
	if len(seen) != len(got.Sources) {
		ts.Fatalf("%d sources, %d were counted", len(seen), len(got.Sources))
	}
	for _, s := range got.Sources {
		want, have := map[uint64]uint64{}, map[uint64]uint64{}
		for _, times := range seen[s.Source] {
			want[times]++
		}
		if never := s.Samples - uint64(len(seen[s.Source])); never > 0 {
			want[0] = never
		}
		for _, x := range s.Seen {
			have[x.Times] = x.Samples
		}
		if !maps.Equal(have, want) {
			ts.Fatalf("%s: seen %v, delivered %v", s.Source, have, want)
		}
	}
}
