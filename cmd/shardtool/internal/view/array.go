package view

import (
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"strings"

	"github.com/shardtool/shardtool/internal/format/npy"
)

const (
	// maxValues bounds the values of an array that are looked at.
	maxValues = 1 << 20
	// linePoints is how many values a line is drawn from, and heatSide the largest side of a heat map.
	linePoints = 256
	heatSide   = 256
)

// array describes the array of a .npy field.
type array struct {
	DType string
	Shape []int64
	// Of says how many values the figures are of: all, or the ones in the beginning of the field.
	Values, Of       int64
	Least, Mean, Top float64
	NaN              int64
	// Line are the points of a line, for one dimension. Heat reports that there is a heat map.
	Line string
	Heat bool

	ids    []int64   // of an array of integers
	values []float64 // as many as were read
}

// ShapeText is the shape as Python writes it.
func (a *array) ShapeText() string {
	text := strings.Trim(fmt.Sprint(a.Shape), "[]")
	return "(" + strings.ReplaceAll(text, " ", ", ") + ")"
}

var errArray = errors.New("no array of numbers")

// readArray reads the beginning of a .npy file.
func readArray(head []byte, size uint64) (*array, error) {
	h, items, err := npy.Read(head, int64(size))
	if err != nil || !strings.ContainsRune("iufb", rune(h.Kind)) || h.Size < 1 || h.Size > 8 {
		return nil, errArray
	}
	a := &array{DType: h.Descr, Shape: h.Shape, Of: 1}
	for _, side := range h.Shape {
		if side != 0 && a.Of > math.MaxInt64/side {
			return nil, errArray
		}
		a.Of *= side
	}
	if room := int64(size) - int64(len(head)-len(items)); a.Of > room/int64(h.Size) {
		return nil, errArray // it is cut
	}
	a.Values = min(a.Of, int64(len(items))/int64(h.Size), maxValues)
	a.values = make([]float64, a.Values)
	for i := range a.values {
		a.values[i] = value(items[int64(i)*int64(h.Size):], &h)
	}
	if h.Kind == 'i' || h.Kind == 'u' {
		for _, v := range a.values[:min(len(a.values), 2048)] {
			a.ids = append(a.ids, int64(v))
		}
	}
	a.measure()
	if rows, columns := a.plane(); h.Fortran || rows < 2 || columns < 2 {
		a.Line = a.line()
	} else {
		a.Heat = true
	}
	return a, nil
}

// value decodes one element.
func value(b []byte, h *npy.Header) float64 {
	var u uint64
	for i := range h.Size {
		at := i
		if !h.Big {
			at = h.Size - 1 - i
		}
		u = u<<8 | uint64(b[at])
	}
	switch {
	case h.Kind == 'i':
		shift := 64 - 8*h.Size
		return float64(int64(u<<shift) >> shift)
	case h.Kind == 'f' && h.Size == 2:
		return npy.Half(uint16(u))
	case h.Kind == 'f' && h.Size == 4:
		return float64(math.Float32frombits(uint32(u)))
	case h.Kind == 'f':
		return math.Float64frombits(u)
	}
	return float64(u)
}

func (a *array) measure() {
	count, sum := 0, 0.0
	a.Least, a.Top = math.Inf(1), math.Inf(-1)
	for _, v := range a.values {
		if math.IsNaN(v) {
			a.NaN++
			continue
		}
		count++
		sum += v
		a.Least, a.Top = min(a.Least, v), max(a.Top, v)
	}
	a.Mean = sum / float64(max(count, 1))
	if count == 0 {
		a.Least, a.Top = 0, 0
	}
}

// plane returns the last two dimensions.
func (a *array) plane() (rows, columns int64) {
	switch n := len(a.Shape); n {
	case 0:
		return 1, 1
	case 1:
		return 1, a.Shape[0]
	default:
		return a.Shape[n-2], a.Shape[n-1]
	}
}

// line returns the points of a line, in a box of 100 by 30.
func (a *array) line() string {
	n := min(len(a.values), linePoints)
	if n < 2 || !finite(a.Least) || !finite(a.Top) {
		return ""
	}
	var b strings.Builder
	for i := range n {
		v := a.values[i*(len(a.values)-1)/(n-1)]
		if math.IsNaN(v) {
			continue
		}
		fmt.Fprintf(&b, "%.1f,%.1f ", 100*float64(i)/float64(n-1), 29-28*a.part(v))
	}
	return strings.TrimSuffix(b.String(), " ")
}

func finite(v float64) bool { return !math.IsInf(v, 0) && !math.IsNaN(v) }

// part is where a value is between the least and the greatest one, from 0 to 1.
func (a *array) part(v float64) float64 {
	span := a.Top - a.Least
	if !(span > 0) || !finite(span) || !finite(v) {
		return 0
	}
	return (v - a.Least) / span
}

// draw writes a heat map of the first plane as a PNG. Where the last dimension has 3 unsigned
// bytes, it is an image of colors. A large plane is thinned out.
func (a *array) draw(w io.Writer) error {
	rows, columns := a.plane()
	channels := int64(1)
	if n := len(a.Shape); n >= 3 && columns == 3 && strings.HasSuffix(a.DType, "u1") {
		rows, columns, channels = a.Shape[n-3], a.Shape[n-2], 3
	}
	if rows < 1 || columns < 1 {
		return errArray
	}
	height, width := int(min(rows, heatSide)), int(min(columns, heatSide))
	img := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			at := (int64(y)*rows/int64(height)*columns + int64(x)*columns/int64(width)) * channels
			if at+channels > int64(len(a.values)) {
				continue // beyond what was read: transparent
			}
			if channels == 3 {
				img.SetNRGBA(x, y, color.NRGBA{uint8(a.values[at]), uint8(a.values[at+1]), uint8(a.values[at+2]), 255})
				continue
			}
			img.SetNRGBA(x, y, heat(a.part(a.values[at])))
		}
	}
	return png.Encode(w, img)
}

// heat is a color from dark blue over green to yellow.
func heat(v float64) color.NRGBA {
	stops := [...][3]float64{{48, 24, 92}, {40, 92, 140}, {36, 148, 130}, {110, 200, 88}, {250, 230, 60}}
	v = min(max(v, 0), 1) * float64(len(stops)-1)
	i := min(int(v), len(stops)-2)
	part := v - float64(i)
	mixed := func(c int) uint8 { return uint8(stops[i][c] + part*(stops[i+1][c]-stops[i][c])) }
	return color.NRGBA{mixed(0), mixed(1), mixed(2), 255}
}
