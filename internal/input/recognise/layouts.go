package recognise

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/globs"
	"github.com/shardtool/shardtool/internal/input/mds"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer/source"
)

// layouts are recognized by a file of one of these names, or by a folder, whose name ends in a
// slash. With members, the file must be a JSON object that has them, because its name alone is
// common.
var layouts = []struct {
	kind    *Kind
	marker  string
	members []string
}{
	{delta, "_delta_log/", nil},
	{lance, "_versions/", nil},
	{hudi, ".hoodie/", nil},
	{iceberg, "version-hint.text", nil},
	{iceberg, ".metadata.json", []string{"table-uuid", "location"}},
	{lmdb, "data.mdb", nil},
	{zarr, ".zgroup", nil},
	{zarr, ".zarray", nil},
	{zarr, "zarr.json", []string{"zarr_format"}},
	{Arrow, "dataset_dict.json", []string{"splits"}},
	{Arrow, "state.json", []string{"_data_files"}},
	{mosaic, "index.json", []string{"version", "shards"}},
	{litdata, "index.json", []string{"chunks", "config"}},
	{coco, ".json", []string{"images", "annotations"}}, // of captions, without categories
	{lerobot, "info.json", []string{"codebase_version", "features"}},
}

// mark keeps the names that layouts have. Those in folders that a table leaves out are of no table.
func (l *listing) mark(name string) {
	base := path.Base(name)
	if dir := path.Dir(strings.TrimSuffix(name, "/")); globs.Hidden(dir+"/") && dir != "." || l.opt.apart(dir) {
		return
	}
	if strings.HasSuffix(name, "/") {
		base += "/"
	} else if !l.opt.Choice.Takes(name) {
		return
	}
	for _, of := range layouts {
		if base == of.marker || len(base) > len(of.marker) && of.members != nil && of.marker[0] == '.' &&
			strings.HasSuffix(base, of.marker) {
			insert(l.markers, of.kind.ID+of.marker, name, mostMarkers)
		}
	}
	if name == "validated.tsv" || name == "metadata.csv" {
		l.folders[name] = true
	}
	for element := range strings.SplitSeq(path.Dir(name), "/") {
		switch element {
		case "JPEGImages", "Annotations", "images", "labels", "clips", "wavs", "image_2", "label_2", "leftImg8bit",
			"gtFine":
			ext := extension(name)
			l.folders[element+ext] = true
			l.folders[element] = true
		}
	}
}

// layout returns the layout of the folder, or nil.
func (l *listing) layout(ctx context.Context) (*Answer, error) {
	for _, of := range layouts {
		for _, name := range l.markers[of.kind.ID+of.marker] {
			if of.members != nil {
				in, err := l.place.Input(name)
				if err != nil || !hasMembers(ctx, in, of.members) {
					continue
				}
			}
			switch of.kind {
			case Arrow:
				return l.saved(ctx)
			case mosaic:
				if a, err := l.shards(ctx); a != nil || err != nil {
					return a, err
				}
				continue
			}
			a := &Answer{Kind: of.kind, By: name, Layout: true}
			if strings.HasSuffix(of.marker, "/") {
				a.Root = path.Dir(strings.TrimSuffix(name, "/"))
			}
			if of.kind == iceberg {
				a.Root = path.Dir(path.Dir(name)) // over metadata/
			}
			return a, ctx.Err()
		}
	}
	switch {
	case l.folders["JPEGImages"] && l.folders["Annotations.xml"]:
		return &Answer{Layout: true, Kind: voc, By: "JPEGImages"}, nil
	case l.folders["images"] && l.folders["labels.txt"]:
		return &Answer{Layout: true, Kind: yolo, By: "labels"}, nil
	case l.folders["image_2"] && l.folders["label_2.txt"]:
		return &Answer{Layout: true, Kind: kitti, By: "label_2"}, nil
	case l.folders["leftImg8bit.png"] && l.folders["gtFine"]:
		return &Answer{Layout: true, Kind: cityscapes, By: "gtFine"}, nil
	case l.folders["clips"] && l.folders["validated.tsv"]:
		return &Answer{Layout: true, Kind: commonVoice, By: "validated.tsv"}, nil
	case l.folders["wavs.wav"] && l.folders["metadata.csv"] && l.begins(ctx, "metadata.csv", "|"):
		return &Answer{Layout: true, Kind: ljspeech, By: "metadata.csv"}, nil
	}
	for _, name := range l.samples[".json"] {
		images := len(l.samples[".jpg"])+len(l.samples[".jpeg"])+len(l.samples[".png"]) > 0
		if images && !l.opt.Rows && l.begins(ctx, name, `"conversations"`, `"image"`) {
			return &Answer{Kind: llava, By: name}, nil
		}
	}
	return nil, nil
}

// begins reports whether texts are in the beginning of a file: of JSON in a list, else in the first
// line.
func (l *listing) begins(ctx context.Context, name string, texts ...string) bool {
	in, err := l.place.Input(name)
	if err != nil {
		return false
	}
	head, _, _, err := bothEnds(ctx, in, 64<<10, 0)
	if json := path.Ext(name) == ".json"; json && !isList(head) {
		return false
	} else if !json {
		head, _, _ = bytes.Cut(head, []byte("\n"))
	}
	return err == nil && !slices.ContainsFunc(texts,
		func(text string) bool { return !bytes.Contains(head, []byte(text)) })
}

// saved lists the files of a data set of save_to_disk in their order.
func (l *listing) saved(ctx context.Context) (*Answer, error) {
	states := l.markers[Arrow.ID+"state.json"]
	if len(states) != 1 || len(l.markers[Arrow.ID+"dataset_dict.json"]) > 0 {
		split := &SplitsError{}
		for _, name := range states {
			split.Saved = append(split.Saved, path.Dir(name))
		}
		return nil, split
	}
	in, err := l.place.Input(states[0])
	if err != nil {
		return nil, err
	}
	text, _, err := objstore.ReadAll(ctx, in.Store, in.Name, 16*maxMarker)
	if err != nil {
		return nil, err
	}
	type file struct {
		Name string `json:"filename"`
	}
	var state struct {
		Files   []file `json:"_data_files"`
		Indices []file `json:"_indices_data_files"`
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", format.ErrCorrupt, states[0], err)
	}
	if len(state.Indices) > 0 {
		return nil, fmt.Errorf("%s: it selects rows by a file of indices: in Python, save it again after flatten_indices()", states[0])
	}
	a := &Answer{Kind: Arrow, By: states[0]}
	for _, f := range state.Files {
		if f.Name == "" || f.Name == ".." || strings.ContainsAny(f.Name, `/\`) {
			return nil, fmt.Errorf("%w: %s: it names the file %q, which is not in its folder", format.ErrCorrupt,
				states[0], f.Name)
		}
		if name := path.Join(path.Dir(states[0]), f.Name); l.opt.Choice.Takes(name) {
			a.Names = append(a.Names, name)
		}
	}
	return a, nil
}

// shards lists the shards that indexes of MosaicML Streaming name, in the order of the indexes. A
// shard that is there with and without compression is read without.
func (l *listing) shards(ctx context.Context) (*Answer, error) {
	var indexes []string // all: more than the markers
	for name, err := range l.place.Names(ctx) {
		if err != nil {
			return nil, err
		}
		if path.Base(name) == mds.IndexName && l.opt.wanted(name) && !l.opt.apart(name) {
			indexes = append(indexes, name)
		}
	}
	slices.SortFunc(indexes, compare)
	a := &Answer{Kind: MDS}
	parts := map[string]bool{} // indexes, and the other forms of shards
	for _, index := range indexes {
		in, err := l.place.Input(index)
		if err != nil {
			return nil, err
		}
		list, err := mds.ReadIndex(ctx, in.Store, in.Name)
		if errors.Is(err, mds.ErrOther) {
			return &Answer{Kind: mosaic, By: index, Layout: true}, nil
		}
		if errors.Is(err, mds.ErrNone) { // a file of that name
			continue
		}
		if err != nil {
			return nil, err
		}
		parts[index], a.By = true, cmp.Or(a.By, index)
		for _, s := range list {
			raw, zip := path.Join(path.Dir(index), s.Raw.Name), path.Join(path.Dir(index),
				cmp.Or(s.Zip.Name, s.Raw.Name))
			name := raw
			if !has(l.kinds[MDS], raw) {
				name = zip
			}
			if !l.opt.Choice.Takes(name) || parts[raw] && parts[zip] { // an index over others names their shards again
				continue
			}
			parts[raw], parts[zip] = true, true
			if OfName(name) == mdsCoded {
				return &Answer{Kind: mdsCoded, By: name}, nil
			}
			a.Names = append(a.Names, name)
		}
	}
	if len(parts) == 0 {
		return nil, nil
	}
	foreign, err := l.aside(ctx, a, parts, func(name string) bool { return OfName(name) == MDS })
	if err != nil {
		return nil, err
	}
	if foreign != "" {
		return nil, &MixedError{MDS.Many, "other files", a.By, foreign, ""}
	}
	return a, nil
}

// maxMarker bounds the JSON that is read to recognize a layout. The index of a large data set is
// longer; its beginning is enough, and for lists of COCO the end too.
const maxMarker = 1 << 20

// longLists are the members that fill such a file.
var longLists = []string{"images", "annotations", "shards"}

// hasMembers reports whether a file is a JSON object with these members, as far as its beginning
// shows. A file that cannot be read has none. Where one of longLists is longer than what is read,
// the members after it need not be seen.
func hasMembers(ctx context.Context, in source.Input, members []string) bool {
	head, _, size, err := bothEnds(ctx, in, maxMarker, 0)
	if err != nil {
		return false
	}
	found := map[string]bool{}
	d := json.NewDecoder(bytes.NewReader(head))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	cut := false
	for d.More() {
		var value json.RawMessage
		name, err := d.Token()
		if text, ok := name.(string); ok {
			found[text] = true
			err = d.Decode(&value)
		}
		if err != nil { // a value that exceeds maxMarker, perhaps
			cut = size > maxMarker
			break
		}
	}
	missing := slices.ContainsFunc(members, func(m string) bool { return !found[m] })
	return !missing || cut && slices.ContainsFunc(members,
		func(m string) bool { return found[m] && slices.Contains(longLists, m) })
}
