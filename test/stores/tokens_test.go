package stores_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/objstore"
	s3store "github.com/shardtool/shardtool/objstore/s3"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/test/proxy"
	"github.com/shardtool/shardtool/writer"
	"github.com/shardtool/shardtool/writer/source"
	"github.com/shardtool/shardtool/writer/source/tokens"
)

// numpy makes a .npy file of uint16.
func numpy(ids []byte) []byte {
	head := fmt.Sprintf("{'descr': '<u2', 'fortran_order': False, 'shape': (%d,), }", len(ids)/2)
	head += strings.Repeat(" ", 117-len(head)) + "\n"
	return append([]byte("\x93NUMPY\x01\x00\x76\x00"+head), ids...)
}

// TestPackTokens packs arrays over a slow network that breaks off some answers: a large one, cut in
// few requests, and many small ones, joined as documents, many of which are requested at a time.
func TestPackTokens(t *testing.T) {
	s, _ := versity(t)
	bucket := s.bucket(t)
	raw := s.open(t, bucket, "raw", s3store.Options{})
	large := pattern(1, 10<<20)
	if _, err := objstore.Put(t.Context(), raw, "large.npy", numpy(large), objstore.Condition{}); err != nil {
		t.Fatal(err)
	}
	docs := s.open(t, bucket, "docs", s3store.Options{})
	const files = 200
	var joined []byte
	var group errgroup.Group
	group.SetLimit(16)
	for i := range files {
		ids := pattern(uint64(i), 2*(i*37%900))
		joined = binary.LittleEndian.AppendUint16(append(joined, ids...), 7)
		group.Go(func() error {
			_, err := objstore.Put(t.Context(), docs, fmt.Sprintf("%04d.npy", i), numpy(ids), objstore.Condition{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	far, p := s.faulty(t, proxy.Options{FirstByte: 100 * time.Millisecond, Seed: 1, Faults: proxy.Faults{Reset: 0.05, Busy: 0.05}})
	cut, err := tokens.NewArrays(t.Context(), []source.Input{{Store: far.open(t, bucket, "raw", s3store.Options{}), Name: "large.npy"}}, tokens.Options{Length: 2048})
	if err != nil {
		t.Fatal(err)
	}
	files1, err := source.NewObjects(t.Context(), []objstore.Store{far.open(t, bucket, "docs", s3store.Options{})}, source.FilesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	joinedSrc, err := tokens.NewJoin(files1, tokens.JoinOptions{Length: 100, Separator: []int64{7}, DType: tokens.Uint16})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		src      writer.Source
		want     []byte
		inFlight int64
	}{"cut": {cut, large, 1}, "joined": {joinedSrc, joined, 16}} {
		p.ResetCounts()
		if _, err := writer.Pack(t.Context(), s.open(t, bucket, name, s3store.Options{}), c.src, writer.Options{Workers: 2}); err != nil {
			t.Fatal(err)
		}
		if n := p.Counts().MaxInFlight; n < c.inFlight {
			t.Errorf("%s: at most %d requests were in flight", name, n)
		}
		if err := c.src.Close(); err != nil {
			t.Error(err)
		}
		ds, err := reader.Open(t.Context(), s.open(t, bucket, name, s3store.Options{}), reader.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for sample, err := range ds.Samples(t.Context(), reader.Range{}) {
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range sample.Fields {
				if string(f.Name) == tokens.Field {
					got = append(got, f.Data[128:]...)
				}
			}
		}
		ds.Close()
		if !bytes.Equal(got, c.want) {
			t.Errorf("%s: %d bytes are not the %d there are", name, len(got), len(c.want))
		}
	}
}
