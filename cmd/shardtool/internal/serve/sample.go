package serve

import (
	"context"
	"fmt"
	"io/fs"
	"runtime/debug"
	"slices"

	"github.com/shardtool/shardtool/reader"
)

// largeSample is the size of a sample whose memory goes back to the system at once.
const largeSample = 64 << 20

// get answers a GET in its own goroutine, so that several samples are read at the same time.
func (s *server) get(ctx context.Context, q request) error {
	if s.data == nil {
		return protocolError("a GET before OPEN")
	}
	ds := s.data.alone()
	if ds == nil {
		return configf("a mix has no samples by number or key: open the data set of a source")
	}
	select {
	case s.getting <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.gets.Go(func() {
		err := s.sample(ctx, ds, &q)
		<-s.getting
		s.pending.Add(-1)
		if err != nil && ctx.Err() == nil {
			_ = s.fail(kindGet, q.u64(8), err)
		}
	})
	return nil
}

// sample reads one sample and sends it.
func (s *server) sample(ctx context.Context, ds *reader.Dataset, q *request) error {
	number := q.u64(16)
	if q.flags()&flagKey != 0 {
		numbers, err := ds.Lookup(ctx, string(q.body))
		if err != nil {
			return err
		}
		i := slices.IndexFunc(numbers, ds.Selection().Has)
		if i < 0 {
			return fmt.Errorf("the view has no sample with the key %q: %w", q.body, fs.ErrNotExist)
		}
		number = numbers[i]
	} else if n := ds.Selection().Distinct(); number < n {
		number = ds.Selection().Number(number)
	} else {
		return fmt.Errorf("no sample number %d: there are %d, counted from 0: %w", number, n, fs.ErrNotExist)
	}
	sample, err := ds.Get(ctx, number)
	if err != nil {
		return err
	}
	reg, err := s.sampleRoom(ctx, sampleSize(sample))
	if err != nil {
		return err
	}
	writeSample(reg.data, sample)
	f := reg.in(newFrame(kindSample, 0, 0)).set64(8, q.u64(8)).set32(20, uint32(len(sample.Fields))).set64(40,
		sample.Number)
	if len(reg.data) >= largeSample {
		sample = nil // the parent copies it now: it would be in memory a third time
		debug.FreeOSMemory()
	}
	return s.send(f, nil)
}

// sampleRoom waits for a region. A sample that is alone may be larger than the bound of the ring.
func (s *server) sampleRoom(ctx context.Context, size int) (*region, error) {
	return s.ring.await(ctx, func() (*region, error) {
		reg, fits, err := s.ring.get(size)
		if err == nil && !fits {
			return s.ring.getAlone(size)
		}
		return reg, err
	})
}

// parts returns the pieces of a sample in the order of its region: the key, then names and
// payloads.
func parts(s *reader.Sample) [][]byte {
	all := [][]byte{s.Key}
	for i := range s.Fields {
		all = append(all, s.Fields[i].Name, s.Fields[i].Data)
	}
	return all
}

// sampleSize returns the length of a sample's region in bytes: the pairs, then the pieces.
func sampleSize(s *reader.Sample) int {
	all := parts(s)
	n := pairSize * len(all)
	for _, p := range all {
		n = align(n, dataAlign) + len(p)
	}
	return n
}

func writeSample(dst []byte, s *reader.Sample) {
	all := parts(s)
	at := pairSize * len(all)
	for i, p := range all {
		at = align(at, dataAlign)
		putPair(dst[pairSize*i:], at, len(p))
		at += copy(dst[at:], p)
	}
}
