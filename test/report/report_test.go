// Package report reads the page written by `shardtool bench --html` as browsers do.
package report

import (
	"bytes"
	"context"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
)

// write packs the demo data set, runs a benchmark with everything that the page can show, and
// returns the page.
func write(ctx context.Context, t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	bin, page := filepath.Join(dir, "shardtool"), filepath.Join(dir, "report.html")
	run := func(where, name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = where
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
	}
	run("../..", "go", "build", "-o", bin, "./cmd/shardtool")
	run("../..", bin, "pack", "testdata/demo", filepath.Join(dir, "out"), "--quiet")
	run(dir, bin, "bench", "out", "--shuffle", "--ranks", "2", "--batch", "8", "--step", "2ms", "--duration", "300ms", "--price", "2", "--html", page)
	return page
}

// walk calls f for every element.
func walk(n *html.Node, f func(n *html.Node)) {
	if n.Type == html.ElementNode {
		f(n)
	}
	for c := range n.ChildNodes() {
		walk(c, f)
	}
}

// check checks what the document must and must not contain.
func check(t *testing.T, by string, text []byte) {
	t.Helper()
	doc, err := html.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", by, err)
	}
	count := map[string]int{}
	walk(doc, func(n *html.Node) {
		count[n.Data]++
		for _, a := range n.Attr {
			if a.Key == "src" || a.Key == "href" || a.Key == "xlink:href" || strings.HasPrefix(a.Key, "on") {
				t.Errorf("%s: <%s %s=%q>", by, n.Data, a.Key, a.Val)
			}
		}
	})
	if count["script"] > 0 || count["img"] > 0 || count["link"] > 0 || count["section"] != 4 || count["table"] != 4 || count["tr"] < 10 {
		t.Errorf("%s: %v", by, count)
	}
}

// TestReport checks that an HTML parser reads the page, and that a browser, if one is installed,
// draws it without a network.
func TestReport(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	page := write(ctx, t)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	check(t, "parser", text)
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Log("there is no chromium: the page was parsed, not drawn")
		return
	}
	headless := func(args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(ctx, browser, append([]string{
			"--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--user-data-dir=" + t.TempDir(), "--host-resolver-rules=MAP * ~NOTFOUND",
			"--window-size=1100,2200"}, append(args, "file://"+page)...)...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", browser, err)
		}
		return out
	}
	check(t, "browser", headless("--dump-dom"))
	picture := filepath.Join(t.TempDir(), "page.png")
	headless("--screenshot=" + picture)
	file, err := os.Open(picture)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	img, err := png.Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	colours := map[[3]uint32]int{}
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y += 3 {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x += 3 {
			r, g, b, _ := img.At(x, y).RGBA()
			colours[[3]uint32{r >> 8, g >> 8, b >> 8}]++
		}
	}
	if card := [3]uint32{0xff, 0xff, 0xff}; colours[card] < 20000 || len(colours) < 20 { // letters have many shades
		t.Errorf("of %d colours, the white of the sections has %d points", len(colours), colours[card])
	}
}
