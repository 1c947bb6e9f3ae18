package writer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/objstore"
)

// ErrMissing: parts of a pack in parts are not there.
var ErrMissing = errors.New("parts are missing")

// PartsReport is how far a pack in parts has come.
type PartsReport struct {
	// Name is that of the shards; empty when it was not given and nothing tells it.
	Name  string
	Parts int
	// Generation is the one being packed or, where Published, the one that was published of these parts.
	Generation uint64
	Published  bool
	// Missing are the parts that are not there or not whole, in order.
	Missing []int
	// Samples, Shards and Bytes are of the parts that are there; not counted where Published.
	Samples, Shards, Bytes uint64
	// Damaged says of parts among Missing that were packed what they lack: to pack them again puts it back.
	Damaged map[int]string

	parent string // tables of the generation before
	stale  int    // manifests of parts that follow another generation
}

// Missing finds which parts of a pack are not there. Name is that of the shards; it may be empty where all parts in the store
// have one name. Parts that do not go together, packed from other sources, with other options or another version of the tool,
// are ErrSource.
//
// It looks at parts of the generation that comes next. Where there is no trace of one, and the current generation was
// published of so many parts, nothing is missing.
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
	// parts are what the parts' manifests say, nil for one that is not there; common is the metadata they share.
	parts  []*format.Manifest
	common format.Metadata
}

// object names the manifest of a part.
func (s *partSet) object(part int) string {
	return partObject(s.report.Name, s.report.Generation, part, s.report.Parts)
}

// findParts reads what there is of a pack in parts.
func findParts(ctx context.Context, store objstore.Store, name string, parts int) (*partSet, error) {
	if parts < 1 || parts > MaxParts {
		return nil, fmt.Errorf("writer: %d parts: give 1 to %d", parts, MaxParts)
	}
	s := &partSet{report: &PartsReport{Name: name, Parts: parts, Damaged: map[int]string{}}, parts: make([]*format.Manifest, parts)}
	sum, err := s.prior.find(ctx, store)
	if err == nil && sum != nil {
		s.report.parent = sum.Tables
		err = s.prior.load(ctx, store)
	}
	if err != nil {
		return nil, fmt.Errorf("writer: %v: %w", store, err)
	}
	s.report.Generation = s.prior.next()
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
		return nil, fmt.Errorf("writer: %v: %w", store, err)
	}
	for part, m := range s.parts {
		if m == nil {
			s.report.Missing = append(s.report.Missing, part)
		}
	}
	return s, nil
}

var (
	partObjects = regexp.MustCompile(`^part-([A-Za-z0-9_][A-Za-z0-9._-]*)-([0-9]{4,})-of-([0-9]{4,})\.bin$`)
	partShards  = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9._-]*)-p[0-9]{4,}-[0-9]{6,}\.`)
)

// choose settles the name, and says whether parts of the next generation have left any trace.
func (s *partSet) choose() (traces bool, err error) {
	r := s.report
	suffix := strings.TrimSuffix(shardPrefix("", r.Generation), "-")
	names := map[string]bool{}
	for object := range s.all {
		var name string
		if m := partObjects.FindStringSubmatch(object); m != nil {
			if of, err := strconv.Atoi(m[3]); err != nil || of != r.Parts {
				continue
			}
			name = m[1]
			if base, ok := strings.CutSuffix(name, suffix); !ok || (r.Name != "" && base != r.Name) {
				r.stale++
			}
		} else if m := partShards.FindStringSubmatch(object); m != nil && r.Generation > 1 {
			name = m[1] // of a first generation there is nothing else they could be mistaken for
		}
		if base, ok := strings.CutSuffix(name, suffix); ok && base != "" && (r.Name == "" || base == r.Name) {
			names[base] = true
		}
	}
	if r.Name == "" && len(names) > 1 {
		return false, fmt.Errorf("%w: parts of several packs are here, named %q: say which one by its name", ErrSource, slices.Sorted(maps.Keys(names)))
	}
	for name := range names {
		r.Name, r.stale = name, 0 // those of earlier generations have been committed
	}
	return len(names) > 0, nil
}

// published says whether the current generation was made of so many parts.
func (s *partSet) published() bool {
	if s.prior.manifest == nil {
		return false
	}
	var options struct {
		Name  string `json:"name"`
		Parts int    `json:"parts"`
	}
	if json.Unmarshal([]byte(s.prior.manifest.Meta["options"]), &options) != nil || options.Parts != s.report.Parts ||
		(s.report.Name != "" && options.Name != s.report.Name) {
		return false
	}
	s.report.Name = options.Name
	return true
}

// load reads the manifests of parts, some at a time, and holds them against each other and against the objects there are.
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

// take keeps the manifest of a part whose objects are all there.
func (s *partSet) take(ctx context.Context, part int, m *format.Manifest) error {
	if m.Generation != s.report.Generation || m.Parent != s.prior.tables || m.Meta["part"] != strconv.Itoa(part) {
		return fmt.Errorf("%w: %s is part %q of generation %d after %s: remove that object, and pack part %d again", ErrSource, s.object(part),
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
	s.report.Samples += sumSamples(m.Shards)
	s.report.Shards += uint64(len(m.Shards))
	for i := range m.Shards {
		s.report.Bytes += m.Shards[i].Size
		if m.Shards[i].Plain() {
			s.report.Bytes += m.Shards[i].Tail
		}
	}
	return nil
}

// agree holds the parts' metadata against each other: what many runs put must be what one would have. Where they differ the
// fewer are taken to be wrong.
func (s *partSet) agree() error {
	all := make([]format.Metadata, len(s.parts))
	var kinds []int // a part of each kind there is
	count := map[int]int{}
	for part, m := range s.parts {
		if m == nil {
			continue
		}
		all[part] = maps.Clone(m.Meta)
		for _, own := range []string{"part", "skipped", metaSkippedList} {
			delete(all[part], own)
		}
		like := slices.IndexFunc(kinds, func(k int) bool { return maps.Equal(all[k], all[part]) })
		if like < 0 {
			like = len(kinds)
			kinds = append(kinds, part)
		}
		count[kinds[like]]++
	}
	if len(kinds) == 0 {
		return nil
	}
	right := slices.MaxFunc(kinds, func(a, b int) int { return count[a] - count[b] })
	s.common = all[right]
	for _, part := range kinds {
		if part != right {
			return s.disagree(part, right, all)
		}
	}
	return nil
}

func (s *partSet) disagree(wrong, right int, all []format.Metadata) error {
	what := ""
	both := maps.Clone(all[right])
	maps.Copy(both, all[wrong])
	for _, key := range slices.Sorted(maps.Keys(both)) {
		if all[wrong][key] != all[right][key] {
			what = fmt.Sprintf("%s %s, not %s", metaText(key), all[wrong][key], all[right][key])
			break
		}
	}
	return fmt.Errorf("%w: part %d does not go with part %d and others like it: its %s; remove %s and the shards %s*, and pack part %d again",
		ErrSource, wrong, right, what, s.object(wrong), partPrefix(s.report.Name, s.report.Generation, wrong), wrong)
}

// metaText is a key of metadata in words.
func metaText(key string) string {
	switch key {
	case "source":
		return "fingerprint of the sources is"
	case "tool":
		return "tool version is"
	case "options":
		return "options are"
	}
	return key + " is"
}
