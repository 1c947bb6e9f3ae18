package view

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/objstore/storetest"
	"github.com/shardtool/shardtool/objstore/storetest/mem"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
	"github.com/shardtool/shardtool/reshard/curate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "the-token"

// shown is a server over data sets in memory, and a browser that has the cookie.
type shown struct {
	*Server
	t testing.TB
}

// show serves a data set of samples with an integer attribute.
func show(t *testing.T, samples []testset.Sample, opts ...func(*testset.Options)) *shown {
	t.Helper()
	store := mem.New()
	o := testset.Options{
		BlockSize: 20_000, ShardSize: 400_000,
		Integer: func(key string) (int64, bool) { return int64(len(key)) + int64(key[len(key)-1]), true },
		Label:   func(key string) string { return "<" + key[:1] + ">" },
	}
	for _, f := range opts {
		f(&o)
	}
	if _, err := testset.Build(t.Context(), store, slices.Values(samples), o); err != nil {
		t.Fatal(err)
	}
	return serve(t, store)
}

// serve serves the data set of a store.
func serve(t testing.TB, store objstore.Store) *shown {
	t.Helper()
	ds, err := reader.Open(t.Context(), store, reader.Options{Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{
		Title: "a <title>", Sources: []Source{{Address: objstore.NewAddress("it's/here"), Set: ds}}, Token: token, Listen: "127.0.0.1:8000",
		GlobalBatch: 16, World: 1,
		Run: runOf(reader.SourceSpec{Set: ds}),
	})
	t.Cleanup(func() { end(s) })
	return &shown{s, t}
}

// runOf opens a run over a source.
func runOf(of reader.SourceSpec) func(context.Context) (*reader.Run, error) {
	return func(ctx context.Context) (*reader.Run, error) {
		spec := reader.Spec{Sources: []reader.SourceSpec{of}, Order: order.Choice{Shuffle: true, Seed: 3, GlobalBatch: 16, Epochs: 1 << 30}}
		x, err := reader.OpenSources(ctx, spec, nil, nil)
		if err != nil {
			return nil, err
		}
		return x.Resolve(ctx, spec, nil, reader.Change{}, reader.Planning{})
	}
}

// far serves the objects of a store as S3 does.
func far(t *testing.T, from objstore.Store) (objstore.Store, *s3server.Server) {
	t.Helper()
	server := s3server.New(t)
	for info, err := range from.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := objstore.ReadAll(t.Context(), from, info.Name, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		server.Objects[info.Name] = s3server.Stored{Data: data, ETag: `"` + info.Name + `"`}
	}
	store, err := s3.New(t.Context(), "bucket", "", s3.Options{Endpoint: server.URL, Anonymous: true, Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	return store, server
}

// end closes a server and its data sets.
func end(s *Server) {
	s.Close()
	for i := range s.Sources {
		s.Sources[i].Set.Close()
	}
}

// get requests a page and returns its status, header and text.
func (s *shown) get(path string, header ...string) (int, http.Header, string) {
	s.t.Helper()
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8000"+path, nil)
	r.AddCookie(&http.Cookie{Name: s.cookie(), Value: token})
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code, w.Header(), w.Body.String()
}

// want fails unless a page has the status and all the texts.
func (s *shown) want(path string, status int, texts ...string) string {
	s.t.Helper()
	code, _, page := s.get(path)
	if code != status {
		s.t.Errorf("%s: status %d, want %d: %s", path, code, status, page)
	}
	for _, text := range texts {
		if !strings.Contains(page, text) {
			s.t.Errorf("%s: no %q in %s", path, text, page)
		}
	}
	return page
}

func file(fields ...string) (out []testset.Field) {
	for i := 0; i < len(fields); i += 2 {
		out = append(out, testset.Field{Name: fields[i], Data: []byte(fields[i+1])})
	}
	return out
}

func texts(n int) (samples []testset.Sample) {
	for i := range n {
		samples = append(samples, testset.Sample{Key: fmt.Sprintf("%c/%04d", 'a'+i*3/n, i), Fields: file("txt", fmt.Sprintf("text %d.", i)+strings.Repeat("x", i))})
	}
	return samples
}

func TestPages(t *testing.T) {
	s := show(t, texts(200))
	page := s.want("/samples", 200, "200 samples", "a/0000", "text 23.", "&lt;a&gt;", "a &lt;title&gt;", `rel="next"`)
	if strings.Contains(page, "text 24.") {
		t.Error("a page has 24 samples")
	}
	s.want("/samples?from=190&count=100", 200, "text 199.", `rel="prev"`)
	s.want("/samples?from=200", 404, "there are 200 samples")
	s.want("/samples?show=key&find=b/0100", 200, "text 100.")
	s.want("/samples?show=key&find=c/", 200, "text 134.", "keys that begin so")
	s.want("/samples?show=key&find=nowhere", 200, "No sample is listed")
	s.want("/samples?show=where&find="+url.QueryEscape("label = '<c>'"), 200, "66 samples are listed", "text 134.")
	s.want("/samples?show=where&find="+url.QueryEscape("label = = 3"), 400, "character")
	s.want("/samples?show=view&find=none", 404, "none")
	s.want("/samples?show=view&find=../../secret", 400, "use 1 to 64")
	s.want("/samples?show=nothing", 400, "nothing")
	s.want("/samples?from=x", 400, "is no number")
	s.want("/samples?source=other", 404, "other")
	s.want("/sample?n=7", 200, "a/0007", "text 7.", "it&#39;\\&#39;&#39;s/here", "--number 7", "Attributes")
	s.want("/sample?n=200", 404, "has 200")
	s.want("/data", 200, "200", "txt", "tokens", "<rect", "train-000000")
	s.want("/step", 200, "rank 0 of 1", "seed")
	s.want("/step?n=4&world=2&rank=1", 200, "rank 1 of 2", "Step 4")
	s.want("/step?rank=2&world=2", 400, "rank 2 of 2")
	s.want("/step?n=99999999999999999999", 400, "is no number")
	s.want("/marks", 200, "Marked samples")
	s.want("/field?n=3&name=nothing", 404, "no field")
	s.want("/other", 404)
	s.want("/../../etc/passwd", 307, `"/etc/passwd"`)
	s.want("/etc/passwd", 404)
}

// TestBlocksAreReadOnce: a page reads each block once, and its images nothing more.
func TestBlocksAreReadOnce(t *testing.T) {
	var samples []testset.Sample
	for i := range 300 {
		samples = append(samples, testset.Sample{Key: fmt.Sprintf("a/%04d", i), Fields: file("png", picture(), "txt", fmt.Sprintf("text %d.", i))})
	}
	s := show(t, samples, func(o *testset.Options) { o.ShardSize = 10 << 20 })
	store := storetest.NewFaulty(s.Sources[0].Set.Store(), storetest.Fault{At: -1})
	ds, err := reader.Open(t.Context(), store, reader.Options{Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	s.Sources[0].Set = ds
	s.want("/samples?from=0", 200, "text 23.") // opens the shard and reads its index
	at := func(n uint64) int {
		place, err := ds.Locate(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return place.Block
	}
	before := store.Ops()
	s.want("/samples?from=200&count=60", 200, "text 200.", "text 259.")
	if got, want := store.Ops()-before, at(259)-at(200)+1; got != want || want < 2 {
		t.Errorf("a page over %d blocks makes %d reads", want, got)
	}
	before = store.Ops()
	for n := 200; n < 260; n++ {
		if code, h, got := s.get(fmt.Sprintf("/field?n=%d&name=png", n)); code != 200 || h.Get("Content-Type") != "image/png" || got != picture() {
			t.Errorf("image of sample %d: %d, %v", n, code, h)
		}
	}
	if got := store.Ops() - before; got != 0 {
		t.Errorf("60 images of a page make %d reads", got)
	}
	if s.recent.bytes == 0 || s.recent.bytes > recentBytes {
		t.Errorf("%d bytes are kept", s.recent.bytes)
	}
}

// TestLayers shows the fields of layers: a new one, which some samples lack, one in place of the
// data set's, and a large one.
func TestLayers(t *testing.T) {
	base, caption, text := mem.New(), mem.New(), mem.New()
	set, err := testset.Build(t.Context(), base, slices.Values(texts(100)), testset.Options{BlockSize: 20_000, ShardSize: 60_000})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("caption ", 400_000)
	if _, err = testset.Layer(t.Context(), caption, set, nil, func(key string) []testset.Field {
		switch key {
		case "a/0003":
			return nil
		case "a/0004":
			return file("caption", long)
		}
		return file("caption", "of "+key+".", "txt", "of the first layer")
	}, testset.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err = testset.Layer(t.Context(), text, set, []string{"txt"}, func(key string) []testset.Field {
		return file("txt", "new "+key+".")
	}, testset.Options{}); err != nil {
		t.Fatal(err)
	}
	ds, err := reader.Open(t.Context(), base, reader.Options{Memory: 64 << 20, Layers: []reader.Layer{{Name: "text", Store: text}, {Name: "it's", Store: caption}}})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	s := show(t, texts(1))
	s.Sources[0].Set = ds
	page := s.want("/samples?count=10", 200, "of a/0002.", "of a/0009.", "new a/0003.", "the first 16384 of 3200000 bytes")
	for _, bad := range []string{"text 2.", "of a/0003.", "first layer"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	s.want("/sample?n=99", 200, "of c/0099.", "new c/0099.", `--layer text --layer`)
	s.want("/field?n=99&name=caption", 200, "of c/0099.")
	s.want("/field?n=50&name=txt", 200, "new b/0050.")
	s.want("/field?n=3&name=caption", 404, "no field")
	if _, _, got := s.get("/field?n=4&name=caption"); got != long {
		t.Errorf("the large field has %d bytes, want %d", len(got), len(long))
	}
	s.want("/data", 200, "caption", "Layers", "text it&#39;s")
}

// TestStepIsWhatWasRead compares the pages of steps with streams: 50 random runs over one data set
// or mixes, views, packed sequences and micro-batches, which continue from a checkpoint with other
// ranks, another batch, and in a mix with other sources and weights. The links lead from step to
// step.
func TestStepIsWhatWasRead(t *testing.T) {
	samples, lengths := testset.Documents(150)
	store := mem.New()
	if _, err := testset.Build(t.Context(), store, slices.Values(samples), testset.Options{
		BlockSize: 4000, ShardSize: 30_000, Integer: func(key string) (int64, bool) { return int64(lengths[key]), true },
	}); err != nil {
		t.Fatal(err)
	}
	cases := 50
	if testing.Short() {
		cases = 10
	}
	for i := range cases {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), 7))
			c := &steps{t: t, r: r, pages: New(Options{World: 1})}
			tail := []order.Tail{order.TailWrap, order.TailShort, order.TailDrop, order.TailPad}[r.IntN(4)]
			fixed := reader.Lanes{Lanes: 2, RunBlocks: 1, Delay: 3}
			c.spec = reader.Spec{Order: order.Choice{Shuffle: r.IntN(4) > 0, Seed: r.Uint64(), Tail: tail, GlobalBatch: 4, Epochs: 1 << 30}}
			if kind := r.IntN(3); kind > 0 {
				c.spec.Units = units.Params{Kind: []units.Kind{units.Pack, units.Bucket}[kind-1], Size: 100, Long: units.LongSplit, Window: 32, By: "tokens"}
			}
			if !c.spec.Order.Shuffle {
				fixed = reader.Lanes{}
			}
			n := r.IntN(4)
			if n > 1 {
				c.spec.Length.Units = 70
			}
			for j := range max(n, 1) {
				ds, err := reader.Open(t.Context(), store, reader.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer ds.Close()
				if r.IntN(3) == 0 {
					v, _, err := curate.Make(t.Context(), ds, curate.Spec{Where: []string{"tokens >= 20"}})
					if err == nil {
						err = ds.UseView(v)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				of := reader.SourceSpec{Set: ds, Fixed: fixed}
				if n > 1 {
					of.Name, of.Share = string(rune('a'+j)), big.NewRat(int64(1+r.IntN(5)), 1)
				}
				c.spec.Sources = append(c.spec.Sources, of)
				c.pages.Sources = append(c.pages.Sources, Source{Name: of.Name, Set: ds})
			}
			at := c.run(nil, reader.Change{})
			if n > 1 { // a source less, and other weights
				c.spec.Sources = c.spec.Sources[:n-r.IntN(2)]
				c.spec.Sources[0].Share = big.NewRat(7, 2)
			}
			c.run(at, reader.Change{Mix: n > 1})
		})
	}
}

// steps is a run whose pages are compared.
type steps struct {
	t     *testing.T
	r     *rand.Rand
	spec  reader.Spec
	pages *Server
}

// run reads some steps of a rank, and compares their pages. It returns the last checkpoint.
func (c *steps) run(from *reader.Checkpoint, change reader.Change) *reader.Checkpoint {
	t := c.t
	world := 1 + c.r.IntN(3)
	o := reader.StreamOptions{GlobalBatch: world + c.r.IntN(20), World: world, Rank: c.r.IntN(world), Epochs: 1 << 30}
	c.spec.Order.GlobalBatch = o.GlobalBatch
	sources, err := reader.OpenSources(t.Context(), c.spec, nil, from)
	if err != nil {
		t.Fatal(err)
	}
	run, err := sources.Resolve(t.Context(), c.spec, from, change, reader.Planning{})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	c.pages.run = run
	stream, err := run.Stream(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	address := fmt.Sprintf("/step?batch=%d&world=%d&rank=%d", o.GlobalBatch, world, o.Rank)
	var last reader.Checkpoint
	position := uint64(0)
	for step := range 2 + c.r.IntN(12) {
		b, err := stream.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if last, err = b.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		p := c.compare(address, b)
		if step > 0 { // back, and forward again
			if p.Before == "" {
				t.Fatalf("%s: no step before", address)
			}
			if before := c.page(p.Before); before.Of.Position != position {
				t.Errorf("%s: the step before is at %d, want %d", address, before.Of.Position, position)
			}
		}
		address, position = p.Next, p.Of.Position
	}
	page, err := c.pages.samples(httptest.NewRequest(http.MethodGet, "/samples?show=training&count=1&from=10", nil))
	if err != nil {
		t.Fatal(err)
	}
	want := "position 10,"
	if mixed(run) {
		want = fmt.Sprintf("position %d,", run.Begin().Position+10)
	}
	if got := page.(*samplesPage).Cards[0].Under; !strings.HasPrefix(got, want) {
		t.Errorf("samples of training from 10 on begin with %s, want %s", got, want)
	}
	return &last
}

func (c *steps) page(address string) *stepPage {
	page, err := c.pages.step(httptest.NewRequest(http.MethodGet, address, nil))
	if err != nil {
		c.t.Fatalf("%s: %v", address, err)
	}
	return page.(*stepPage)
}

// compare compares the page at an address with a batch.
func (c *steps) compare(address string, b *reader.Batch) *stepPage {
	p := c.page(address)
	if len(p.Of.Samples) != len(b.Samples) {
		c.t.Fatalf("%s: %d samples, want %d", address, len(p.Of.Samples), len(b.Samples))
	}
	for i := range b.Samples {
		got, want := &p.Of.Samples[i], &b.Samples[i]
		if got.Padding != want.Padding || got.Source != want.Source() || got.Number != want.Number || got.Epoch != uint64(want.Epoch) || got.Seed != want.Seed() {
			c.t.Fatalf("%s, sample %d: %+v, want %s of %s", address, i, got, want.Key, want.Source())
		}
		if p.Of.Units != nil {
			if cut := b.Cut(i); *got.Row != int(cut.Unit) || *got.Offset != cut.Offset || *got.Length != cut.Length {
				c.t.Fatalf("%s, sample %d: row %d, %d+%d, want %+v", address, i, *got.Row, *got.Offset, *got.Length, cut)
			}
		}
		if i < len(p.Cards) && (p.Cards[i].Key != string(want.Key) || p.Cards[i].Source != want.Source() || p.Cards[i].Error != "") {
			c.t.Fatalf("%s, card %d: %+v", address, i, p.Cards[i])
		}
	}
	return p
}

// bomb is the beginning of a PNG of 60,000 by 60,000 pixels.
func bomb() string {
	head := binary.BigEndian.AppendUint32([]byte("IHDR"), 60_000)
	head = append(binary.BigEndian.AppendUint32(head, 60_000), 8, 6, 0, 0, 0)
	out := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d"), head...)
	return string(binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(head)))
}

func picture() string {
	var b bytes.Buffer
	_ = png.Encode(&b, image.NewGray(image.Rect(0, 0, 30, 20)))
	return b.String()
}

func numpy(descr string, shape []int, data []byte) string {
	return string(append(npy.AppendHeader(nil, descr, shape...), data...))
}

// TestLooks shows fields as what their bytes are, whatever their names say.
func TestLooks(t *testing.T) {
	for _, c := range []struct{ name, data, kind, text string }{
		{"png", picture(), "image", ""},
		{"txt", picture(), "image", ""},
		{"png", bomb(), "hex", "60000 × 60000"},
		{"png", picture()[:20], "hex", ""},
		{"png", picture()[:50], "image", ""}, // the browser shows that it is cut
		{"mp4", "\x00\x00\x00\x18ftyp", "hex", ""},
		{"flac", "fLa", "text", ""},
		{"webp", "RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff", "hex", "16777216"},
		{"jpg", "<script>alert(1)</script>", "text", "<script>"},
		{"svg", `<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><script/></svg>`, "text", "<svg"},
		{"html", "<html><script>alert(1)</script>", "text", "<html>"},
		{"pdf", "%PDF-1.4 \x00\x01", "hex", ""},
		{"mp3", "ID3\x03\x00\x00\x00\x00\x00\x00", "audio", ""},
		{"flac", "fLaC\x00\x00\x00\x22", "audio", ""},
		{"m4a", "\x00\x00\x00\x18ftypM4A \x00\x00\x02\x00isomiso2", "audio", ""},
		{"heic", "\x00\x00\x00\x18ftypheic\x00\x00\x02\x00mif1miso", "hex", ""},
		{"mp4", "\x00\x00\x00\x18ftypisom\x00\x00\x02\x00isomiso2", "video", ""},
		{"json", `{"a":[1,2,{"b":null}]}`, "json", ""},
		{"txt", `{"a": 1}`, "json", ""},
		{"json", `{"a":1}{"b":2}`, "text", ""},
		{"json", `{"a":`, "text", ""},
		{"json", strings.Repeat("[", 30_000), "text", ""},
		{"json", strings.Repeat("[", 9000) + strings.Repeat("]", 9000), "json", ""},
		{"npy", numpy("<f4", []int{2, 3}, make([]byte, 24)), "array", ""},
		{"npy", numpy("<f4", []int{2, 300}, make([]byte, 24)), "hex", ""}, // cut
		{"npy", numpy("<f4", []int{1 << 40, 1 << 40}, nil), "hex", ""},
		{"npy", numpy("|O", []int{2}, make([]byte, 16)), "hex", ""},
		{"txt", "a\x1b[2J\u202eb", "text", "a\ufffd[2J\ufffdb"},
		{"bin", "\x00\x01", "hex", "00 01"},
		{"txt", "", "text", ""},
	} {
		l := lookAt(c.name, []byte(c.data), uint64(len(c.data)), nil)
		if l.Kind != c.kind || !strings.Contains(l.Text+l.Note, c.text) {
			t.Errorf("%s %.30q: %s %q %q, want %s %q", c.name, c.data, l.Kind, l.Text, l.Note, c.kind, c.text)
		}
	}
	cut := lookAt("txt", []byte("aé")[:2], 3, nil)
	if cut.Kind != "text" || cut.Text != "a" {
		t.Errorf("a text that is cut in a character: %+v", cut)
	}
	depth := 0
	for n := treeOf([]byte(strings.Repeat("[", 9000) + strings.Repeat("]", 9000))); n != nil; depth++ {
		if len(n.Items) == 0 {
			break
		}
		n = n.Items[0]
	}
	if depth > maxDepth {
		t.Errorf("the tree has %d levels", depth)
	}
}

func TestArray(t *testing.T) {
	data := []byte{}
	for _, v := range []uint16{0x3c00, 0xc000, 0x7e00, 0x0001} { // 1, -2, NaN, 2^-24
		data = binary.LittleEndian.AppendUint16(data, v)
	}
	text := numpy("<f2", []int{4}, data)
	a, err := readArray([]byte(text), uint64(len(text)))
	if err != nil || a.Least != -2 || a.Top != 1 || a.NaN != 1 || a.values[3] != 1.0/(1<<24) || a.Line == "" || a.ShapeText() != "(4)" {
		t.Errorf("%+v, %v", a, err)
	}
	text = numpy(">i2", []int{2, 2}, []byte{0xff, 0xff, 0, 1, 0, 2, 0, 3})
	if a, err = readArray([]byte(text), uint64(len(text))); err != nil || a.Least != -1 || a.Top != 3 || !a.Heat || a.Mean != 1.25 {
		t.Errorf("%+v, %v", a, err)
	}
	var b bytes.Buffer
	if err := a.draw(&b); err != nil {
		t.Error(err)
	}
	if c, err := png.DecodeConfig(&b); err != nil || c.Width != 2 || c.Height != 2 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestImageAfterProfile shows a JPEG whose size comes after 200 KB of a profile of colors.
func TestImageAfterProfile(t *testing.T) {
	var b bytes.Buffer
	if err := jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, 30, 20)), nil); err != nil {
		t.Fatal(err)
	}
	data := append([]byte(nil), b.Bytes()[:2]...)
	for range 4 {
		data = append(append(data, 0xff, 0xe2, 0xc3, 0x52), make([]byte, 50_000)...)
	}
	data = append(data, b.Bytes()[2:]...)
	s := show(t, []testset.Sample{{Key: "small", Fields: file("jpg", string(data))}, {Key: "zlarge", Fields: file("bin", strings.Repeat("\x00", 3<<20), "jpg", string(data), "txt", "a\r\nb")}})
	page := s.want("/samples", 200, `height="20"`)
	if n := strings.Count(page, "<img"); n != 2 {
		t.Errorf("%d images", n)
	}
	if strings.Contains(page, "of 4 bytes") {
		t.Error("a whole text counts as cut")
	}
	for n := range 2 {
		if _, h, got := s.get(fmt.Sprintf("/field?name=jpg&n=%d", n)); h.Get("Content-Type") != "image/jpeg" || got != string(data) {
			t.Errorf("sample %d: %v", n, h)
		}
	}
}

// TestHostileSamples shows samples that try to harm the page.
func TestHostileSamples(t *testing.T) {
	long := strings.Repeat("0123456789", 300_000)
	s := show(t, []testset.Sample{
		{Key: `<script>alert(1)</script>`, Fields: file("html", "<script>alert(2)</script>", "svg", "<svg onload=alert(3)>", `x" onerror="alert(4)`, picture())},
		{Key: "evil\u202egpj", Fields: file("txt", "</pre><script>alert(5)</script>")},
		{Key: "long", Fields: file("txt", long)},
		{Key: "bell\x07\x1b[31m<b>", Fields: file("txt\x1b[2J", "a field with a name")},
		{Key: "tree", Fields: file("json", `{"</div><script>alert(6)</script>":"<img src=x onerror=alert(7)>"}`)},
	})
	page := s.want("/samples", 200, "&lt;script&gt;alert(1)", "the first 16384 of 3000000 bytes")
	for _, bad := range []string{"<script>alert", "<svg onload", `" onerror="`, "<img src=x", "\u202e", "\x1b", "\x07", "<b>"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	for _, name := range []string{"html", "svg"} {
		_, h, _ := s.get("/field?n=0&name=" + name)
		if h.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") ||
			!strings.Contains(h.Get("Content-Security-Policy"), "sandbox") || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", name, h)
		}
	}
	_, h, got := s.get("/field?n=0&name=" + url.QueryEscape(`x" onerror="alert(4)`))
	if h.Get("Content-Type") != "image/png" || got != picture() {
		t.Errorf("%v, %d bytes", h, len(got))
	}
	status, h, got := s.get("/field?n=2&name=txt", "Range", "bytes=2999990-")
	if status != http.StatusPartialContent || got != "0123456789" || h.Get("Content-Range") != "bytes 2999990-2999999/3000000" {
		t.Errorf("%d %v %q", status, h, got)
	}
	if _, _, got = s.get("/field?n=2&name=txt"); got != long {
		t.Errorf("%d bytes, want %d", len(got), len(long))
	}
}

// TestWhoMayLook refuses requests without the token, and from pages of other sites.
func TestWhoMayLook(t *testing.T) {
	s := show(t, texts(3))
	for _, c := range []struct {
		host, path, cookie string
		status             int
	}{
		{"127.0.0.1:8000", "/samples", token, 200},
		{"localhost:8000", "/samples", token, 200},
		{"127.0.0.1:8000", "/samples", "", 403},
		{"127.0.0.1:8000", "/samples", "wrong", 403},
		{"127.0.0.1:8000", "/samples?token=wrong", "", 403},
		{"127.0.0.1:8000", "/?token=" + token, "", 302},
		{"127.0.0.1:8001", "/samples", token, 421},
		{"evil.example:8000", "/samples", token, 421},
		{"evil.example:8000", "/?token=" + token, "", 421},
		{"", "/samples", token, 421},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		r.Host = c.host
		if c.cookie != "" {
			r.AddCookie(&http.Cookie{Name: s.cookie(), Value: c.cookie})
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%+v: status %d", c, w.Code)
		}
		if strings.Contains(w.Header().Get("Location"), token) {
			t.Error("the token stays in the address")
		}
		if p := w.Header().Get("Content-Security-Policy"); !strings.Contains(p, "default-src 'none'") || strings.Contains(p, "unsafe") {
			t.Errorf("policy %q", p)
		}
	}
}

// TestMarks turns numbers into keys and commands.
func TestMarks(t *testing.T) {
	s := show(t, texts(20))
	post := func(form url.Values) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8000/marks", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.AddCookie(&http.Cookie{Name: s.cookie(), Value: token})
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	page := post(url.Values{"marks-": {"3,19"}}).Body.String()
	for _, text := range []string{"a/0003\nc/0019\n", "--keys marks.txt", "shardtool remove"} {
		if !strings.Contains(page, text) {
			t.Errorf("no %q in %s", text, page)
		}
	}
	if got := post(url.Values{"marks-": {"3,19"}, "save": {"1"}}); got.Body.String() != "a/0003\nc/0019\n" || !strings.Contains(got.Header().Get("Content-Disposition"), "marks.txt") {
		t.Errorf("%v %q", got.Header(), got.Body)
	}
	for _, bad := range []string{"20", "-1", "x", strings.Repeat("1,", maxMarks+1) + "1"} {
		if got := post(url.Values{"marks-": {bad}}); got.Code != 400 {
			t.Errorf("marks %.20q: status %d", bad, got.Code)
		}
	}
	if got := post(url.Values{"marks-": {strings.Repeat("1", 5<<20)}}); got.Code != 400 {
		t.Errorf("5 MiB of marks: status %d", got.Code)
	}
}

// TestManyRequests answers 100 requests at once.
func TestManyRequests(t *testing.T) {
	s := show(t, texts(300))
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			if code, _, page := s.get(fmt.Sprintf("/samples?from=%d", i)); code != 200 || !strings.Contains(page, fmt.Sprintf("text %d.", i)) {
				t.Errorf("page from %d: status %d", i, code)
			}
		})
	}
	wg.Wait()
}

// TestStalledDownloads: downloads of which nothing is taken block no page, and end.
func TestStalledDownloads(t *testing.T) {
	before := stall
	stall = time.Second
	defer func() { stall = before }()
	s := show(t, []testset.Sample{{Key: "a", Fields: []testset.Field{{Name: "bin", Data: make([]byte, 64<<20)}}}})
	server := httptest.NewServer(s)
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	s.Listen = net.JoinHostPort("127.0.0.1", port)
	var stalled []net.Conn
	for range 3 * filesAtOnce {
		conn, err := net.Dial("tcp", s.Listen)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /field?n=0&name=bin HTTP/1.1\r\nHost: %s\r\nCookie: %s=%s\r\nConnection: close\r\n\r\n", s.Listen, s.cookie(), token)
		stalled = append(stalled, conn)
	}
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	page := func() error {
		r, err := http.NewRequest(http.MethodGet, server.URL+"/samples", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.AddCookie(&http.Cookie{Name: s.cookie(), Value: token})
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Fatal(answer.Status)
		}
		_, err = io.Copy(io.Discard, answer.Body)
		return err
	}
	for range 2 * atOnce {
		err := page()
		for try := 0; err != nil && !os.IsTimeout(err) && try < 100; try++ { // a busy machine stalls, too
			err = page()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, conn := range stalled { // each ends before it has everything, the ones that waited too
		time.Sleep(10 * time.Millisecond)
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
}

// TestStoreThatGoesAway says on the cards what is wrong, and shows them when the store is back.
func TestStoreThatGoesAway(t *testing.T) {
	store, server := far(t, show(t, texts(300)).Sources[0].Set.Store())
	s := serve(t, store)
	s.want("/samples", 200, "text 3.")
	server.SetHook(func(w http.ResponseWriter, r *http.Request) bool {
		s3server.Refuse(w, r, http.StatusForbidden, "AccessDenied")
		return true
	})
	s.want("/samples?from=280", 200, `class="bad"`, "AccessDenied", "train-0")
	s.want("/sample?n=290", 200, `class="bad"`, "AccessDenied")
	s.want("/field?n=291&name=txt", 500, "AccessDenied")
	s.want("/step?n=5", 200, "AccessDenied") // the order needs no store
	s.want("/samples?show=key&find=c/", 500, "AccessDenied")
	server.SetHook(nil)
	if page := s.want("/samples?from=280", 200, "text 299."); strings.Contains(page, "AccessDenied") {
		t.Error("the error stays")
	}
}

// TestPruned: the shards of the data set and its tables are deleted while it is shown.
func TestPruned(t *testing.T) {
	s := show(t, texts(300))
	store := s.Sources[0].Set.Store()
	for info, err := range store.List(t.Context(), "") {
		if err == nil {
			err = store.Delete(t.Context(), info.Name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/samples", "/samples?show=training", "/sample?n=7", "/step?n=2"} {
		s.want(path, 200, `class="bad"`, "train-0")
	}
	s.want("/field?n=7&name=txt", 500, "train-000000.tar.zst", "is missing")
	s.want("/data", 500, "is missing")
}

// TestBeyondTheEnd asks for steps that a mix of one epoch of its source does not have.
func TestBeyondTheEnd(t *testing.T) {
	s := show(t, texts(40))
	s.Sources[0].Name = "a"
	s.Run = runOf(reader.SourceSpec{Name: "a", Set: s.Sources[0].Set, Share: big.NewRat(1, 1), MaxEpochs: 1})
	s.want("/step?n=2", 200, "Step 2", "this rank has 8 samples")
	for _, path := range []string{"/step?n=3", "/step?at=0%2B40", "/samples?show=training&from=40&count=8"} {
		s.want(path, 404, "ends before")
	}
	for _, bad := range []string{"n=1000000000", "n=18446744073709551615", "at=4294967295%2B9223372036854775807", "at=1", "at=%2B", "at=-1%2B0", "at=0%2Bx", "at=0%2B18446744073709551615", "batch=0", "world=0", "batch=99999999999"} {
		s.want("/step?"+bad, 400)
	}
}

// TestLargeText reads only the beginning of a text.
func TestLargeText(t *testing.T) {
	text := make([]byte, 48<<20)
	for i := range text {
		text[i] = 'a' + byte(rand.Uint32()>>8)%26
	}
	s := show(t, []testset.Sample{{Key: "large", Fields: file("txt", string(text))}}, func(o *testset.Options) { o.FrameSize, o.Raw = 1<<20, true })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s.want("/samples", 200, "the first 16384 of 50331648 bytes")
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 24<<20 {
		t.Errorf("%d bytes for the beginning of a text", n)
	}
	if l := lookAt("txt", []byte(strings.Repeat("a", headSize)), 2<<30, nil); l.Note != "the first 16384 of 2147483648 bytes" {
		t.Errorf("%q", l.Note)
	}
}

// TestRunThatCannotBeOpened is an error of the page that needs the run, and of no other.
func TestRunThatCannotBeOpened(t *testing.T) {
	s := show(t, texts(3))
	open := s.Run
	s.Run = func(context.Context) (*reader.Run, error) { return nil, io.ErrUnexpectedEOF }
	s.want("/step", 500, "unexpected EOF")
	s.want("/samples", 200, "text 2.")
	s.Run = open
	s.want("/step", 200, "Step 0")
}

// TestTotalsThatTakeLong: the page of a data set without totals in its tables does not wait for the
// indexes of all shards.
func TestTotalsThatTakeLong(t *testing.T) {
	store, server := far(t, show(t, texts(300), func(o *testset.Options) { o.ShardSize = 10_000 }).Sources[0].Set.Store())
	s := serve(t, store)
	server.SetHook(func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, ".zst") {
			return false
		}
		<-r.Context().Done()
		return true
	})
	if page := s.want("/data", 200, "no totals of attributes", "train-000001"); strings.Contains(page, "<rect") {
		t.Error("the page has a histogram of some shards")
	}
}

func TestTokenizer(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ file, want string }{
		"bytes":     {`{"model":{"type":"BPE","vocab":{"Hello":0,"Ġwor":1,"ld":2,"Ã©":3}},"added_tokens":[{"id":9,"content":"<|end|>"}],"decoder":{"type":"ByteLevel"}}`, "Hello worldé<|end|>⟨7⟩"},
		"metaspace": {`{"model":{"type":"Unigram","vocab":[["▁Hello",-1],["▁wor",-2],["ld",-3],["<0xC3>",0],["x",0],["y",0],["z",0],["<0xA9>",0]]}}`, " Hello worldéx⟨9⟩"},
		"wordpiece": {`{"model":{"type":"WordPiece","vocab":{"hello":0,"wor":1,"##ld":2}}}`, " hello world"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		tok, err := ReadTokenizer(path)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ids := map[string][]int64{"bytes": {0, 1, 2, 3, 9, 7}, "metaspace": {0, 1, 2, 3, 7, 4, 9}, "wordpiece": {0, 1, 2}}[name]
		if got := tok.Text(ids); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	for _, bad := range []string{"", "[]", `{"model":{"vocab":7}}`, `{"model":{"vocab":[[1]]}}`} {
		path := filepath.Join(dir, "bad")
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadTokenizer(path); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

// FuzzLook shows any bytes under any name without a panic.
func FuzzLook(f *testing.F) {
	for _, seed := range []string{picture(), bomb(), `{"a":[1]}`, numpy("<f4", []int{2, 3}, make([]byte, 24)), "text"} {
		f.Add("json", []byte(seed), uint16(0))
	}
	f.Fuzz(func(t *testing.T, name string, data []byte, more uint16) {
		l := lookAt(name, data, uint64(len(data))+uint64(more), nil)
		if l.Kind == "array" && l.Array.Heat {
			_ = l.Array.draw(io.Discard)
		}
		if len(l.Text) > 1<<20 || !utf8.ValidString(l.Text) {
			t.Errorf("%d bytes of text", len(l.Text))
		}
	})
}
