package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progress shows long work: a bar on a terminal, a line every ten seconds elsewhere, nothing when quiet. Methods may be
// called from many goroutines.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	what  string
	total int64
	done  int64
	note  string
	begin time.Time
	last  time.Time
	bars  *mpb.Progress
	bar   *mpb.Bar
}

// every is how often a line is printed where there is no terminal.
const every = 10 * time.Second

// newProgress begins work on total bytes; 0 when that is not known.
func newProgress(out io.Writer, what string, total int64, quiet bool) *progress {
	p := &progress{out: out, what: what, total: total, begin: time.Now(), last: time.Now()}
	if quiet {
		p.out = io.Discard
	}
	if quiet || !terminal(out) {
		return p
	}
	p.bars = mpb.New(mpb.WithOutput(out), mpb.WithWidth(40), mpb.WithRefreshRate(200*time.Millisecond))
	note := decor.Any(func(decor.Statistics) string { p.mu.Lock(); defer p.mu.Unlock(); return p.note })
	if total == 0 {
		p.bar = p.bars.New(0, mpb.NopStyle(), mpb.BarRemoveOnComplete(), mpb.PrependDecorators(decor.Name(what+" "), note))
		return p
	}
	p.bar = p.bars.AddBar(total, mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(what+" "), decor.CountersKibiByte("% .1f / % .1f ")),
		mpb.AppendDecorators(decor.Percentage(), decor.Name(", "), decor.EwmaETA(decor.ET_STYLE_GO, 30), decor.Name(" left, "), note))
	return p
}

// set says how many bytes are done, and a short note.
func (p *progress) set(done int64, note string) {
	p.mu.Lock()
	before, now := p.done, time.Now()
	p.done, p.note = max(p.done, done), note
	took := now.Sub(p.last)
	line := p.bar == nil && took >= every
	if line || p.bar != nil {
		p.last = now
	}
	p.mu.Unlock()
	if p.bar != nil {
		p.bar.EwmaIncrInt64(max(0, done-before), took)
		return
	}
	if line {
		share := ""
		if p.total > 0 {
			share = fmt.Sprintf(" of %s (%d%%)", bytesText(uint64(p.total)), 100*done/p.total)
		}
		fmt.Fprintf(p.out, "%s: %s%s, %s\n", p.what, bytesText(uint64(done)), share, note)
	}
}

// end takes the bar away.
func (p *progress) end() {
	if p.bars != nil {
		p.bar.Abort(true)
		p.bars.Wait()
	}
}
