package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/reader/check"
)

// TestVerdict: only damage has the exit code of damage. A store that failed says nothing about the
// data.
func TestVerdict(t *testing.T) {
	damage, unread := check.Fault{Kind: check.KindChecksum}, check.Fault{Kind: check.KindRead}
	refused := errors.New("403 Forbidden")
	for name, c := range map[string]struct {
		report check.Report
		ended  error
		code   int
		text   []string
	}{
		"whole":  {check.Report{}, nil, 0, nil},
		"damage": {check.Report{Faults: []check.Fault{damage, damage}}, nil, exitCorrupt, []string{"has 2 faults: restore"}},
		"unread": {check.Report{Faults: []check.Fault{unread}, Unread: 1}, nil, exitUnread, []string{"failed to read in 1 place", "says nothing"}},
		"both":   {check.Report{Faults: []check.Fault{unread, damage}, Unread: 1}, nil, exitCorrupt, []string{"has 1 fault: restore", "in 1 place"}},
		"ended":  {check.Report{Faults: []check.Fault{unread}, Unread: 1}, refused, exitUnread, []string{"403"}},
		"ended and damage": {check.Report{Faults: []check.Fault{unread, damage}, Unread: 1}, refused, exitCorrupt,
			[]string{"has 1 fault: restore"}},
	} {
		err := verifyError(mem.New(), &c.report, c.ended)
		if code := report(&strings.Builder{}, err); code != c.code {
			t.Errorf("%s: exit code %d, want %d: %v", name, code, c.code, err)
		}
		for _, text := range c.text {
			if !strings.Contains(err.Error(), text) || c.code != exitCorrupt && strings.Contains(err.Error(), "restore") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
