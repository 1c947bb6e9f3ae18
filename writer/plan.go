package writer

import (
	"fmt"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/build"
)

// plan is what the names and the metadata of a pack's objects are functions of.
type plan struct {
	opt        Options // filled
	generation uint64
	// fingerprint is that of the sources; empty where the caller of Write brings the samples.
	fingerprint string
}

// shardName is the object name of shard i.
func (p *plan) shardName(i int) string {
	suffix := format.ZstdSuffix
	if p.opt.Plain {
		suffix = format.TarSuffix
	}
	prefix := shardPrefix(p.opt.Name, p.generation)
	if p.opt.parts > 0 {
		prefix = partPrefix(p.opt.Name, p.generation, p.opt.part)
	}
	return fmt.Sprintf("%s%06d%s", prefix, i, suffix)
}

// shardPrefix begins the names of the shards that a generation adds.
func shardPrefix(name string, generation uint64) string {
	if generation > 1 {
		name += fmt.Sprintf("-v%04d", generation)
	}
	return name + "-"
}

// partPrefix begins the names of the shards of a part.
func partPrefix(name string, generation uint64, part int) string {
	return fmt.Sprintf("%sp%04d-", shardPrefix(name, generation), part)
}

// partObject is the name of a part's manifest. Its bytes are tables (SPEC 6.2) of the part's shards
// alone; its keys table numbers the part's samples from 0.
func partObject(name string, generation uint64, part, parts int) string {
	return fmt.Sprintf("part-%s%04d-of-%04d.bin", shardPrefix(name, generation), part, parts)
}

// shardMeta is the provenance of a shard (SPEC 4.6).
func (p *plan) shardMeta(hash format.Hash, end *shardEnd) format.Metadata {
	m := format.Metadata{"tool": toolVersion(), "options": p.opt.canonical(), "content": hash.String()}
	if p.fingerprint != "" {
		m["source"], m["cursor_start"], m["cursor_end"] = p.fingerprint, end.cursorStart, end.cursorEnd
	}
	setSkipped(m, end.skipped)
	return m
}

// fact is a member of META that two packs must agree on.
type fact struct{ what, key, want string }

// mode is the fact that manifests have beside those of shards.
func (p *plan) mode() fact { return fact{"mode", "mode", p.opt.Mode.String()} }

// differs finds the first fact in which META differs from this pack, nil when all agree.
func (p *plan) differs(meta format.Metadata, more ...fact) *fact {
	facts := append([]fact{
		{"sources", "source", p.fingerprint}, {"options", "options", p.opt.canonical()}, {"tool version", "tool", toolVersion()},
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
