package reader_test

import (
	"testing"

	"github.com/shardtool/shardtool/internal/order/mix"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reader/order"
)

// TestExtent: length of an epoch and end of the stream are those of the mix that Mix makes, and of
// the one that a checkpoint or a change of it has.
func TestExtent(t *testing.T) {
	text := "sources: {a: {data: x, weight: 1, max_epochs: 2}, b: {data: y, weight: 1, max_epochs: 1, order: {delay: 9}}}"
	f, data := parse(t, text), []reader.Data{dataOf("1", 5), dataOf("2", 5)}
	m, err := f.MixOf(data, order.Choice{Shuffle: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := mix.New(m)
	if err != nil {
		t.Fatal(err)
	}
	epoch, end, err := f.ExtentOf(data, nil, false)
	want, _ := p.End()
	if err != nil || epoch != m.Epoch || end != want || end != 150 {
		t.Errorf("an epoch of %d, the end at %d, %v, want %d and %d", epoch, end, err, m.Epoch, want)
	}
	from, err := p.Checkpoint(20)
	if err != nil {
		t.Fatal(err)
	}
	more := parse(t, "sources: {a: {data: x, weight: 1}, b: {data: y, weight: 1, max_epochs: 1}}\nepoch: 7")
	if epoch, end, err = more.ExtentOf(data, &from, false); err != nil || epoch != m.Epoch || end != 150 {
		t.Errorf("with a checkpoint: an epoch of %d, the end at %d, %v", epoch, end, err)
	}
	if epoch, end, err = more.ExtentOf(data, &from, true); err != nil || epoch != m.Epoch || end <= 1<<32 {
		t.Errorf("with another mix: an epoch of %d, the end at %d, %v", epoch, end, err)
	}
}
