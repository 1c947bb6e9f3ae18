package bench

import (
	"fmt"
	"math"
	"strings"
)

// chart is a chart over time, with what the template needs to draw it as SVG. The data is inside
// Frame; the rest of the view is for labels.
type chart struct {
	Width, Height int // of the view
	Frame         frame
	Rows          []row
	X, Y          []tick
	Areas, Lines  []shape
	Label         string // for screen readers
}

type frame struct{ Left, Top, Width, Height float64 }

// Right is the right edge.
func (f frame) Right() float64 { return f.Left + f.Width }

// Bottom is the lower edge.
func (f frame) Bottom() float64 { return f.Top + f.Height }

// row is one rank in a chart of ranks.
type row struct {
	Name, Title string
	Y, Height   float64
	Middle      float64
	Path        string
}

type tick struct {
	At    float64
	Label string
}

// shape is an area or a line.
type shape struct{ Name, Class, Path string }

const viewWidth = 960

// newChart returns a chart with a frame of this height, for this many seconds.
func newChart(height, seconds float64, label string) chart {
	c := chart{Width: viewWidth, Height: int(height) + 34, Frame: frame{64, 8, viewWidth - 64 - 16, height}, Label: label}
	for _, at := range ticks(seconds, 8) {
		c.X = append(c.X, tick{c.x(at, seconds), fmt.Sprintf("%g s", at)})
	}
	return c
}

func (c *chart) x(at, seconds float64) float64 { return c.Frame.Left + c.Frame.Width*at/seconds }

// y returns the position of a value, when the value top is at the top of the frame.
func (c *chart) y(v, top float64) float64 { return c.Frame.Bottom() - c.Frame.Height*min(v/top, 1) }

// scale adds labels at the left.
func (c *chart) scale(top float64, text func(float64) string) {
	for _, v := range ticks(top, 4) {
		c.Y = append(c.Y, tick{c.y(v, top), text(v)})
	}
}

// ticks returns about n round values from 0 to top.
func ticks(top float64, n int) (all []float64) {
	if top <= 0 || math.IsInf(top, 0) || math.IsNaN(top) {
		return []float64{0}
	}
	step := math.Pow(10, math.Floor(math.Log10(top/float64(n))))
	for _, m := range []float64{1, 2, 2.5, 5, 10} {
		if step*m*float64(n) >= top*0.999 {
			step *= m
			break
		}
	}
	for i := 0; float64(i)*step <= top*1.0001; i++ {
		all = append(all, math.Round(float64(i)*step*1e9)/1e9)
	}
	return all
}

// roundUp returns the top of a scale: the next of 1, 2, 2.5, 5 times a power of ten.
func roundUp(v float64) float64 {
	if v <= 0 {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 2.5, 5, 10} {
		if m*p >= v {
			return m * p
		}
	}
	return 10 * p
}

// steps returns the path of an area with one column per height, from bottom up.
func steps(left, width, bottom float64, heights []float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "M%.1f %.1f", left, bottom)
	for i, h := range heights {
		fmt.Fprintf(&b, "V%.1fH%.1f", bottom-h, left+width*float64(i+1))
	}
	fmt.Fprintf(&b, "V%.1fZ", bottom)
	return b.String()
}

// band returns the path of an area between two lines, with one point per value in the middle of its
// column.
func band(left, width float64, upper, lower []float64) string {
	var b strings.Builder
	for i, y := range upper {
		fmt.Fprintf(&b, "%c%.1f %.1f", command(i), left+width*(float64(i)+0.5), y)
	}
	for i := len(lower) - 1; i >= 0; i-- {
		fmt.Fprintf(&b, "L%.1f %.1f", left+width*(float64(i)+0.5), lower[i])
	}
	return b.String() + "Z"
}

func line(left, width float64, ys []float64) string {
	var b strings.Builder
	for i, y := range ys {
		fmt.Fprintf(&b, "%c%.1f %.1f", command(i), left+width*(float64(i)+0.5), y)
	}
	return b.String()
}

func command(i int) byte {
	if i == 0 {
		return 'M'
	}
	return 'L'
}
