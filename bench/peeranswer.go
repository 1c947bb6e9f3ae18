package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/shardtool/shardtool/bench/table"
)

// peerSystem is a system of a comparison, as its script calls it and for people.
type peerSystem struct{ id, shown string }

// peerAnswer is what the scripts of mixes and of packing print alike.
type peerAnswer struct {
	Reason  string       `json:"reason"` // why there is nothing else
	Version string       `json:"version"`
	Setting string       `json:"setting"`
	Rates   table.Sample `json:"rates"`  // a second
	Resume  table.Sample `json:"resume"` // seconds
	Way     string       `json:"way"`    // whether the batches after it are right
	World   string       `json:"world"`  // what two ranks do with the state of one

	system string
}

// ask has a system do a job, and fills r, whose part a is. A system that fails is a row that gives
// the reason. The error is that of a benchmark that was stopped.
func (p *peersBench) ask(system peerSystem, script string, most time.Duration, job any, r any, a *peerAnswer) error {
	fmt.Fprintf(os.Stderr, "bench: %s: %s …\n", script, system.shown)
	out, err := p.script(script, most, job)
	if err == nil {
		err = json.Unmarshal(out, r)
	}
	if p.ctx.Err() != nil {
		return p.ctx.Err()
	}
	if err != nil {
		a.Reason = err.Error()
	}
	a.system = system.shown
	if a.Version != "" {
		a.system = strings.Replace(system.shown, ",", " "+a.Version+",", 1)
	}
	return nil
}

// add adds a row to the table. scale is the number of things in a unit; detail begins what is beside
// the rate.
func (p *peersBench) add(group string, a *peerAnswer, scale float64, unit string, detail func() string) {
	if a.Reason != "" {
		p.Rows = append(p.Rows, table.Row{Group: group, Name: a.system, Missing: a.Reason})
		return
	}
	text := detail()
	if len(a.Resume) > 0 {
		text += "; resumed after " + duration(a.Resume.Median())
	}
	for _, more := range []string{a.Way, a.World, a.Setting} {
		if more != "" {
			text += "; " + more
		}
	}
	p.Info(group, a.system, a.Rates.By(scale), unit, text)
}
