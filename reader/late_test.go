package reader

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/shardtool/shardtool/internal/testset"
	"github.com/shardtool/shardtool/reader/order"
)

// lateSet has samples whose bytes tell the data set from others.
func lateSet(t *testing.T, mark byte) *streamed {
	t.Helper()
	var samples []testset.Sample
	for i := range 2000 {
		samples = append(samples, testset.Sample{Key: fmt.Sprintf("%c/%06d", mark, i), Fields: []testset.Field{
			{Name: "a", Data: bytes.Repeat([]byte{mark, byte(i), byte(i >> 8)}, 700)}, {Name: "b", Data: []byte{mark}}}})
	}
	return newStreamed(t, inDir(t), samples, testset.Options{BlockSize: 16 << 10, ShardSize: 1 << 20})
}

// lateOptions are the same for all streams, so that each can use the memory of one before it.
var lateOptions = StreamOptions{
	Shuffle: true, GlobalBatch: 100, Hold: 4,
	Order:  OrderOptions{ShuffleMemory: 1 << 20},
	Tuning: Tuning{Memory: 24 << 20, Workers: 1},
}

// take takes batches from a stream.
func take(t *testing.T, s *Stream, n int) (out []*Batch) {
	t.Helper()
	for range n {
		b, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// TestSamplesAfterClose keeps samples past the Close of their stream, while other streams come and
// go: those of batches that were not released stay as they are, by whatever they are kept.
func TestSamplesAfterClose(t *testing.T) {
	mine, other := lateSet(t, 'm'), lateSet(t, 'o')
	for name, keep := range map[string]func(b []*Batch) func() []Sample{
		"batches": func(b []*Batch) func() []Sample {
			return func() (all []Sample) {
				for i := range b {
					all = append(all, b[i].Samples...)
				}
				return all
			}
		},
		"samples": func(b []*Batch) func() []Sample {
			all := append(append([]Sample(nil), b[0].Samples...), b[1].Samples...)
			return func() []Sample { return all }
		},
		"one sample": func(b []*Batch) func() []Sample {
			one := b[1].Samples[7]
			return func() []Sample { return []Sample{one} }
		},
	} {
		t.Run(name, func(t *testing.T) {
			kept := func() func() []Sample { // nothing but kept refers to the stream afterwards
				s, err := mine.Stream(t.Context(), lateOptions)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				b := take(t, s, 4)
				b[2].Release()
				return keep(b[:2])
			}()
			for range 3 {
				func() {
					s, err := other.Stream(t.Context(), lateOptions)
					if err != nil {
						t.Fatal(err)
					}
					defer s.Close()
					for range 30 {
						for _, b := range take(t, s, 4) {
							b.Release()
						}
					}
				}()
				runtime.GC()
				for _, smp := range kept() {
					if err := equal(&smp, int(smp.Number), mine.samples[smp.Number]); err != nil {
						t.Fatalf("a sample after Close: %v", err)
					}
				}
			}
		})
	}
}

// TestReleaseAfterClose: the last Release after Close gives the memory of the stream back, once.
func TestReleaseAfterClose(t *testing.T) {
	set := lateSet(t, 'm')
	s := set.stream(t, lateOptions)
	b := take(t, s, 3)
	b[0].Release()
	s.Close()
	b[1].Release()
	for i := range b[2].Samples {
		smp := &b[2].Samples[i]
		if err := equal(smp, int(smp.Number), set.samples[smp.Number]); err != nil {
			t.Fatalf("a batch in hand after another was released: %v", err)
		}
	}
	b[2].Release()
	b[2].Release()
	if b[2].Samples != nil || s.held() != 0 {
		t.Errorf("%d batches are held after all were released", s.held())
	}
}

// TestAnyAccessor: a batch of samples answers what one of rows does, and the other way round; what
// it does not have is an error or nothing, also after Release.
func TestAnyAccessor(t *testing.T) {
	set := lateSet(t, 'm')
	b := take(t, set.stream(t, lateOptions), 1)[0]
	if b.Len() != len(b.Samples) || b.Len() == 0 {
		t.Fatalf("Len is %d of %d samples", b.Len(), len(b.Samples))
	}
	for i := range b.Samples {
		s, r := &b.Samples[i], b.Ref(i)
		if r.Number != s.Number || r.Epoch != s.Epoch || b.Seed(i) != s.Seed() || string(b.AppendKey(nil, i)) != string(s.Key) {
			t.Fatalf("sample %d is %+v, the batch says %+v", s.Number, s, r)
		}
		if cut := b.Cut(i); cut != (order.Cut{}) {
			t.Fatalf("a cut of a batch without units: %+v", cut)
		}
	}
	none := func(when string, want error) {
		t.Helper()
		if data, stride := b.Rows("a"); data != nil || stride != 0 {
			t.Errorf("%s: %d bytes of rows", when, len(data))
		}
		if err := b.CopyRows(nil, "a"); !errors.Is(err, want) {
			t.Errorf("%s: %v", when, err)
		}
		if source, _ := b.UnitSource(0); source != -1 {
			t.Errorf("%s: unit 0 is of source %d", when, source)
		}
	}
	none("samples", ErrFields)
	b.Release()
	if none("released", ErrFields); b.Len() != 0 || b.Samples != nil {
		t.Errorf("a released batch holds %d samples", b.Len())
	}
}
