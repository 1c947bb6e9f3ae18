package inputs

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/objstore/local"
)

// Layout is the layout of a data set of another system, whose files are not samples.
type Layout struct {
	// Name is for messages, such as "an LMDB database".
	Name string
	// Found is the file that it was recognized by, below the folder that was examined.
	Found string
}

// layouts are recognized by a file of each of these names. json requires a JSON object with these
// members, because the name alone is common.
var layouts = []struct {
	name, file string
	json       []string
}{
	{"an LMDB database", "data.mdb", nil},
	{"a Zarr store", ".zgroup", nil},
	{"a Zarr store", ".zarray", nil},
	{"a Zarr store", "zarr.json", []string{"zarr_format"}},
	{"a Hugging Face data set of save_to_disk", "dataset_dict.json", []string{"splits"}},
	{"a Hugging Face data set of save_to_disk", "state.json", []string{"_data_files"}},
	{"a MosaicML (MDS) data set", "index.json", []string{"version", "shards"}},
	{"a LitData data set", "index.json", []string{"chunks", "config"}},
}

// maxMarker bounds the JSON that is read to recognize a layout. The index of a large data set is
// larger; its beginning is enough.
const maxMarker = 1 << 20

// LayoutOf recognizes a data set of another system in a store. It returns nil if there is none.
func LayoutOf(ctx context.Context, store objstore.Store) (*Layout, error) {
	for _, l := range layouts {
		info, err := store.Stat(ctx, l.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if l.json != nil {
			is, err := hasMembers(ctx, store, info, l.json)
			if err != nil {
				return nil, err
			}
			if !is {
				continue
			}
		}
		return &Layout{l.name, l.file}, nil
	}
	return nil, nil
}

// hasMembers reports whether an object begins as a JSON object with these members.
func hasMembers(ctx context.Context, store objstore.Store, info objstore.Info, members []string) (bool, error) {
	obj, err := store.Open(ctx, info.Name)
	if err != nil {
		return false, err
	}
	defer obj.Close()
	head := make([]byte, min(info.Size, maxMarker))
	if err := obj.ReadAt(ctx, head, 0); err != nil {
		return false, err
	}
	found := map[string]bool{}
	d := json.NewDecoder(strings.NewReader(string(head)))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false, nil
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			break
		}
		if text, ok := name.(string); ok {
			found[text] = true
		}
		var value json.RawMessage
		if d.Decode(&value) != nil { // a value that exceeds maxMarker, perhaps
			break
		}
	}
	for _, m := range members {
		if !found[m] {
			return false, nil
		}
	}
	return true, nil
}

// mostFolders bounds the folders examined inside a folder of sources.
const mostFolders = 64

// LayoutIn recognizes a data set of another system in a folder of this machine, or in one of the
// folders directly inside it, as for splits. It returns nil if there is none, or if the folder
// cannot be read: then reading the source gives the error.
func LayoutIn(ctx context.Context, dir string) *Layout {
	l := layoutIn(ctx, dir)
	if l != nil {
		return l
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.ReadDir(1024) // folders of files have more; folders of splits are few
	folders := 0
	for _, e := range names {
		if !e.IsDir() {
			continue
		}
		if folders++; folders > mostFolders {
			return nil
		}
		if l := layoutIn(ctx, filepath.Join(dir, e.Name())); l != nil {
			l.Found = e.Name() + "/" + l.Found
			return l
		}
	}
	return nil
}

func layoutIn(ctx context.Context, dir string) *Layout {
	store, err := local.New(dir, local.Options{})
	if err != nil {
		return nil
	}
	l, _ := LayoutOf(ctx, store)
	return l
}
