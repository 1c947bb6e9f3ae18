package parts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/internal/parts"
)

// write writes data in pieces of random sizes.
func write(w *parts.Writer, data []byte) error {
	random := rand.New(rand.NewPCG(1, uint64(len(data))))
	for len(data) > 0 {
		n := 1 + random.IntN(len(data))
		if _, err := w.Write(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// TestParts checks that the parts make up what was written, that they have the sizes of their
// segments, and that no more are in flight than allowed.
func TestParts(t *testing.T) {
	o := parts.Options{Size: 10, Workers: 4, Segment: 3, Growth: 2, Most: 9}
	sizes := []int{10, 10, 10, 20, 20, 20, 40, 40, 40} // 210 in all
	for total := range 211 {
		data := make([]byte, total)
		for i := range data {
			data[i] = byte(i)
		}
		var (
			mu     sync.Mutex
			sent   = map[int][]byte{}
			flight atomic.Int64
		)
		w := parts.New(t.Context(), o, func(_ context.Context, number int, part []byte) error {
			if n := flight.Add(1); n > 4 || number > 3 && n > 2 || number > 6 && n > 1 {
				t.Errorf("%d parts at once, one is part %d", n, number)
			}
			defer flight.Add(-1)
			mu.Lock()
			defer mu.Unlock()
			sent[number] = bytes.Clone(part)
			return nil
		})
		if err := write(w, data); err != nil {
			t.Fatal(err)
		}
		n, got, err := w.Close()
		if err != nil || n != len(sent) || n > 0 && got != nil || n == 0 && total > 10 {
			t.Fatalf("%d bytes: %d parts, %d were sent, %d bytes left, %v", total, n, len(sent), len(got), err)
		}
		for i := range n {
			if i < n-1 && len(sent[i+1]) != sizes[i] {
				t.Errorf("%d bytes: part %d has %d", total, i+1, len(sent[i+1]))
			}
			got = append(got, sent[i+1]...)
		}
		if !bytes.Equal(got, data) {
			t.Fatalf("%d bytes: the parts are %v", total, sent)
		}
	}
	w := parts.New(t.Context(), o, func(context.Context, int, []byte) error { return nil })
	err := write(w, make([]byte, 211))
	if err == nil {
		_, _, err = w.Close()
	}
	if !errors.Is(err, objstore.ErrTooLarge) {
		t.Errorf("more than the largest number of parts: %v", err)
	}
}

// TestFailure fails one part: the others are cancelled, and the error is that part's.
func TestFailure(t *testing.T) {
	failed := errors.New("refused")
	for bad := 1; bad <= 6; bad++ {
		t.Run(fmt.Sprint(bad), func(t *testing.T) {
			w := parts.New(t.Context(), parts.Options{Size: 4, Workers: 2, Segment: 4, Growth: 2, Most: 100}, func(ctx context.Context, number int, _ []byte) error {
				if number == bad {
					return failed
				}
				if number > bad {
					<-ctx.Done()
				}
				return ctx.Err()
			})
			err := write(w, make([]byte, 100))
			if err == nil {
				_, _, err = w.Close()
			}
			if !errors.Is(err, failed) {
				t.Fatal(err)
			}
			_, _ = w.Wait()
		})
	}
}
