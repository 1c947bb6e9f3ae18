package bench

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"strings"
	"time"
)

//go:embed report.html.tmpl
var page string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"span": span, "percent": percent, "number": number, "size": size, "rate": rate, "upper": upper, "rankRate": func(r Rank) string { return number(float64(r.Samples) / max(r.Elapsed, 1e-9)) },
	"join": func(s []string) string { return strings.Join(s, " ") }, "date": func(t time.Time) string { return t.Format(time.DateTime + " MST") },
}).Parse(page))

// pageData is the input of the template.
type pageData struct {
	*Report
	Asked, Machine, Tuning string
	Ranked                 chart // the timeline of every rank
	Throughput             chart
	Waits, Stages          chart
	Memory                 chart // without lines where the system does not report it
	Stalls                 []stallRow
	Bars                   []bars
	Unlike                 []string
}

type stallRow struct {
	Cause             string
	Time, Wait, First float64
	Advice            string
}

// HTML returns the report as one self-contained page, without scripts, and without pictures or
// fonts from elsewhere.
func (r *Report) HTML() ([]byte, error) {
	grid := r.grid()
	d := pageData{
		Report: r, Asked: r.asked(), Machine: r.Host.text(), Tuning: r.tuning(), Ranked: r.rankChart(grid), Throughput: grid.throughput(), Waits: grid.waits(len(r.Ranks)),
		Stages: grid.stages(), Memory: grid.memory(), Stalls: r.stallRows(),
	}
	if r.Sweep != nil {
		d.Bars = r.Sweep.bars()
	}
	if r.Baseline != nil {
		d.Unlike = r.Unlike(r.Baseline)
	}
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, d); err != nil {
		return nil, fmt.Errorf("the report: %w", err)
	}
	return out.Bytes(), nil
}

// grid is the timelines of all ranks in columns of the same width.
type grid struct {
	width   float64 // seconds
	columns []Bucket
	ranks   [][]Bucket
}

func (g *grid) seconds() float64 { return max(g.width*float64(len(g.columns)), 1e-9) }

// mostColumns is the number of columns that can be distinguished on a page.
const mostColumns = 300

func (r *Report) grid() *grid {
	g := &grid{width: 1e-3}
	end := 0.0
	for i := range r.Ranks {
		l := &r.Ranks[i].Line
		g.width = max(g.width, l.Width)
		end = max(end, l.Width*float64(len(l.Buckets)))
	}
	for end/g.width > mostColumns {
		g.width *= 2
	}
	n := max(int(end/g.width+0.999), 1)
	g.columns, g.ranks = make([]Bucket, n), make([][]Bucket, len(r.Ranks))
	for i := range r.Ranks {
		l := &r.Ranks[i].Line
		g.ranks[i] = make([]Bucket, n)
		for j := range l.Buckets {
			at := min(int((float64(j)+0.5)*l.Width/g.width), n-1)
			g.ranks[i][at].join(&l.Buckets[j])
		}
		for j := range g.ranks[i] {
			c, b := &g.columns[j], &g.ranks[i][j]
			if b.Looks == 0 && j > 0 { // not counted: the process was too busy
				last := &g.ranks[i][j-1]
				b.Queued, b.Reading, b.Paused, b.Decoding = last.Queued, last.Reading, last.Paused, last.Decoding
			}
			if b.Resident == 0 && j > 0 {
				b.Resident = g.ranks[i][j-1].Resident
			}
			resident := c.Resident + b.Resident
			queued, reading, paused, decoding := c.Queued+b.Queued, c.Reading+b.Reading, c.Paused+b.Paused, c.Decoding+b.Decoding
			c.join(b)
			c.Queued, c.Reading, c.Paused, c.Decoding, c.Resident = queued, reading, paused, decoding, resident // sums over all ranks
		}
	}
	return g
}

// mostRows is the number of ranks that are drawn: the first ones.
const mostRows = 64

func (r *Report) rankChart(g *grid) chart {
	n := min(len(r.Ranks), mostRows)
	height := 40.0
	if n > 4 {
		height = 24
	}
	if n > 16 {
		height = 12
	}
	c := newChart(height*float64(n), g.seconds(), "For every rank, when it was busy with a step and when it waited")
	width := c.Frame.Width / float64(len(g.columns))
	for i := range n {
		k := &r.Ranks[i]
		top := c.Frame.Top + height*float64(i)
		full := height - 4
		heights := make([]float64, len(g.columns))
		for j := range g.ranks[i] {
			if b := &g.ranks[i][j]; b.Wait+b.Step > 0 {
				heights[j] = full * min(b.Step/min(max(b.Wait+b.Step, 1e-12), g.width), 1)
				if b.Wait+b.Step < 0.98*g.width && j == len(g.columns)-1 { // the run ended in it
					heights[j] = full * b.Step / (b.Wait + b.Step)
				}
			}
		}
		c.Rows = append(c.Rows, row{
			Name: fmt.Sprintf("rank %d", k.Rank), Title: fmt.Sprintf("rank %d waited %s of the time, at most %s", k.Rank, percent(k.Share), span(k.WaitMax)),
			Y: top + 2, Height: full, Middle: top + height/2 + 4, Path: steps(c.Frame.Left, width, top+2+full, heights),
		})
	}
	return c
}

func (g *grid) throughput() chart {
	c := newChart(120, g.seconds(), "Samples a second over time")
	values := make([]float64, len(g.columns))
	most := 0.0
	for i := range g.columns {
		values[i] = g.columns[i].Samples / g.width
		most = max(most, values[i])
	}
	top := roundUp(most)
	c.scale(top, number)
	for i, v := range values {
		values[i] = c.Frame.Height * v / top
	}
	c.Areas = append(c.Areas, shape{"samples/s", "rate", steps(c.Frame.Left, c.Frame.Width/float64(len(values)), c.Frame.Bottom(), values)})
	return c
}

// waits stacks the causes, as shares of the time of all ranks.
func (g *grid) waits(ranks int) chart {
	c := newChart(140, g.seconds(), "Share of the time that was waited, by cause, over time")
	all := g.width * float64(max(ranks, 1))
	most := 0.0
	for i := range g.columns {
		most = max(most, g.columns[i].Wait/all)
	}
	top := min(roundUp(max(most, 0.01)), 1)
	c.scale(top, percent)
	width := c.Frame.Width / float64(len(g.columns))
	below := make([]float64, len(g.columns))
	for k, cause := range Causes() {
		lower, upper := make([]float64, len(below)), make([]float64, len(below))
		any := false
		for i := range g.columns {
			lower[i] = c.y(below[i], top)
			if s := g.columns[i].Stalls; s != nil && s[k] > 0 {
				below[i] += s[k] / all
				any = true
			}
			upper[i] = c.y(below[i], top)
		}
		if any {
			c.Areas = append(c.Areas, shape{cause, cause, band(c.Frame.Left, width, upper, lower)})
		}
	}
	lower, upper := make([]float64, len(below)), make([]float64, len(below))
	for i := range g.columns {
		lower[i], upper[i] = c.y(below[i], top), c.y(max(below[i], g.columns[i].Wait/all), top)
	}
	c.Areas = append(c.Areas, shape{ready, "ready", band(c.Frame.Left, width, upper, lower)})
	return c
}

func (g *grid) memory() chart {
	c := newChart(80, g.seconds(), "Resident memory of all ranks over time")
	most := 1.0
	for i := range g.columns {
		most = max(most, float64(g.columns[i].Resident))
	}
	top := roundUp(most)
	c.scale(top, func(v float64) string { return size(int64(v)) })
	ys := make([]float64, len(g.columns))
	for i := range g.columns {
		ys[i] = c.y(float64(g.columns[i].Resident), top)
	}
	if most == 1 {
		return chart{}
	}
	c.Lines = append(c.Lines, shape{"resident", "stage-reading", line(c.Frame.Left, c.Frame.Width/float64(len(ys)), ys)})
	return c
}

func (g *grid) stages() chart {
	c := newChart(120, g.seconds(), "Pieces queued, read, paused and decoded at a time, over all ranks")
	most := 0.0
	for i := range g.columns {
		b := &g.columns[i]
		most = max(most, b.Queued, b.Reading, b.Decoding)
	}
	top := roundUp(max(most, 1))
	c.scale(top, number)
	for _, of := range []struct {
		name  string
		value func(b *Bucket) float64
	}{
		{"queued", func(b *Bucket) float64 { return b.Queued }}, {"reading", func(b *Bucket) float64 { return b.Reading }},
		{"paused", func(b *Bucket) float64 { return b.Paused }}, {"decoding", func(b *Bucket) float64 { return b.Decoding }},
	} {
		ys := make([]float64, len(g.columns))
		for i := range g.columns {
			ys[i] = c.y(of.value(&g.columns[i]), top)
		}
		c.Lines = append(c.Lines, shape{of.name, "stage-" + of.name, line(c.Frame.Left, c.Frame.Width/float64(len(ys)), ys)})
	}
	return c
}

// ready is the row of waits for batches that were ready.
const ready = "(it was ready)"

// stallRows returns the table of causes: shares of the time and of the wait, and the mean wait for
// the first batch.
func (r *Report) stallRows() (rows []stallRow) {
	elapsed, total := 0.0, 0.0
	first := map[string]float64{}
	for i := range r.Ranks {
		elapsed += r.Ranks[i].Elapsed
		for cause, d := range r.Ranks[i].FirstStalls {
			first[cause] += d / float64(len(r.Ranks))
		}
	}
	for _, d := range r.Summary.Stalls {
		total += d
	}
	total += r.Summary.Ready
	for _, cause := range Causes() {
		if d := r.Summary.Stalls[cause]; d > 0 || first[cause] > 0 {
			rows = append(rows, stallRow{cause, d / max(elapsed, 1e-9), d / max(total, 1e-9), first[cause], holds[cause][1]})
		}
	}
	return append(rows, stallRow{ready, r.Summary.Ready / max(elapsed, 1e-9), r.Summary.Ready / max(total, 1e-9), 0,
		"the call itself, or that the process had no processor to take the batch: leave one free for the step"})
}

// bars is an axis of the sweep as a bar chart.
type bars struct {
	Name, Reason string
	Height       int
	Need         float64 // position of the step's need; 0 for none
	Bars         []bar
}

type bar struct {
	Name, Text, Class, Title string
	Y, Width, TextX          float64
}

// Layout of the bar charts: where bars begin, their maximum length, and their distance.
const barLeft, barMost, barPitch = 150.0, 560.0, 24.0

func (s *Sweep) bars() (all []bars) {
	most := max(s.Base, s.Best, s.Need)
	for i := range s.Axes {
		for j := range s.Axes[i].Points {
			most = max(most, s.Axes[i].Points[j].Samples)
		}
	}
	most = max(most, 1e-9)
	for i := range s.Axes {
		a := &s.Axes[i]
		b := bars{Name: a.Name, Reason: a.Reason, Height: int(barPitch*float64(len(a.Points))) + 4}
		if s.Need > 0 {
			b.Need = barLeft + barMost*s.Need/most
		}
		for j := range a.Points {
			p := &a.Points[j]
			class, text := "bar", number(p.Samples)+" samples/s"
			switch {
			case p.Failed:
				text = "failed"
			case j == a.Enough && p.Base:
				class, text = "bar enough", text+", as asked, enough"
			case j == a.Enough:
				class, text = "bar enough", text+", enough"
			case p.Base:
				text += ", as asked"
			}
			w := barMost * p.Samples / most
			b.Bars = append(b.Bars, bar{
				Name: p.Value, Text: text, Class: class, Title: fmt.Sprintf("%s: %s, first batch after %s", p.Value, text, span(p.First)),
				Y: barPitch*float64(j) + 2, Width: w, TextX: barLeft + w + 8,
			})
		}
		all = append(all, b)
	}
	return all
}

// Causes returns the names of the causes, for the colours.
func (pageData) Causes() []string { return Causes() }
