package recognise

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/input/globs"
	"github.com/shardtool/shardtool/internal/input/tally"
	"github.com/shardtool/shardtool/objstore"
	"github.com/shardtool/shardtool/writer/source"
)

// Place is a folder or a prefix of a store.
type Place interface {
	// Names lists all files below, in any order, with slashes, and as names that end in a slash the
	// folders whose name begins with a dot or an underscore. The files in the former need not be
	// listed.
	Names(ctx context.Context) iter.Seq2[string, error]
	// Input opens a file.
	Input(name string) (source.Input, error)
}

// Options are what the user says about a folder.
type Options struct {
	// Choice is applied to names before the kind is decided.
	Choice globs.Choice
	// Tokens reports that files of token ids are wanted: else a .npy file is a field.
	Tokens bool
	// As is the kind of all files of its extensions, or with Files set, files are fields of samples.
	As    *Kind
	Files bool
	// Rows reports that rows name the other files, so that these are of no kind.
	Rows bool
	// Splits reports that files of several splits may be one data set.
	Splits bool
	// LeaveUnsafe leaves out files whose names no store accepts. Otherwise they are an error.
	LeaveUnsafe bool
}

// Answer is what a folder contains.
type Answer struct {
	// Kind is nil for a folder whose files are fields of samples.
	Kind *Kind
	// Names are the files of the kind, in the order of names, element by element. They are empty for
	// a layout.
	Names []string
	// As are the extensions by which some of them are read, where their names do not say so.
	As map[string]string
	// Layout reports that the folder as a whole is of the kind, or the folder Root in it.
	Layout bool
	Root   string
	// By is the file that shows the kind, or that no single kind is there.
	By string
	// Fields reports that all files are .npy files, each a field of a sample.
	Fields bool
	// Others are the files that rows may name, where Options.Rows says that they do.
	Others []string
	// Tally accounts for all names, where Kind is one that pack reads. Of the Others it knows that
	// they are listed.
	Tally tally.Tally
}

// MixedError: a folder contains two kinds, of which pack reads one at a time.
type MixedError struct {
	One, Other, OneName, OtherName string
	// Metadata is a file that names the others as image folders of Hugging Face do, or empty.
	Metadata string
}

// Error implements error.
func (e *MixedError) Error() string {
	return fmt.Sprintf("it contains %s, such as %s, beside %s, such as %s", e.One, e.OneName, e.Other, e.OtherName)
}

// ApartError: the names of all files of rows leave them out.
type ApartError struct {
	Kind *Kind
	Name string
}

// Error implements error.
func (e *ApartError) Error() string {
	return fmt.Sprintf("the names of all its %s, such as %s, or of their folders, begin with an underscore, as those of unfinished files do, and are left out", e.Kind.Many, e.Name)
}

// Bounds of what is examined.
const (
	mostFiles   = 64 // whose bytes are read
	ofExtension = 4  // of each extension
	mostMarkers = 16 // of each layout
)

// listing is the names of a folder by kind and by extension.
type listing struct {
	place Place
	opt   Options
	kinds map[*Kind][]string
	// samples are the first names of each extension, and others count files of no kind.
	samples map[string][]string
	others  map[string]int
	first   string // of the others
	apart   string // a file of a kind that Apart leaves out
	unsafe  string // a file of a kind with a name that no store accepts
	splits  Splits // folders of splits
	markers map[string][]string
	as      map[string]string
	seen    map[string]*Kind // by their bytes
	folders map[string]bool  // elements of names that layouts have
}

// Folder examines a folder.
func Folder(ctx context.Context, place Place, opt Options) (*Answer, error) {
	if opt.Files {
		return &Answer{}, nil
	}
	l := &listing{place: place, opt: opt, samples: map[string][]string{}, markers: map[string][]string{},
		as:   map[string]string{},
		seen: map[string]*Kind{}, folders: map[string]bool{}}
	if err := l.list(ctx, l.ofName); err != nil {
		return nil, err
	}
	a, err := l.answer(ctx)
	if err != nil {
		return nil, err
	}
	if a.Kind != nil && a.Kind.Help == "" && a.Tally.Listed == 0 {
		if _, err := l.aside(ctx, a, nil, func(string) bool { return true }); err != nil {
			return nil, err
		}
	}
	if opt.Splits || a.Kind != nil && a.Kind.Help != "" {
		return a, nil
	}
	splits := l.splits
	if a.Kind != nil {
		splits = SplitsOf(a.Names)
	}
	if len(splits) > 1 {
		return nil, &SplitsError{Splits: splits}
	}
	return a, nil
}

// answer finds what the listed files are.
func (l *listing) answer(ctx context.Context) (*Answer, error) {
	if l.opt.As != nil {
		return l.forced(ctx)
	}
	if a, err := l.layout(ctx); a != nil || err != nil {
		return a, err
	}
	if err := l.look(ctx); err != nil {
		return nil, err
	}
	if err := l.fields(ctx); err != nil {
		return nil, err
	}
	return l.decide(ctx)
}

// wanted reports whether a file is taken.
func (o *Options) wanted(name string) bool {
	return !strings.HasSuffix(name, "/") && o.Choice.Leaves(name) == "" && objstore.CheckName(name) == nil
}

// each calls f with the files that are taken.
func (l *listing) each(ctx context.Context, f func(name string)) error {
	for name, err := range l.place.Names(ctx) {
		if err != nil {
			return err
		}
		if l.opt.wanted(name) {
			f(name)
		}
	}
	return nil
}

// list sorts the files by their kinds, which of returns. It may be called again with another of.
func (l *listing) list(ctx context.Context, of func(name string) *Kind) error {
	l.kinds, l.others, l.first, l.splits = map[*Kind][]string{}, map[string]int{}, "", Splits{}
	for name, err := range l.place.Names(ctx) {
		if err != nil {
			return err
		}
		l.mark(name)
		if !l.opt.wanted(name) {
			if k := OfName(name); k != nil && !k.field && l.opt.Choice.Leaves(name) == "" &&
				!strings.HasSuffix(name, "/") {
				l.unsafe = name
			}
			continue
		}
		l.splits.folder(name)
		if l.opt.apart(name) {
			if k := OfName(name); k != nil && !k.field && (l.apart == "" || compare(name, l.apart) < 0) {
				l.apart = name
			}
			continue
		}
		ext := extension(name)
		insert(l.samples, ext, name, ofExtension)
		if k := of(name); k != nil {
			l.kinds[k] = append(l.kinds[k], name)
			continue
		}
		l.others[ext]++
		if l.first == "" || compare(name, l.first) < 0 {
			l.first = name
		}
	}
	for _, names := range l.kinds {
		slices.SortFunc(names, compare)
	}
	return ctx.Err()
}

func (l *listing) ofName(name string) *Kind {
	k := OfName(name)
	if l.opt.As == Text && Text.Names(name) {
		return Text
	}
	if k == Tokens && l.opt.As == Arrays && extension(name) == ".npy" {
		return Arrays
	}
	if k == Tokens && !l.opt.Tokens {
		return nil
	}
	return k
}

// apart reports whether a file of rows is left out by its name, which no glob of Include spells.
func (o *Options) apart(name string) bool { return globs.Apart(name) && !o.Choice.TakesApart(name) }

// extension returns the extension of a name, empty for names without one.
func extension(name string) string {
	ext := strings.ToLower(path.Ext(path.Base(name)))
	if _, suffix := ofName(name); suffix != "" {
		return suffix
	}
	if len(ext) > 12 { // a dot in a name that has no extension
		return ""
	}
	return ext
}

// insert keeps the first names of a group, and few groups.
func insert(groups map[string][]string, group, name string, most int) {
	names, known := groups[group]
	if !known && len(groups) >= 1024 {
		return
	}
	at, found := slices.BinarySearchFunc(names, name, compare)
	if at < most && !found {
		names = slices.Insert(names, at, name)
		groups[group] = names[:min(len(names), most)]
	}
}

// compare orders names element by element, as folders list them.
func compare(a, b string) int {
	return strings.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
}

// look reads the bytes of files, and corrects what their names said.
func (l *listing) look(ctx context.Context) error {
	var names []string
	for round := range ofExtension {
		for _, ext := range slices.Sorted(maps.Keys(l.samples)) {
			if round < len(l.samples[ext]) && len(names) < mostFiles {
				names = append(names, l.samples[ext][round])
			}
		}
	}
	if err := l.read(ctx, names); err != nil {
		return err
	}
	belied := map[string]*Kind{} // extensions whose files are of another kind than they state
	for _, name := range names {
		k := l.seen[name]
		if k != nil && k != l.ofName(name) && !(k == Tokens && extension(name) != ".npy") {
			belied[extension(name)] = k
		}
	}
	if len(belied) > 0 {
		if err := l.correct(ctx, belied); err != nil {
			return err
		}
	}
	if len(l.as) > 0 { // the files that were not read may be compressed too
		return l.read(ctx, slices.Concat(l.kinds[Lines], l.kinds[Tar], l.kinds[TFRecord], l.kinds[MDS]))
	}
	return nil
}

// read sets seen and as.
func (l *listing) read(ctx context.Context, names []string) error {
	var mu sync.Mutex
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(8)
	for _, name := range names {
		work.Go(func() error {
			in, err := l.place.Input(name)
			if err != nil {
				return nil // reading it gives the error
			}
			k, as, shown, err := of(ctx, in)
			if err != nil {
				return ctx.Err()
			}
			if !shown && extension(name) == ".npy" && l.opt.As != Arrays { // a field, or ids
				k = l.ofName(name)
			}
			mu.Lock()
			defer mu.Unlock()
			if l.seen[name] = k; as != "" {
				l.as[name] = as
			}
			return nil
		})
	}
	return work.Wait()
}

// correct lists files by their bytes where an extension states another kind.
func (l *listing) correct(ctx context.Context, belied map[string]*Kind) error {
	return l.list(ctx, func(name string) *Kind {
		ext, named := extension(name), l.ofName(name)
		k, is := l.seen[name]
		if !is {
			k = cmp.Or(belied[ext], named)
		}
		if (k == Tokens || k == Arrays) && k != named && !l.opt.Tokens && ext != ".npy" {
			return nil
		}
		return k
	})
}

func key(name string) string {
	k, _ := format.SplitName([]byte(name))
	return string(k)
}

// fields moves to the others those files that are fields of samples, because other files have their
// keys. Beside tar archives, the others with the key of an archive describe it.
func (l *listing) fields(ctx context.Context) error {
	keys := map[string]bool{}
	for k, names := range l.kinds {
		if k.field {
			for _, name := range names {
				keys[key(name)] = false
			}
		}
	}
	if len(keys) == 0 || len(l.others) == 0 || len(l.kinds[Tar]) > 0 {
		return nil
	}
	err := l.each(ctx, func(name string) {
		if _, is := keys[key(name)]; is && l.ofName(name) == nil && !l.taken(name) {
			keys[key(name)] = true
		}
	})
	if err != nil {
		return err
	}
	for k, names := range l.kinds {
		if !k.field {
			continue
		}
		most := len(names)
		l.kinds[k] = slices.DeleteFunc(names, func(name string) bool { return keys[key(name)] })
		// Where some lists of JSON are fields, the others lack the rest of their samples.
		if left := l.kinds[k]; len(left) == 0 || len(left) < most && onlyJSON(left) {
			delete(l.kinds, k)
		}
	}
	return nil
}

// taken reports whether a file has a kind that its name does not state.
func (l *listing) taken(name string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(l.kinds)),
		func(names []string) bool { return has(names, name) })
}

// has reports whether a name is among names, which compare has sorted.
func has(names []string, name string) bool {
	_, found := slices.BinarySearchFunc(names, name, compare)
	return found
}

// onlyJSON reports whether all files are lists of JSON by their bytes, not by their names.
func onlyJSON(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return extension(name) != ".json" })
}

// decide chooses the kind.
func (l *listing) decide(ctx context.Context) (*Answer, error) {
	tars := map[string]bool{}
	for _, name := range l.kinds[Tar] {
		tars[key(name)] = true
	}
	beside := func(name string) bool { // img2dataset has 00000.tar, 00000.parquet and 00000_stats.json
		k := key(name)
		return tars[k] || tars[strings.TrimSuffix(k, "_stats")]
	}
	for _, k := range []*Kind{Parquet, Lines} {
		if names := l.kinds[k]; len(tars) > 0 && len(names) > 0 && !slices.ContainsFunc(names,
			func(n string) bool { return !beside(n) }) {
			delete(l.kinds, k)
		}
	}
	indexed := map[string]bool{} // files of tokens that an index describes
	for _, name := range l.kinds[Megatron] {
		indexed[strings.TrimSuffix(name, path.Ext(name))+".bin"] = true
	}
	if l.kinds[Tokens] = slices.DeleteFunc(l.kinds[Tokens],
		func(name string) bool { return indexed[name] }); len(l.kinds[Tokens]) == 0 {
		delete(l.kinds, Tokens)
	}
	if len(l.kinds) > 1 && onlyJSON(l.kinds[Lines]) { // such a list describes the others
		delete(l.kinds, Lines)
	}
	if l.opt.Rows {
		maps.DeleteFunc(l.kinds, func(k *Kind, _ []string) bool {
			return k != Parquet && k != Lines && k != Arrow && k != TFRecord
		})
	}
	kinds := slices.SortedFunc(maps.Keys(l.kinds),
		func(a, b *Kind) int { return compare(l.kinds[a][0], l.kinds[b][0]) })
	for _, k := range kinds {
		if k.Help != "" { // its files are not samples, whatever is beside them
			return &Answer{Kind: k, By: l.kinds[k][0], Names: l.kinds[k]}, nil
		}
	}
	switch len(kinds) {
	case 0:
		if l.unsafe != "" && !l.opt.LeaveUnsafe {
			return nil, tally.UnsafeError(l.unsafe)
		}
		if l.apart != "" && l.first == "" {
			return nil, &ApartError{OfName(l.apart), l.apart}
		}
		if l.apart != "" {
			return nil, &MixedError{OfName(l.apart).Many, "other files", l.apart, l.first, ""}
		}
		if l.others[".bin"] > 0 && len(l.others) == 1 && !slices.ContainsFunc(l.samples[".bin"],
			func(n string) bool { return !split(n) }) {
			a := &Answer{Kind: Tokens, By: l.first}
			err := l.each(ctx, func(name string) {
				if extension(name) == ".bin" && !l.opt.apart(name) {
					a.Names = append(a.Names, name)
				}
			})
			slices.SortFunc(a.Names, compare)
			return a, err
		}
		return &Answer{By: l.first, Fields: l.others[".npy"] > 0 && len(l.others) == 1}, nil
	case 1:
	default:
		return nil, &MixedError{kinds[0].Many, kinds[1].Many, l.kinds[kinds[0]][0], l.kinds[kinds[1]][0], ""}
	}
	k := kinds[0]
	a := &Answer{Kind: k, Names: l.kinds[k], By: l.kinds[k][0], As: l.as}
	if l.opt.Rows {
		return a, nil
	}
	foreign, err := l.aside(ctx, a, indexed, beside)
	if err != nil {
		return nil, err
	}
	if foreign != "" {
		return nil, &MixedError{k.Many, "other files", a.By, foreign, metadata(a.Names)}
	}
	return a, nil
}

// metadata returns the name of a file of an image folder that names the others.
func metadata(names []string) string {
	for _, name := range names {
		if base, _, _ := strings.Cut(path.Base(name), "."); base == "metadata" {
			return name
		}
	}
	return ""
}

// split reports whether a name says a split, as train.bin and val.bin do, which contain tokens.
func split(name string) bool {
	base := strings.ToLower(path.Base(name))
	return strings.Contains(base, "train") || strings.HasPrefix(base, "val") || strings.HasPrefix(base, "test")
}

// describing are extensions of files that describe others, such as README.md and
// dataset_infos.json.
var describing = []string{"", ".md", ".rst", ".txt", ".json", ".yaml", ".yml", ".toml", ".xml", ".html", ".pdf", ".py",
	".ipynb", ".sh", ".bib", ".cff",
	".crc", ".md5", ".sha1", ".sha256", ".sum", ".log", ".lock", ".index", ".idx", ".shidx"}

// Describes reports whether a file with this name may merely describe others.
func Describes(name string) bool { return slices.Contains(describing, extension(name)) }

// aside accounts for all names, and finds the files that are not of the kind, nor parts of it. It
// returns one that does not merely describe them, if there is one, or if there are too many for
// descriptions.
func (l *listing) aside(ctx context.Context, a *Answer, parts map[string]bool,
	beside func(string) bool) (foreign string, err error) {
	packed := slices.SortedFunc(slices.Values(a.Names), compare)
	apart := 0       // those that describe no archive of their own
	folder := ""     // one that was left out, whose files need not be listed
	hide := func() { // it has none
		if folder != "" {
			a.Tally.Listed++
			a.Tally.Leave(l.opt.Choice.Leaves(folder), folder)
		}
		folder = ""
	}
	for name, err := range l.place.Names(ctx) {
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(name, folder) {
			folder = ""
		}
		hide()
		if strings.HasSuffix(name, "/") {
			if l.opt.Choice.Hides(name, name) != "" {
				folder = name
			}
			continue
		}
		a.Tally.Listed++
		rule := l.opt.Choice.Leaves(name)
		if rule == "" && l.opt.apart(name) {
			rule = tally.Hidden
		}
		unsafe := tally.UnsafeError(name)
		switch {
		case rule != "":
		case has(packed, name) || parts[name]:
			continue
		case unsafe != nil && OfName(name) == a.Kind && l.opt.LeaveUnsafe:
			rule = tally.Unsafe
		case unsafe != nil && OfName(name) == a.Kind:
			return "", unsafe
		case l.opt.Rows:
			a.Others = append(a.Others, name)
			continue
		default:
			rule = tally.Side
		}
		a.Tally.Leave(rule, name)
		if rule != tally.Side || beside(name) {
			continue
		}
		if apart++; !Describes(name) || apart > 16+len(a.Names) {
			if foreign == "" || compare(name, foreign) < 0 {
				foreign = name
			}
		}
	}
	hide()
	return foreign, ctx.Err()
}

// forced takes all files of the extensions of a kind, or all files if there is none.
func (l *listing) forced(ctx context.Context) (*Answer, error) {
	a := &Answer{Kind: l.opt.As, Names: l.kinds[l.opt.As]}
	if len(a.Names) == 0 {
		err := l.each(ctx, func(name string) {
			if !l.opt.apart(name) {
				a.Names = append(a.Names, name)
			}
		})
		if err != nil {
			return nil, err
		}
		slices.SortFunc(a.Names, compare)
	}
	if len(a.Names) == 0 {
		return &Answer{}, nil
	}
	a.By = a.Names[0]
	err := l.read(ctx, a.Names[:min(len(a.Names), mostFiles)])
	a.As = l.as
	return a, err
}
