package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"github.com/shardtool/shardtool/bench/corpus"
	"github.com/shardtool/shardtool/objstore/local"
	"github.com/shardtool/shardtool/writer"
)

// tokensRow is how many ids a row of tokens has: a context and the one that follows.
const tokensRow = 2049

// peerKind is data of one kind.
type peerKind struct {
	id, shown, field string
	batch            int
	samples          func(b *bench, size int64) iter.Seq[corpus.Sample]
}

var peerKinds = []peerKind{
	{"text", "text 3 KB", "txt", 256, func(_ *bench, size int64) iter.Seq[corpus.Sample] {
		return corpus.Text(corpus.Options{Samples: int(size / 3000), Seed: 1})
	}},
	{"images", "images 100 KB", "jpg", 64, func(_ *bench, size int64) iter.Seq[corpus.Sample] {
		return corpus.Images(corpus.Options{Samples: int(size / 100_000), Seed: 2})
	}},
	{"tokens", "2,049 tokens", "u16", 64, func(_ *bench, size int64) iter.Seq[corpus.Sample] {
		return tokenRows(int(size / (2 * tokensRow)))
	}},
}

// tokenRows yields rows of ids of words. The text begins again after some million words, with other
// rows.
func tokenRows(n int) iter.Seq[corpus.Sample] {
	return func(yield func(corpus.Sample) bool) {
		ids := textTokens(8 << 20)
		ids = append(ids, ids[:2*tokensRow]...)
		for i := range n {
			at := 2 * (i * tokensRow % (8 << 20))
			s := corpus.Sample{Key: fmt.Sprintf("%08d", i), Fields: []corpus.Field{{Name: "u16", Data: ids[at : at+2*tokensRow]}}}
			if !yield(s) {
				return
			}
		}
	}
}

// textTokens are ids of the words of a text by their first appearance: as with a tokenizer, words
// that are common have low ids.
func textTokens(n int) []byte {
	ids := make([]byte, 0, 2*n)
	known := map[string]uint16{}
	for s := range corpus.Text(corpus.Options{Samples: n/300 + 1, Seed: 1}) {
		for word := range bytes.FieldsSeq(s.Fields[0].Data) {
			id, ok := known[string(word)]
			if !ok {
				id = uint16(len(known) % 50256)
				known[string(word)] = id
			}
			ids = binary.LittleEndian.AppendUint16(ids, id)
		}
	}
	return ids[:min(len(ids), 2*n)]
}

// prepare writes data of a kind as plain tars, as ours, and as files: eight shards of each.
func (p *peersBench) prepare(k peerKind) (job peerJob, err error) {
	work := filepath.Join(p.dir, "peers-"+k.id)
	if err := os.MkdirAll(work, 0o755); err != nil {
		return job, err
	}
	size := int64(p.mib) << 19 // half of what others have: there are many readings
	// Others put locks into the folder for temporary files.
	p.temporary = work
	job = peerJob{Kind: k.id, Field: k.field, Batch: k.batch, Shard: max(size/8, 1<<20), Work: work, S3: p.s3,
		Packed: filepath.Join(work, "packed"), Files: filepath.Join(work, "files"), Mapped: filepath.Join(work, "rows.bin"),
		Readings: min(p.times, 3), Warm: 0.5, Window: 1, Longest: 6, Patience: 5, Limit: 60}
	samples := k.samples(p.bench, size)
	for s := range samples {
		job.Samples++
		job.Bytes += s.Size()
	}
	plain := filepath.Join(work, "plain")
	for dir, opt := range map[string]writer.Options{plain: {ShardSize: job.Shard, Plain: true}, job.Packed: {ShardSize: job.Shard}} {
		store, err := local.New(dir, local.Options{NoSync: true})
		if err != nil {
			return job, err
		}
		if _, err := p.write(store, samples, opt); err != nil {
			return job, err
		}
	}
	if job.Plain, err = filepath.Glob(filepath.Join(plain, "*.tar")); err != nil {
		return job, err
	}
	switch k.id {
	case "tokens":
		err = writeRows(job.Mapped, samples)
	case "text", "images":
		_, _, err = corpus.WriteFiles(job.Files, samples)
	}
	return job, err
}

// writeRows writes one file of all rows.
func writeRows(path string, samples iter.Seq[corpus.Sample]) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for s := range samples {
		if _, err := f.Write(s.Fields[0].Data); err != nil {
			return err
		}
	}
	return f.Close()
}
