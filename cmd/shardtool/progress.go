package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progress shows long work: a bar on a terminal, a line every ten seconds elsewhere, nothing when
// quiet. Bars have no colours, so NO_COLOR changes nothing. Methods may be called from many
// goroutines.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	what  string
	work  work
	done  int64
	note  string
	waits bool // the bar is not drawn yet
	begin time.Time
	last  time.Time
	bars  *mpb.Progress
	bar   *mpb.Bar
}

// shownBar is the bar on the screen, which an abrupt exit removes.
var shownBar atomic.Pointer[progress]

// exit removes the bar from the screen and ends the process.
func exit(code int) {
	if p := shownBar.Load(); p != nil {
		p.end()
	}
	os.Exit(code)
}

// work is the amount of work, 0 when it is not known, and how it is printed.
type work struct {
	total int64
	text  func(n int64) string
	of    decor.Decorator // "3 / 5 "
}

func bytesOf(total int64) work {
	return work{total, func(n int64) string { return bytesText(uint64(n)) }, decor.CountersKibiByte("% .1f / % .1f ")}
}

func samplesOf(total int64) work {
	return work{total, func(n int64) string { return plural(n, "sample") }, decor.Any(func(s decor.Statistics) string {
		return countText(uint64(s.Current)) + " / " + plural(s.Total, "sample") + " "
	})}
}

func shardsOf(total int64) work {
	return work{total, func(n int64) string { return plural(n, "shard") }, decor.CountersNoUnit("%d / %d shards ")}
}

// shareOf is work of several parts, each counted in thousandths.
func shareOf(parts int64) work {
	return work{parts * 1000, func(n int64) string { return fmt.Sprintf("%d%%", n/(parts*10)) }, decor.Name("")}
}

// every is the interval between lines where there is no terminal.
const every = 10 * time.Second

// newBar returns a progress for commands whose stderr is otherwise empty. It is drawn only on a
// terminal, not on one that shows the command's data, and only after a second of work: a pipe may
// lead to a program that writes to the same terminal.
func newBar(out, data io.Writer, what string, w work, quiet bool) *progress {
	p := newProgress(io.Discard, what, w, true)
	if !quiet && movable(out) && !isTerminal(data) {
		p.out, p.waits = out, true
	}
	return p
}

// newProgress begins work.
func newProgress(out io.Writer, what string, w work, quiet bool) *progress {
	p := &progress{out: out, what: what, work: w, begin: time.Now(), last: time.Now()}
	switch {
	case quiet:
		p.out = io.Discard
	case movable(out):
		p.draw()
	}
	return p
}

// draw draws the bar on the terminal.
func (p *progress) draw() {
	p.bars = mpb.New(mpb.WithOutput(fileOf(p.out)), mpb.WithWidth(40), mpb.WithRefreshRate(200*time.Millisecond))
	note := decor.Any(func(decor.Statistics) string { p.mu.Lock(); defer p.mu.Unlock(); return p.note })
	// A ^C that the terminal echoes moves the cursor, so the line begins with a carriage return.
	title := decor.Name("\r" + p.what + " ")
	if p.work.total == 0 {
		p.bar = p.bars.New(0, mpb.NopStyle(), mpb.BarRemoveOnComplete(), mpb.PrependDecorators(title, note))
		shownBar.Store(p)
		return
	}
	p.bar = p.bars.AddBar(p.work.total, mpb.BarRemoveOnComplete(), mpb.PrependDecorators(title, p.work.of),
		mpb.AppendDecorators(decor.Percentage(), decor.Name(", "), decor.EwmaETA(decor.ET_STYLE_GO, 30),
			decor.Name(" left, "), note))
	shownBar.Store(p)
}

// set records how much is done, with a short note.
func (p *progress) set(done int64, note string) {
	p.mu.Lock()
	before, now := p.done, time.Now()
	if p.waits && now.Sub(p.begin) >= time.Second {
		p.waits = false
		p.draw()
		before = 0
	}
	p.done, p.note = max(p.done, done), note
	took := now.Sub(p.last)
	bar := p.bar
	line := bar == nil && !p.waits && took >= every
	if line || bar != nil {
		p.last = now
	}
	p.mu.Unlock()
	if bar != nil {
		bar.EwmaIncrInt64(max(0, done-before), took)
		return
	}
	if line {
		share := ""
		if p.work.total > 0 {
			share = fmt.Sprintf(" of %s (%d%%)", p.work.text(p.work.total), 100*done/p.work.total)
		}
		fmt.Fprintf(p.out, "%s: %s%s, %s\n", p.what, p.work.text(done), share, note)
	}
}

// end removes the bar, and what the user typed into its line. Work that did not begin has a nil
// progress.
func (p *progress) end() {
	if p != nil && p.bars != nil && shownBar.CompareAndSwap(p, nil) {
		p.bar.Abort(true)
		p.bars.Wait()
		fmt.Fprint(fileOf(p.out), "\r\x1b[J")
	}
}
