package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
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
	stores           []string
	without          []string // systems that cannot do it
	samples          func(size int64, part uint64) iter.Seq[corpus.Sample]
}

// peerParts is how many sources a mix has.
const peerParts = 4

var peerKinds = []peerKind{
	{"text", "text 3 KB", "txt", 256, []string{"local", "s3"}, nil, peerText},
	{"images", "images 100 KB", "jpg", 64, []string{"local", "s3", "disk"}, nil,
		func(size int64, _ uint64) iter.Seq[corpus.Sample] {
			return corpus.Images(corpus.Options{Samples: int(size / 100_000), Seed: 2})
		}},
	{"tokens", "2,049 tokens", "u16", 64, []string{"local", "s3"}, nil,
		func(size int64, _ uint64) iter.Seq[corpus.Sample] {
			return tokenRows(int(size / (2 * tokensRow)))
		}},
	{"packed", "documents packed to 2,048 tokens", "u16", 16, []string{"local"}, []string{"webdataset", "mosaicml", "litdata", "lance", "streaming", "files", "tar"},
		func(size int64, _ uint64) iter.Seq[corpus.Sample] { return documents(size) }},
	{"mix", "a mix of text 3 KB", "txt", 256, []string{"local"}, []string{"lance", "tar"}, peerText},
}

func peerText(size int64, part uint64) iter.Seq[corpus.Sample] {
	return corpus.Text(corpus.Options{Samples: int(size / 3000), Seed: 1 + part})
}

// packedLength is how many tokens a packed sequence has.
const packedLength = 2048

// documents yields the ids of documents of 20 to packedLength tokens, most of them short.
func documents(size int64) iter.Seq[corpus.Sample] {
	return func(yield func(corpus.Sample) bool) {
		ids, random := textTokens(8<<20), rand.New(rand.NewPCG(1, 1))
		for i, at, left := 0, 0, size; left > 0; i++ {
			n := 2 * int(min(max(math.Exp(6.2+1.2*random.NormFloat64()), 20), packedLength))
			if at+n > len(ids) {
				at = 0
			}
			s := corpus.Sample{Key: fmt.Sprintf("%08d", i), Fields: []corpus.Field{{Name: "u16", Data: ids[at : at+n]}}}
			if at, left = at+n, left-int64(n); !yield(s) {
				return
			}
		}
	}
}

// tokenRows yields rows of ids of words. The text begins again after some million words, with other
// rows.
func tokenRows(n int) iter.Seq[corpus.Sample] {
	return func(yield func(corpus.Sample) bool) {
		ids := textTokens(8 << 20)
		ids = append(ids, ids[:2*tokensRow]...)
		for i := range n {
			at := 2 * (i * tokensRow % (8 << 20))
			s := corpus.Sample{Key: fmt.Sprintf("%08d", i),
				Fields: []corpus.Field{{Name: "u16", Data: ids[at : at+2*tokensRow]}}}
			if !yield(s) {
				return
			}
		}
	}
}

// phraseRows yields rows of ids of phrases, some of which are common: as prose does, they repeat
// what came before, and take a third when compressed.
func phraseRows(n int) iter.Seq[corpus.Sample] {
	return func(yield func(corpus.Sample) bool) {
		const phrases, longest = 1 << 13, 24
		ids, random := textTokens(phrases*longest), rand.New(rand.NewPCG(2, 3))
		common := rand.NewZipf(random, 1.1, 8, phrases-1)
		for i := range n {
			row := make([]byte, 0, 2*(tokensRow+longest))
			for len(row) < 2*tokensRow {
				at := 2 * longest * int(common.Uint64())
				row = append(row, ids[at:at+2*(6+random.IntN(longest-6))]...)
			}
			s := corpus.Sample{Key: fmt.Sprintf("%08d", i),
				Fields: []corpus.Field{{Name: "u16", Data: row[:2*tokensRow]}}}
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

// prepare writes data of a kind as plain tars, as ours, and as files, below a folder: eight shards
// of each, which the parts of a mix share.
func (p *peersBench) prepare(k peerKind, work string, size int64, part uint64) (job peerJob, err error) {
	if err := os.MkdirAll(work, 0o755); err != nil {
		return job, err
	}
	shard := max(size/8, 1<<20)
	if k.id == "mix" {
		shard *= peerParts
	}
	if k.id == "mix" && part == 0 {
		for part := range uint64(peerParts) {
			of, err := p.prepare(k, filepath.Join(work, fmt.Sprint(part)), size/peerParts, 1+part)
			if err != nil {
				return job, err
			}
			job.Parts = append(job.Parts, of)
		}
	}
	job = peerJob{Parts: job.Parts, Kind: k.id, Field: k.field, Batch: k.batch, Shard: shard, Work: work, S3: p.s3,
		Packed: filepath.Join(work, "packed"), Files: filepath.Join(work, "files"),
		Mapped:   filepath.Join(work, "rows.bin"),
		Readings: min(p.times, 3), Longest: 3, Warm: 0.5, Window: 0.8, Patience: 12, Limit: 60}
	samples := k.samples(size, part)
	for s := range samples {
		job.Samples++
		job.Bytes += s.Size()
	}
	if k.id == "packed" {
		job.Samples = int((job.Bytes + 2*packedLength - 1) / (2 * packedLength))
	}
	plain := filepath.Join(work, "plain")
	for dir, opt := range map[string]writer.Options{plain: {ShardSize: job.Shard, Plain: true},
		job.Packed: {ShardSize: job.Shard}} {
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
	case "text", "images", "mix":
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
