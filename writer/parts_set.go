package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/format/metadata"
	"github.com/shardtool/shardtool/internal/format/names"
	"github.com/shardtool/shardtool/internal/input/kinds"
	"github.com/shardtool/shardtool/objstore"
)

// ErrMissing: parts of a pack in parts are missing.
var ErrMissing = errors.New("parts are missing")

// PartsReport describes how far a pack in parts has come.
type PartsReport struct {
	// Name begins the shards' names. It is empty if it was not given and no part was found.
	Name  string
	Parts int
	// Generation is the one being packed or, if Published, the one that was published from these
	// parts.
	Generation uint64
	Published  bool
	// Missing are the parts that are missing or incomplete, in order.
	Missing []int
	// Samples, Shards and Bytes count the parts that were found; zero if Published.
	Samples, Shards, Bytes uint64
	// Damaged describes what parts among Missing that were packed lack. Packing such a part again
	// restores it.
	Damaged map[int]string
	// First, At and Types are of a layer, see LayerParts: the number of the base's shard that is part
	// 0; the numbers of the first samples of the parts, and after the last; and the types of the
	// fields of the parts that were found.
	First int
	At    []uint64
	Types map[string]string

	parent string // tables of the generation before
	stale  int    // manifests of parts that follow another generation
}

// Missing finds the parts of a pack that are missing. Name begins the shards' names; it may be
// empty if all parts in the store have one name. Parts that do not belong together, packed from
// other sources, with other options or by another version of the tool, are ErrSource.
//
// Missing looks for parts of the next generation. If there is no trace of one, and the current
// generation was published from that many parts, nothing is missing.
func Missing(ctx context.Context, store objstore.Store, name string, parts int) (*PartsReport, error) {
	s, err := findParts(ctx, store, name, parts)
	if err != nil {
		return nil, err
	}
	return s.report, nil
}

// partSet is the parts of one pack.
type partSet struct {
	report *PartsReport
	all    present
	prior  current
	// parts are the parts' manifests, nil for a missing one; common is the metadata that they
	// share.
	parts  []*metadata.Manifest
	common format.Metadata
}

// object names the manifest of a part.
func (s *partSet) object(part int) string {
	return partObject(s.report.Name, s.report.Generation, part, s.report.Parts)
}

// findParts reads what the store has of a pack in parts.
func findParts(ctx context.Context, store objstore.Store, name string, parts int) (*partSet, error) {
	if parts < 1 || parts > MaxParts {
		return nil, fmt.Errorf("%d parts: use 1 to %d", parts, MaxParts)
	}
	s := &partSet{report: &PartsReport{Name: name, Parts: parts, Damaged: map[int]string{}},
		parts: make([]*metadata.Manifest, parts)}
	_, err := s.prior.read(ctx, store)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", store, err)
	}
	s.report.Generation, s.report.parent = s.prior.next(), s.prior.tables
	if s.all, err = listPresent(ctx, store, ""); err != nil {
		return nil, err
	}
	traces, err := s.choose()
	if err != nil {
		return nil, err
	}
	if !traces && s.published() {
		s.report.Generation, s.report.Published = s.prior.manifest.Generation, true
		return s, nil
	}
	if err := s.load(ctx, store); err != nil {
		return nil, fmt.Errorf("%v: %w", store, err)
	}
	for part, m := range s.parts {
		if m == nil {
			s.report.Missing = append(s.report.Missing, part)
		}
	}
	return s, nil
}

// choose settles the name, and reports whether parts of the next generation left any trace.
func (s *partSet) choose() (traces bool, err error) {
	r := s.report
	suffix := strings.TrimSuffix(shardPrefix("", r.Generation), "-")
	bases := map[string]bool{}
	for object := range s.all {
		var name string
		if m := names.Parts.FindStringSubmatch(object); m != nil {
			if of, err := strconv.Atoi(m[3]); err != nil || of != r.Parts {
				continue
			}
			name = m[1]
			if base, ok := strings.CutSuffix(name, suffix); !ok || (r.Name != "" && base != r.Name) {
				r.stale++
			}
		} else if m := partShards.FindStringSubmatch(object); m != nil && r.Generation > 1 {
			name = m[1] // a first generation has no other shards that look like these
		}
		if base, ok := strings.CutSuffix(name, suffix); ok && base != "" && (r.Name == "" || base == r.Name) {
			bases[base] = true
		}
	}
	if r.Name == "" && len(bases) > 1 {
		return false, fmt.Errorf("%w: parts of several packs are here, named %q: give the name of one", ErrSource,
			slices.Sorted(maps.Keys(bases)))
	}
	for name := range bases {
		r.Name, r.stale = name, 0 // earlier generations were committed
	}
	return len(bases) > 0, nil
}

// published reports whether the current generation was made of this many parts.
func (s *partSet) published() bool {
	if s.prior.manifest == nil {
		return false
	}
	from, ok := provenanceOf(s.prior.manifest.Meta)
	if !ok || from.Parts != s.report.Parts || s.report.Name != "" && from.Name != s.report.Name ||
		s.overtaken(from.Name) {
		return false
	}
	s.report.Name = from.Name
	return true
}

// overtaken reports whether parts were packed to follow a generation from which samples were
// removed before the parts were committed. They must not pass for the parts of that generation.
func (s *partSet) overtaken(name string) bool {
	m := s.prior.manifest
	packed, err := strconv.ParseUint(m.Meta[metaRevises], 10, 64)
	if err != nil {
		return false
	}
	for g := packed + 1; g <= m.Generation; g++ {
		prefix := "part-" + shardPrefix(name, g)
		for object := range s.all {
			if strings.HasPrefix(object, prefix) && names.Parts.MatchString(object) {
				return true
			}
		}
	}
	return false
}

// load reads the manifests of parts, several at a time, and compares them with each other and with
// the objects in the store.
func (s *partSet) load(ctx context.Context, store objstore.Store) error {
	if s.report.Name == "" {
		return nil
	}
	const together = 16 // requests in flight
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(together)
	var mu sync.Mutex
	for part := range s.parts {
		if _, ok := s.all[s.object(part)]; !ok {
			continue
		}
		work.Go(func() error {
			m, err := loadManifest(ctx, store, s.object(part))
			if err != nil {
				return fmt.Errorf("%w: remove that object, and pack part %d again", err, part)
			}
			mu.Lock()
			defer mu.Unlock()
			return s.take(ctx, part, m)
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	return s.agree()
}

// take keeps the manifest of a part if the store has all of its objects.
func (s *partSet) take(ctx context.Context, part int, m *metadata.Manifest) error {
	if m.Generation != s.report.Generation || m.Parent != s.prior.tables || m.Meta["part"] != strconv.Itoa(part) {
		return fmt.Errorf("%w: %s is part %q of generation %d after %s: remove that object, and pack part %d again",
			ErrSource, s.object(part),
			m.Meta["part"], m.Generation, generationText(m.Parent), part)
	}
	faults, err := s.all.faults(ctx, m, nil)
	if err != nil {
		return err
	}
	if len(faults) > 0 {
		s.report.Damaged[part] = faultsText(faults)
		return nil
	}
	s.parts[part] = m
	s.report.Samples += metadata.SumSamples(m.Shards)
	s.report.Shards += uint64(len(m.Shards))
	for i := range m.Shards {
		s.report.Bytes += m.Shards[i].Size
		if m.Shards[i].Plain() {
			s.report.Bytes += m.Shards[i].Tail
		}
	}
	return nil
}

// agree compares the parts' metadata: together they must be what one run would have put. If they
// differ, the minority is reported as wrong.
func (s *partSet) agree() error {
	all := make([]format.Metadata, len(s.parts))
	var alike []int // one part of each kind
	count := map[int]int{}
	for part, m := range s.parts {
		if m == nil {
			continue
		}
		all[part] = maps.Clone(m.Meta)
		for _, own := range []string{"part", "skipped", metaSkippedList, metaLeftOut, MetaTypes, kinds.Key} {
			delete(all[part], own)
		}
		like := slices.IndexFunc(alike, func(k int) bool { return maps.Equal(all[k], all[part]) })
		if like < 0 {
			like = len(alike)
			alike = append(alike, part)
		}
		count[alike[like]]++
	}
	if len(alike) == 0 {
		return nil
	}
	right := slices.MaxFunc(alike, func(a, b int) int { return count[a] - count[b] })
	s.common = all[right]
	for _, part := range alike {
		if part != right {
			return s.disagree(part, right, all)
		}
	}
	return nil
}

// leftOut adds up what the parts left out.
func (s *partSet) leftOut() (map[string]int64, error) {
	all := map[string]int64{}
	for part, m := range s.parts {
		if m == nil {
			continue
		}
		of, err := leftOutBefore(m.Meta)
		if err != nil {
			return nil, fmt.Errorf("%s: %w: remove that object, and pack part %d again", s.object(part), err, part)
		}
		for rule, n := range of {
			all[rule] += n
		}
	}
	return all, nil
}

func (s *partSet) disagree(wrong, right int, all []format.Metadata) error {
	what := ""
	both := maps.Clone(all[right])
	maps.Copy(both, all[wrong])
	for _, key := range slices.Sorted(maps.Keys(both)) {
		if all[wrong][key] != all[right][key] {
			what = fmt.Sprintf("%s %s, not %s", cmp.Or(metaTexts[key], key+" is"), all[wrong][key], all[right][key])
			break
		}
	}
	return fmt.Errorf("%w: part %d does not go with part %d and others like it: its %s; remove %s and the shards %s*, and pack part %d again",
		ErrSource, wrong, right, what, s.object(wrong), partPrefix(s.report.Name, s.report.Generation, wrong), wrong)
}

// metaTexts describe keys of metadata.
var metaTexts = map[string]string{"source": "fingerprint of the sources is", "tool": "tool version is",
	"options": "options are"}

// MaxParts is the most parts that a pack can be divided into.
const MaxParts = 1_000_000

// generationText names a generation by its tables.
func generationText(tables string) string {
	if tables == "" {
		return "no data set"
	}
	return tables
}
