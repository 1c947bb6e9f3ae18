package writer

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/sys/build"
)

// plan decides the names and the metadata of a pack's objects.
type plan struct {
	opt Options // filled
	// part of parts is what is packed; parts is 0 where one pack does all.
	part, parts int
	// blockSamples is the number of samples at which a block of leastBlock bytes closes; 0 if
	// Options.BlockSize was set.
	blockSamples int
	generation   uint64
	// fingerprint tells the sources apart; empty where the caller of Write brings the samples.
	fingerprint string
	// layered reports that blocks and shards are another data set's.
	layered bool
}

// newPlan fills the options.
func newPlan(opt Options, part, parts int) (p plan, err error) {
	p = plan{part: part, parts: parts}
	if opt.BlockSize == 0 {
		p.blockSamples = manySamples
	}
	p.opt, err = opt.filled()
	return p, err
}

// Blocks of small samples close earlier by default. Blocks smaller than leastBlock compress worse
// and cost more requests than the better mixing is worth; a block of DefaultBlockSize with fewer
// than manySamples mixes well.
const leastBlock, manySamples = DefaultBlockSize / 4, 64

// blockFull reports whether a block of that many decoded bytes and samples closes.
func (p *plan) blockFull(size int64, samples int) bool {
	return size >= p.opt.BlockSize || p.blockSamples > 0 && samples >= p.blockSamples && size >= leastBlock
}

// options is the options that the bytes depend on, as META has them: the same text for the same
// bytes.
func (p *plan) options() string {
	o := &p.opt
	kind := "tar.zst"
	if o.Plain {
		kind = "tar"
	}
	m := map[string]any{
		"name": o.Name, "block_size": o.BlockSize, "shard_size": o.ShardSize, "samples_per_shard": o.SamplesPerShard,
		"level": o.Level.String(), "format": kind,
	}
	if p.parts > 0 {
		m["parts"] = p.parts
	}
	if p.layered {
		for _, size := range []string{"block_size", "shard_size", "samples_per_shard"} {
			delete(m, size)
		}
	} else if p.blockSamples > 0 { // the rule of the default is an option too
		m["block_samples"], m["block_least"] = p.blockSamples, leastBlock
	}
	if o.Layout == LayoutStacked || o.Layout == LayoutAuto { // the choice of a source is its own, and in its cursor
		m["layout"] = o.Layout.String()
	}
	if len(o.Lengths) > 0 {
		m["lengths"] = o.Lengths
	}
	for k, v := range o.SourceOptions {
		m["source."+k] = v
	}
	b, err := json.Marshal(m) // map keys are sorted
	if err != nil {
		panic("writer: options: " + err.Error()) // strings and integers
	}
	return string(b)
}

// who is how a lock names this pack to others.
func (p *plan) who() string {
	if p.parts > 0 {
		return fmt.Sprintf("pack of part %d of %d of %s", p.part, p.parts, p.opt.Name)
	}
	return "pack of " + p.opt.Name
}

// shardName is the object name of shard i.
func (p *plan) shardName(i int) string {
	suffix := format.ZstdSuffix
	if p.opt.Plain {
		suffix = format.TarSuffix
	}
	prefix := shardPrefix(p.opt.Name, p.generation)
	if p.parts > 0 {
		prefix = partPrefix(p.opt.Name, p.generation, p.part)
	}
	return fmt.Sprintf("%s%06d%s", prefix, i, suffix)
}

// shardMeta is the provenance of a shard (SPEC 4.6).
func (p *plan) shardMeta(hash format.Hash, end *shardEnd) format.Metadata {
	m := format.Metadata{"tool": toolVersion(), "options": p.options(), "content": hash.String()}
	if p.fingerprint != "" {
		m["source"], m["cursor_start"], m["cursor_end"] = p.fingerprint, end.start.cursor, end.end.cursor
	}
	setSkipped(m, end.end.skipped-end.start.skipped+end.skipped)
	setLeftOut(m, end.end.left.Minus(end.start.left).LeftOut())
	return m
}

// fact is a member of META that two packs must agree on.
type fact struct{ what, key, want string }

// mode is a fact that manifests have and shards do not.
func (p *plan) mode() fact { return fact{"mode", "mode", p.opt.Mode.String()} }

// differs finds the first fact in which META differs from this pack, nil when all agree.
func (p *plan) differs(meta format.Metadata, more ...fact) *fact {
	facts := append([]fact{
		{"sources", "source", p.fingerprint}, {"options", "options", p.options()}, {"tool version", "tool", toolVersion()},
	}, more...)
	for i := range facts {
		if meta[facts[i].key] != facts[i].want {
			return &facts[i]
		}
	}
	return nil
}

// toolVersion is the program that META names as the writer. Parts of one pack, and runs of one pack
// that is resumed, must agree on it: another version may cut and compress differently.
func toolVersion() string {
	v := "shardtool " + build.Version()
	if compress := build.Dependency("github.com/klauspost/compress"); compress != "" {
		v += ", compress " + compress // the bytes of frames depend on it
	}
	return v
}

// shardEnd is the places of the source around a shard, and how many of its samples workers left
// out.
type shardEnd struct {
	start, end mark
	skipped    int64
}

// setSkipped stores how many samples were left out, for a later run that adopts the shard.
func setSkipped(m format.Metadata, n int64) {
	if n > 0 {
		m["skipped"] = strconv.FormatInt(n, 10)
	}
}
