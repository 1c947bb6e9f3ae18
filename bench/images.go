package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/shardtool/shardtool/bench/table"
)

// noFFCV is why FFCV is not among the peers.
const noFFCV = "FFCV 1.0.2 does not install: it is source alone, and its build needs headers of OpenCV and libjpeg-turbo"

// imagesBench measures shardtool.Image.
type imagesBench struct {
	*bench
	folder string
}

// decoded is what the script prints of a reading.
type decoded struct {
	Seconds, CPU float64
	Images       int
}

// images measures batches of decoded images: against the decoder alone, and against other loaders.
func (b *bench) images() error {
	if b.others("images") == "" {
		return nil
	}
	m := &imagesBench{b, filepath.Join(b.dir, "images")}
	defer os.RemoveAll(m.folder)
	var size int
	if err := b.ask(&size, b.interpreter, "images.py", "make", m.folder,
		strconv.Itoa(max(256, m.mib<<19/110_000))); err != nil {
		return err
	}
	if err := m.floor(size); err != nil {
		return err
	}
	b.LeftOut("images", noFFCV)
	for _, peer := range []peerSystem{
		{"webdataset", "WebDataset " + release("webdataset")}, {"mosaicml", "MosaicML Streaming " + release("mosaicml-streaming")}, {"litdata", "LitData " + release("litdata")},
	} {
		if err := m.against(peer.id, peer.shown); err != nil {
			return fmt.Errorf("%s: %w", peer.shown, err)
		}
	}
	return nil
}

// floor compares with threads that decode what is in memory.
func (m *imagesBench) floor(size int) error {
	var wall, used table.Sample
	var our, their decoded
	for range m.times {
		var err error
		if their, err = m.read("floor", m.cores); err != nil {
			return err
		}
		if our, err = m.read("ours", m.cores); err != nil {
			return err
		}
		each := float64(our.Images) / float64(their.Images)
		wall, used = append(wall, each*their.Seconds/our.Seconds), append(used, each*their.CPU/our.CPU)
	}
	detail := fmt.Sprintf("JPEGs of 500 x 375 and %d bytes to (64, 3, 224, 224); %.0f images/s against %.0f; %.0f µs of processor time for an image, the child's included, against %.0f",
		size, our.rate(), their.rate(), our.each(), their.each())
	m.AtLeast("images", fmt.Sprintf("images / simplejpeg and torch's kernel on %d cores", m.cores), wall, "x", 0.95,
		detail)
	m.AtLeast("images", "images / simplejpeg and torch's kernel: processor time", used, "x", 0.95, detail)
	return nil
}

// against compares with another loader, at its best number of workers.
func (m *imagesBench) against(id, shown string) error {
	best, workers := decoded{}, 0
	for w := range m.cores + 1 {
		got, err := m.read(id, w)
		if err != nil {
			return err
		}
		if got.rate() > best.rate() {
			best, workers = got, w
		}
	}
	var wall, used table.Sample
	var our, their decoded
	for range min(m.times, 3) {
		var err error
		if their, err = m.read(id, workers); err != nil {
			return err
		}
		if our, err = m.read("ours", m.cores); err != nil {
			return err
		}
		wall, used = append(wall, our.rate()/their.rate()), append(used, their.each()/our.each())
	}
	m.AtLeast("images", "images / "+shown+" with the same decoder", wall, "x", 1.3,
		fmt.Sprintf("%.0f images/s against %.0f; its best of 0 to %d workers is %d (prefetch_factor 4, persistent); %.0f µs of processor time for an image against %.0f: %.2f x",
			our.rate(), their.rate(), m.cores, workers, our.each(), their.each(), used.Median()))
	return nil
}

func (d decoded) rate() float64 {
	if d.Images == 0 {
		return 0
	}
	return float64(d.Images) / d.Seconds
}

// each is the processor time for an image in microseconds.
func (d decoded) each() float64 { return 1e6 * d.CPU / float64(d.Images) }

func (m *imagesBench) read(system string, workers int) (out decoded, err error) {
	return out, m.ask(&out, m.interpreter, "images.py", "read", system, strconv.Itoa(workers), m.folder)
}
