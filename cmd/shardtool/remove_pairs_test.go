package main

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/receive"
	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// TestKilledPairs runs two of layer add, annotate, remove and purge at once, and kills both at
// random moments. No receipt that a purge has printed may then be contradicted by what the shards
// decode to: a purged sample is in no shard that the receipt does not name. Repeating the commands
// leads to a data set and a layer without the samples.
func TestKilledPairs(t *testing.T) {
	if testing.Short() {
		t.Skip("it kills processes and looks at what is stored: make test runs it without the race detector")
	}
	t.Parallel()
	kills := killsOr(t, 6)
	set := newKillable(t, 120, 0, 200, func(i int) bool { return i%17 == 3 })
	dir, base, add, update := set.dir, set.base, set.add, set.update
	remove, purge, all := "remove OUT --allow-missing --json --keys "+set.keys, "purge OUT --quiet --json", "purge OUT --quiet --json --generations"
	layered := filepath.Join(dir, "layered")
	copyTree(t, base, layered)
	begin := time.Now()
	if text, err := onSet(add, layered).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	took := 2 * time.Since(begin)
	gone, goneLayered := filepath.Join(dir, "gone"), filepath.Join(dir, "gonelayered")
	for from, to := range map[string]string{base: gone, layered: goneLayered} {
		copyTree(t, from, to)
		if text, err := onSet(remove, to).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	pairs := []struct {
		from  string
		first string // run before, and killed at a random moment
		pair  [2]string
	}{
		{base, add, [2]string{add, remove}}, {gone, "", [2]string{add, purge}}, {gone, "", [2]string{add, all}}, {base, add, [2]string{remove, purge}},
		{base, annotate, [2]string{annotate, remove}}, {gone, "", [2]string{annotate, purge}}, {gone, "", [2]string{annotate, all}},
		{base, annotate, [2]string{remove, purge}}, {gone, annotate, [2]string{purge, all}},
		{goneLayered, "", [2]string{annotate, purge}}, {layered, annotate, [2]string{remove, all}},
		{goneLayered, "", [2]string{update, purge}}, {goneLayered, "", [2]string{update, all}}, {goneLayered, "", [2]string{purge, all}}, {layered, update, [2]string{remove, all}},
	}
	killed, receipts, named, annotated := 0, 0, 0, 0
	for round := 0; killed < kills; round++ {
		if round == 20*kills {
			t.Fatalf("only %d of %d were killed", killed, round)
		}
		p := pairs[round%len(pairs)]
		out := filepath.Join(dir, "out")
		if err := os.RemoveAll(out); err != nil {
			t.Fatal(err)
		}
		copyTree(t, p.from, out)
		mode := "create"
		if p.from == layered || p.from == goneLayered {
			mode = "overwrite"
		}
		run := func(command string, most time.Duration) (*exec.Cmd, *bytes.Buffer, func() bool) {
			cmd, text := onSet(command, out), &bytes.Buffer{}
			start := cmd.Start
			if command == annotate {
				annotated++
				start = func() error { _, err := set.annotate(cmd, out, mode); return err }
			} else {
				cmd.Stdout = text
			}
			if err := start(); err != nil {
				t.Fatal(err)
			}
			return cmd, text, func() bool {
				if strings.HasPrefix(command, "purge") && rand.IntN(2) == 0 { // it prints its receipt
					return cmd.Wait() != nil && !cmd.ProcessState.Exited()
				}
				time.Sleep(time.Duration(rand.Int64N(int64(most))))
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				return !cmd.ProcessState.Exited()
			}
		}
		if p.first != "" {
			_, _, kill := run(p.first, took)
			kill()
		}
		first, firstText, killFirst := run(p.pair[0], took)
		second, secondText, killSecond := run(p.pair[1], took)
		for ended := range both(killFirst, killSecond) {
			if ended {
				killed++
			}
		}
		for _, of := range []struct {
			cmd  *exec.Cmd
			text *bytes.Buffer
		}{{first, firstText}, {second, secondText}} {
			if of.cmd.Args[1] == "purge" && of.cmd.ProcessState.Success() {
				receipts++
				named += receiptHolds(t, out, of.text.Bytes(), set.marks, false)
			}
		}
		last := add
		if p.first == annotate || slices.Contains(p.pair[:], annotate) {
			last = annotate
		}
		for _, command := range []string{remove, all, last} { // after which nothing has them
			if command == annotate {
				cmd := onSet(command, out)
				said, err := set.annotate(cmd, out, mode)
				if err == nil {
					err = errors.Join(<-said, cmd.Wait())
				}
				if err != nil && !strings.Contains(err.Error(), "there is a data set already") {
					t.Fatalf("%v, round %d: annotating: %v", p.pair, round, err)
				}
				continue
			}
			if text, err := onSet(command, out).CombinedOutput(); err != nil {
				if command == add && strings.Contains(string(text), "there is a data set already") {
					continue
				}
				t.Fatalf("%v, round %d: %s: %v\n%s", p.pair, round, command, err, text)
			}
		}
		text, err := onSet(all, out).Output()
		if err != nil {
			t.Fatal(err)
		}
		if n := receiptHolds(t, out, text, set.marks, true); n != 0 {
			t.Fatalf("%v, round %d: a receipt names %d shards after the last purge of generations: %s", p.pair, round, n, text)
		}
		stateOf(t, out)
	}
	t.Logf("killed %d processes (%d times annotate was begun), compared %d receipts of purges beside others, which named %d shards", killed, annotated, receipts, named)
}

// annotate is the command that writes the layer captions as annotate of the Python package has it
// written; see killable.annotate.
const annotate = "receive"

// annotate starts that command, and sends it the rows of all samples that it asks for, also of
// those that were removed: a program may have read them before. When the command has ended, ended
// yields what it said that was no success.
func (set *killable) annotate(cmd *exec.Cmd, out, mode string) (ended <-chan error, err error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	answers, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	end := make(chan error, 1)
	go func() {
		end <- set.sendLayer(in, json.NewDecoder(answers), out, mode)
		_ = in.Close() // the command may have been killed
	}()
	return end, nil
}

func (set *killable) sendLayer(in io.Writer, answers *json.Decoder, out, mode string) error {
	send := func(kind byte, body []byte) error {
		_, err := in.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(kind)<<56|uint64(len(body))), body...))
		return err
	}
	var put int // shards whose results are to come
	var said reply
	wait := func(kind string) error {
		for {
			said = reply{}
			if err := answers.Decode(&said); err != nil {
				return err
			}
			switch said.Kind {
			case "error":
				return errors.New(said.Error.Message)
			case kind:
				return nil
			case "result":
				put--
			}
		}
	}
	begin, err := json.Marshal(receive.Begin{
		Protocol: receive.Protocol, Dataset: objstore.NewAddress(out), Source: "test", Name: "data", Level: "fastest", Mode: mode, Resume: true, Workers: 1,
		Layer: &receive.Layer{Name: objstore.NewAddress("captions"), AllowMiss: true, SkipUnknown: true, Parts: true},
	})
	if err == nil {
		err = send(1, begin)
	}
	if err == nil {
		err = wait("layer")
	}
	if err != nil || said.Done {
		return err
	}
	layer := *said.Layer
	for _, shard := range layer.Missing {
		if err := send(9, binary.LittleEndian.AppendUint32(nil, uint32(shard))); err != nil {
			return err
		}
		if err := wait("ready"); err != nil {
			return err
		}
		if said.Done {
			continue
		}
		from, to := layer.At[shard-layer.First], layer.At[shard-layer.First+1]
		rows := binary.LittleEndian.AppendUint32(make([]byte, 4), uint32(to-from))
		var numbers []byte
		for i := from; i < to; i++ {
			key, text := fmt.Sprintf("s%03d", i), set.captions[i]
			numbers = binary.LittleEndian.AppendUint64(numbers, i)
			rows = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(rows, uint32(len(key))), uint32(len(text)))
			rows = append(append(rows, key...), text...)
		}
		err := cmp.Or(send(2, []byte(`{"fields":[{"name":"caption.txt","type":"txt"}],"attrs":[]}`)), send(8, numbers), send(3, rows), send(5, nil))
		if err != nil {
			return err
		}
		put++
	}
	for put > 0 {
		if err := wait("result"); err != nil {
			return err
		}
		put--
	}
	if err := send(10, nil); err != nil {
		return err
	}
	return wait("result")
}

// both calls two functions at once, and yields their results.
func both(a, b func() bool) <-chan bool {
	ends := make(chan bool, 2)
	var wg sync.WaitGroup
	for _, f := range []func() bool{a, b} {
		wg.Go(func() { ends <- f() })
	}
	wg.Wait()
	close(ends)
	return ends
}

// receipt is what receiptHolds reads of a receipt.
type receipt struct {
	Samples []struct {
		Key string `json:"key"`
	} `json:"samples"`
	Holding []string `json:"generations_holding"`
	Not     []string `json:"not_searched"`
	Layers  []struct {
		Receipt *receipt `json:"receipt"`
	} `json:"layers"`
}

// receiptHolds compares a receipt with the shards of a data set and of its layer: a shard that
// holds a sample purged by it, or with all any of marks, must be named, or the tables of a
// generation in the same place be. It returns how many shards have such a sample.
func receiptHolds(t *testing.T, out string, text []byte, marks map[string]string, all bool) (holding int) {
	t.Helper()
	var r receipt
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	purged := map[string]bool{}
	for _, s := range r.Samples {
		purged[s.Key] = true
	}
	says := map[string][]string{out: slices.Concat(r.Holding, r.Not)}
	layer := filepath.Join(out, "layers", "captions")
	for _, l := range r.Layers {
		if l.Receipt != nil {
			says[layer] = slices.Concat(l.Receipt.Holding, l.Receipt.Not)
		}
	}
	for folder, said := range map[string][]string{out: says[out], layer: append(says[layer], r.Not...)} {
		// A program that writes meanwhile is named by what holds its lock.
		known := slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, "manifest-") || strings.Contains(s, "process ") })
		shards, err := filepath.Glob(filepath.Join(folder, "*"+format.ZstdSuffix))
		if err != nil {
			t.Fatal(err)
		}
		for _, shard := range shards {
			decoded, err := decodeFrames(shard)
			if err != nil {
				t.Fatal(err)
			}
			for key, mark := range marks {
				if !all && !purged[key] || !bytes.Contains(decoded, []byte(mark)) {
					continue
				}
				if holding++; !known && !slices.Contains(said, filepath.Base(shard)) {
					t.Errorf("%s has the purged sample %s, and the receipt does not say so: %s", shard, key, text)
				}
				break
			}
		}
	}
	return holding
}

// decodeFrames decodes all frames of a file that another program may delete.
func decodeFrames(path string) ([]byte, error) {
	stored, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	return dec.DecodeAll(stored, nil)
}
