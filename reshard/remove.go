package reshard

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/sys/plain"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/writer"
)

// ErrMissingKeys reports keys that no sample has. The error also wraps fs.ErrNotExist.
var ErrMissingKeys = errors.New("keys that no sample has")

// mostNamed is the most missing keys that a report names.
const mostNamed = 10

// RemoveOptions are the options of RemoveKeys.
type RemoveOptions struct {
	// AllowMissing accepts keys that no sample has. Otherwise they are an error, and nothing changes.
	AllowMissing bool
	// DryRun changes nothing.
	DryRun bool
	// Restore puts samples back that were removed and not purged.
	Restore bool
	// Layers of the data set get the same removed samples, after the data set, so that a layer that is
	// read alone does not deliver them. Readers of both follow the data set.
	Layers []objstore.Store
}

// RemoveReport is what RemoveKeys did, or with DryRun would do. Shards is how many shards hold the
// samples, and Layers are those of RemoveOptions.
type RemoveReport struct {
	Keys int `json:"keys"` // different keys given
	// Samples removed, or put back by restoring; those for which nothing changed. A data set that
	// keeps duplicates may have several samples to a key.
	Samples uint64 `json:"samples"`
	Already uint64 `json:"already"`

	Shards int `json:"shards"`
	// Missing are keys that no sample has, and MissingKeys the first ten.
	Missing     int      `json:"missing"`
	MissingKeys []string `json:"missing_keys"`
	// Samples of the data set that are removed now, of how many.
	Removed uint64 `json:"removed"`
	Total   uint64 `json:"total"`
	// The generation afterwards. Digest stays the same.
	Generation uint64 `json:"generation"`
	Tables     string `json:"tables"`
	Digest     string `json:"digest"`

	DryRun bool          `json:"dry_run"`
	Layers []LayerReport `json:"layers"`
}

// LayerReport is a layer after its base changed. Changed reports that a generation was published.
type LayerReport struct {
	Layer      string `json:"layer"`
	Changed    bool   `json:"changed"`
	Generation uint64 `json:"generation,omitempty"`
	Tables     string `json:"tables,omitempty"`
	Error      string `json:"error,omitempty"` // why it was left alone. It is no layer of this data set.
}

// RemoveKeys removes the samples with the given keys from the current generation of a data set, and
// publishes a new one. No shard is read or written: the new generation lists the samples as
// removed. They are holes in every order, whether it has begun or is new; nothing else moves, and
// checkpoints stay valid. writer.Purge then removes the bytes.
//
// Where another program publishes meanwhile, RemoveKeys finds the samples anew; of two programs
// that remove samples at once, both succeed. Keys that no sample has are an error that wraps
// ErrMissingKeys, unless RemoveOptions.AllowMissing is set; the report then still counts them.
func RemoveKeys(ctx context.Context, store objstore.Store, keys []string, o RemoveOptions) (*RemoveReport, error) {
	keys = distinctKeys(keys)
	if len(keys) == 0 {
		return nil, errors.New("there are no keys")
	}
	const attempts = 100 // others publish meanwhile
	for n := 1; ; n++ {
		r, err := attempt(ctx, store, keys, o)
		if err == nil {
			return r, r.follow(ctx, store, o)
		}
		if errors.Is(err, ErrMissingKeys) || errors.Is(err, writer.ErrIncomplete) || r.Tables == "" || n == attempts {
			return r, err
		}
		now, oerr := reader.Open(ctx, store, reader.Options{})
		if oerr != nil {
			return r, err
		}
		tables := now.Info().Tables
		if now.Close(); tables == r.Tables { // no other generation explains it
			return r, err
		}
	}
}

// follow brings layers up to the data set. It goes on after a layer that does not fit or fails.
func (r *RemoveReport) follow(ctx context.Context, store objstore.Store, o RemoveOptions) (failed error) {
	for _, layer := range o.Layers {
		l := LayerReport{Layer: layer.String()}
		if !o.DryRun {
			res, err := writer.FollowBase(ctx, layer, store)
			switch {
			case errors.Is(err, writer.ErrNotLayer): // or not published: what publishes it takes the removal over
				l.Error = err.Error()
			case err != nil:
				l.Error = err.Error()
				failed = cmp.Or(failed,
					fmt.Errorf("the data set has changed, and its layer %v has not: repeat the command; "+
						"where the layer lacks objects, restore them or remove the layer before: %w", layer, err))
			default:
				l.Changed, l.Generation, l.Tables = !res.Already, res.Generation, res.Tables
			}
		}
		r.Layers = append(r.Layers, l)
	}
	return failed
}

// distinctKeys leaves out keys that were given before.
func distinctKeys(keys []string) []string {
	seen := make(map[string]struct{}, len(keys))
	out := make([]string, 0, len(keys))
	for _, k := range keys {
		if _, twice := seen[k]; !twice {
			seen[k] = struct{}{}
			out = append(out, k)
		}
	}
	return out
}

// attempt is RemoveKeys for the generation that is current now. The report is not nil where the
// data set could be opened.
func attempt(ctx context.Context, store objstore.Store, keys []string, o RemoveOptions) (*RemoveReport, error) {
	d, err := reader.Open(ctx, store, reader.Options{})
	if err != nil {
		return &RemoveReport{}, err
	}
	defer d.Close()
	r := &RemoveReport{
		Keys: len(keys), MissingKeys: []string{}, Removed: uint64(len(d.Info().Removed)), Total: d.NumSamples(),
		Generation: d.Info().Generation,
		Tables:     d.Info().Tables, Digest: format.DigestString(d.Digest()), DryRun: o.DryRun, Layers: []LayerReport{},
	}
	numbers, err := r.find(ctx, d, keys, o)
	if err != nil {
		return r, err
	}
	if r.Missing > 0 && !o.AllowMissing {
		return r, r.missing(store)
	}
	if len(numbers) == 0 || o.DryRun {
		return r, nil
	}
	publish := writer.Remove
	if o.Restore {
		publish = writer.Restore
	}
	res, err := publish(ctx, store, d.Info().Tables, numbers)
	if err != nil {
		return r, err
	}
	r.Generation, r.Tables = res.Generation, res.Tables
	if o.Restore {
		r.Removed -= uint64(len(numbers))
	} else {
		r.Removed += uint64(len(numbers))
	}
	return r, nil
}

// find returns the numbers of the samples that change.
func (r *RemoveReport) find(ctx context.Context, d *reader.Dataset, keys []string,
	o RemoveOptions) (numbers []uint64, err error) {
	all, err := d.LookupAll(ctx, keys)
	if err != nil {
		return nil, err
	}
	shards := map[int]bool{}
	for i, of := range all {
		if len(of) == 0 {
			if r.Missing++; r.Missing <= mostNamed {
				r.MissingKeys = append(r.MissingKeys, keys[i])
			}
		}
		for _, n := range of {
			if d.Removed(n) != o.Restore {
				r.Already++
				continue
			}
			at, err := d.Locate(ctx, n)
			if err != nil {
				return nil, err
			}
			shards[at.Shard] = true
			numbers = append(numbers, n)
		}
	}
	r.Samples, r.Shards = uint64(len(numbers)), len(shards)
	return numbers, nil
}

// missing is the error of keys that no sample has.
func (r *RemoveReport) missing(store objstore.Store) error {
	named := make([]string, len(r.MissingKeys))
	for i, k := range r.MissingKeys {
		named[i] = fmt.Sprintf("%q", k)
	}
	text := strings.Join(named, ", ")
	if more := r.Missing - len(named); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	what := fmt.Sprintf("%d of %d are %v: %s", r.Missing, r.Keys, ErrMissingKeys, text)
	if r.Keys == 1 {
		what = "no sample has the key " + text
	}
	return fmt.Errorf("%v: %s; nothing was changed; `shardtool ls %[1]v` lists keys%[3]w", store, what,
		plain.Silent(errors.Join(ErrMissingKeys, fs.ErrNotExist)))
}

// ReadKeys reads keys, one a line. Empty lines are left out; a carriage return at the end of a line
// is not part of the key. A line that cannot be a key is an error with its number.
func ReadKeys(from io.Reader) (keys []string, err error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 0, 64<<10), format.MaxName+2)
	n := 0
	for lines.Scan() {
		n++
		line := bytes.TrimSuffix(lines.Bytes(), []byte("\r"))
		if len(line) == 0 {
			continue
		}
		key := string(line)
		if err := format.CheckKey(key); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		keys = append(keys, key)
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d is longer than a key can be, %d bytes", n+1, format.MaxName)
	}
	return keys, lines.Err()
}
