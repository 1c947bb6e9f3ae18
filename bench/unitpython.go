package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"

	"github.com/shardtool/shardtool/bench/table"
)

//go:embed units.py
var unitsScript string

// unitsInPython compares tokens that a program gets from Loader(pack=...) with those of samples of
// one length.
func (b *bench) unitsInPython(d unitData) error {
	python, err := b.python("numpy")
	if err != nil {
		return err
	}
	env, err := b.packageEnv()
	if err != nil {
		return err
	}
	read := func(mode, dir string) (r struct{ Tokens, Seconds, CPU float64 }, err error) {
		cmd := exec.CommandContext(b.ctx, python, "-c", unitsScript, mode, dir, fmt.Sprintf("%dMiB", d.fixed.ShuffleMemory>>20), d.packed.Plans)
		cmd.Env = env
		out, err := cmd.Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return r, fmt.Errorf("%s: %w\n%s", mode, err, exit.Stderr)
		}
		if err != nil {
			return r, err
		}
		return r, json.Unmarshal(out, &r)
	}
	for _, copies := range []string{"copies", "views"} {
		var wall, cpu, rate table.Sample
		for i := range b.times {
			var speed, spent [2]float64
			for k := range 2 {
				j := (k + i) % 2 // who goes first alternates
				mode, dir := "packed "+copies, d.docs
				if j == 1 {
					mode, dir = "samples "+copies, d.rows
				}
				r, err := read(mode, dir)
				if err != nil {
					return err
				}
				speed[j], spent[j] = r.Tokens/r.Seconds, r.CPU/r.Tokens
			}
			wall, cpu, rate = append(wall, speed[0]/speed[1]), append(cpu, spent[1]/spent[0]), append(rate, speed[0])
		}
		name := "Python, " + copies + ": packed / samples of 8,192 tokens"
		b.AtLeast("units", name, wall, "x", 0.9, fmt.Sprintf("tokens a second; %.0f M tokens/s with position_ids, document and cu_seqlens; data of sixteen windows, two epochs", rate.Median()/1e6))
		b.AtLeast("units", name+", by CPU time", cpu, "x", 0.9, "of the process and its child, after the packages are imported")
	}
	return nil
}
