package view

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/testset"
)

// TestCropsAreThoseOfPython draws what python/tests/test_crops.py wrote.
func TestCropsAreThoseOfPython(t *testing.T) {
	file, err := os.Open("../../../../testdata/order/crop-vectors.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := json.NewDecoder(file)
	n := 0
	for ; ; n++ {
		var v struct {
			Image, Size  [2]int
			Crop         string
			Scale, Ratio [2]float64
			Seed         uint64
			Box          [4]float64
			Mirrored     bool
		}
		if err := lines.Decode(&v); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		c := cropping{Height: v.Size[0], Width: v.Size[1], Crop: v.Crop, Flip: true, Scale: v.Scale, Ratio: v.Ratio}
		d := c.of(v.Image[0], v.Image[1], v.Seed)
		if got := [4]float64{d.Left, d.Top, d.Width, d.Height}; got != v.Box || d.Mirrored != v.Mirrored {
			t.Errorf("line %d: %v, mirrored %t; want %+v", n+1, got, d.Mirrored, v)
		}
		if c.Flip = false; c.of(v.Image[0], v.Image[1], v.Seed).Mirrored {
			t.Errorf("line %d: mirrored without flip", n+1)
		}
	}
	if n < 300 {
		t.Errorf("%d lines", n)
	}
}

// TestCropsOfAStep draws the crops on the page of a step, and keeps them when it is turned.
func TestCropsOfAStep(t *testing.T) {
	var samples []testset.Sample
	for i := range 40 {
		samples = append(samples, testset.Sample{Key: string(rune('0' + i)), Fields: file("png", picture(), "txt", "x")})
	}
	s := show(t, samples)
	page := s.want("/step?n=1&size=16&crop=random&flip=1&ratio=3/4,+1.5", 200, `class="used"`, "become 16 × 16", "crop=random", "ratio=3%2F4", "mirrored", `scale(-1 1)`, "value=\"3/4, 1.5\"")
	if strings.Contains(page, "<img") || strings.Count(page, "ZgotmplZ") > 0 {
		t.Error("images are not drawn")
	}
	if page := s.want("/step?n=1", 200, "<img"); strings.Contains(page, `class="used"`) {
		t.Error("a crop is drawn that nobody asked for")
	}
	for _, bad := range []string{
		"size=0", "size=-1", "size=16385", "size=1.5", "size=x", "size=1,2,3", "size=8&crop=middle", "size=8&scale=0,1", "size=8&scale=1,0.5", "size=8&scale=0.5,1.5",
		"size=8&scale=0.5", "size=8&ratio=1e9,1e99", "size=8&ratio=1/0,2", "size=8&ratio=-1,2", "size=8&ratio=" + strings.Repeat("9", 5000) + ",2",
	} {
		s.want("/step?"+bad, http.StatusBadRequest)
	}
	q := url.Values{"size": {"100 200"}, "scale": {"1/4,1"}}
	if c, err := croppingOf(q); err != nil || c.Height != 100 || c.Width != 200 || c.Scale != [2]float64{0.25, 1} || c.Ratio != [2]float64{0.75, 4.0 / 3} || c.Crop != "center" {
		t.Errorf("%+v, %v", c, err)
	}
	hostile := &cropping{Height: 1, Width: 16384, Crop: "random", Scale: [2]float64{1e-20, 1}, Ratio: [2]float64{1e-20, 1e20}}
	if d := hostile.of(1, 1<<24, 7); d.Left < 0 || d.Top < 0 || d.Width < 1 || d.Height < 1 || d.Left+d.Width > 1 || d.Top+d.Height > 1<<24 {
		t.Errorf("%+v", d)
	}
}
