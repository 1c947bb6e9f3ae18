package bench

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/shardtool/shardtool/internal/stats"
)

// made returns a report with all parts, and with names that would break a page.
func made(ranks int) *Report {
	random := rand.New(rand.NewPCG(3, 4))
	r := &Report{Version: Version, Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Tool: "v1", StepSeconds: 0.02, Price: 3,
		Host: Host{Name: `<script>alert("x")</script>`, System: "linux/amd64", CPUs: 2, Usable: 1, CgroupCPU: 1.5, CgroupMemory: 1 << 30, Memory: 1 << 33},
		Data: Data{Address: `s3://b/"><img src=x onerror=alert(1)>`, Digest: "d", Remote: true, Requests: 64}, Setting: Setting{World: 64, GlobalBatch: 8, Cache: "c", Shuffle: true}}
	for i := range ranks {
		line := newTimeline(time.Second)
		at := 0.0
		var waits []float64
		var stalls stats.Stalls
		for range 40 + 10*i {
			w := random.Float64() * 0.02
			s := stats.Stalls{Request: time.Duration(w * 5e8), Decode: time.Duration(w * 3e8)}
			line.batch(at, at+w, at+w+0.02, s, 8, 1000)
			stalls = stalls.Sub(stats.Stalls{}.Sub(s))
			line.bucket(at).join(&Bucket{Reading: float64(i), Queued: 3, Looks: 1, Resident: int64(100+i) << 20, Goroutines: 9, Files: 5})
			waits = append(waits, w)
			at += w + 0.02
		}
		k := Rank{Rank: i, First: 1, FirstStalls: seconds(stats.Stalls{Window: time.Second}), Elapsed: at, Samples: 8 * uint64(len(waits)), Stalls: seconds(stalls), Line: *line}
		k.waits(counted(waits...))
		r.Ranks = append(r.Ranks, k)
	}
	r.Finish()
	r.Sweep = &Sweep{Need: 300, Axes: []Axis{{Name: "workers", Points: []Point{{Value: "1", Flags: "--workers 1", Samples: 100}, {Value: "2", Samples: 200, Base: true}, {Value: "4", Failed: true, Aside: true}}}}}
	r.Sweep.settle(200, 210)
	r.Baseline = r
	return r
}

// elements parses a page and counts its elements, all of which must be closed.
func elements(t *testing.T, page []byte) map[string]int {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(string(page)))
	d.Entity = xml.HTMLEntity
	count := map[string]int{}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return count
		}
		if err != nil {
			t.Fatalf("the page is not well-formed: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok {
			count[e.Name.Local]++
			for _, a := range e.Attr {
				switch name := a.Name.Local; {
				case name == "src" || name == "href" || strings.HasPrefix(name, "on"):
					t.Errorf("<%s %s=%q>", e.Name.Local, name, a.Value)
				case name == "d":
					checkPath(t, a.Value)
				}
			}
		}
	}
}

var numbers = regexp.MustCompile(`-?[0-9.]+`)

// checkPath checks that a path is inside the view.
func checkPath(t *testing.T, path string) {
	t.Helper()
	if strings.Contains(path, "NaN") || strings.Contains(path, "Inf") || !strings.HasPrefix(path, "M") {
		t.Errorf("path %.60s…", path)
	}
	for _, n := range numbers.FindAllString(path, -1) {
		if strings.HasPrefix(n, "-") {
			t.Errorf("path %.60s… leaves the view: %s", path, n)
			return
		}
	}
}

// TestHTML: the page is well-formed, complete and self-contained.
func TestHTML(t *testing.T) {
	for _, ranks := range []int{1, 3, 40, 100} {
		r := made(ranks)
		page, err := r.HTML()
		if err != nil {
			t.Fatal(err)
		}
		count := elements(t, page)
		rows := min(ranks, mostRows)
		if count["svg"] != 6 || count["script"]+count["img"]+count["link"]+count["iframe"] != 0 || count["path"] < rows+5 || count["tr"] < ranks {
			t.Errorf("%d ranks: %v", ranks, count)
		}
		text := string(page)
		for _, outside := range []string{"http:", "https:", "url(", "@import", "//b"} {
			if strings.Contains(strings.ReplaceAll(text, "s3://b/", ""), outside) {
				t.Errorf("the page names %s", outside)
			}
		}
		for _, want := range []string{"prefers-color-scheme: dark", "an hour lost to waiting", "Recommended:", "rank 0", "&lt;script&gt;", "of the time is waited", "Against"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in the page", want)
			}
		}
		if len(page) > 2<<20 {
			t.Errorf("%d ranks: %d bytes", ranks, len(page))
		}
	}
	empty := &Report{Ranks: []Rank{{}}}
	empty.Finish()
	page, err := empty.HTML()
	if err != nil {
		t.Fatal(err)
	}
	elements(t, page)
	if strings.Contains(string(page), `id="memory"`) {
		t.Error("memory is drawn that nobody measured")
	}
}

// TestGridLooks: columns without a count repeat the pieces of the column before.
func TestGridLooks(t *testing.T) {
	r := made(1)
	line := &r.Ranks[0].Line
	line.Buckets = line.Buckets[:3]
	for i := range line.Buckets {
		line.Buckets[i].Looks, line.Buckets[i].Reading = 1, 7
	}
	line.Buckets[1].Looks, line.Buckets[1].Reading = 0, 0
	if g := r.grid(); g.columns[1].Reading != 7 {
		t.Errorf("%v pieces are read", g.columns[1].Reading)
	}
	line.Buckets[1].Resident = 0
	if g := r.grid(); g.columns[1].Resident != line.Buckets[0].Resident || g.columns[0].Resident == 0 {
		t.Errorf("%d bytes are resident", g.columns[1].Resident)
	}
	if strings.Contains(r.Verdict.Text, "--cache") {
		t.Errorf("with a cache: %s", r.Verdict.Text)
	}
}

// TestGrid: columns have the sums of the ranks' timelines.
func TestGrid(t *testing.T) {
	r := made(3)
	r.Ranks[1].Line.fold() // another width
	g := r.grid()
	var waits, steps, want, wantSteps float64
	for i := range g.columns {
		waits, steps = waits+g.columns[i].Wait, steps+g.columns[i].Step
	}
	for i := range r.Ranks {
		want += r.Ranks[i].Wait
		for _, b := range r.Ranks[i].Line.Buckets {
			wantSteps += b.Step
		}
	}
	if !near(waits, want) || !near(steps, wantSteps) || len(g.columns) > mostColumns {
		t.Errorf("%v waited and %v in steps, want %v and %v, in %d columns", waits, steps, want, wantSteps, len(g.columns))
	}
}

func TestTicks(t *testing.T) {
	for _, top := range []float64{0, 1e-4, 0.3, 1, 7, 99, 1234567, math.Inf(1), math.NaN()} {
		all := ticks(top, 5)
		if len(all) < 1 || len(all) > 8 || all[0] != 0 || (top > 0 && top < 1e9 && (len(all) < 3 || all[len(all)-1] > top*1.001)) {
			t.Errorf("%v: %v", top, all)
		}
		if up := roundUp(top); top < 1e9 && (up < top || up > 3*max(top, 1)) {
			t.Errorf("%v rounds up to %v", top, up)
		}
	}
}
