package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/cmd/shardtool/internal/bench"
	"github.com/shardtool/shardtool/cmd/shardtool/internal/explain"
	"github.com/shardtool/shardtool/cmd/shardtool/internal/simulate"
	"github.com/shardtool/shardtool/internal/order/units"
	"github.com/shardtool/shardtool/internal/testset/programs"
	"github.com/shardtool/shardtool/objstore/storetest/gsserver"
	"github.com/shardtool/shardtool/reader"
	"github.com/shardtool/shardtool/reshard"
	"github.com/shardtool/shardtool/writer"
)

const jsonIntro = `# JSON of every command

With ` + "`--json`" + `, commands that report print JSON on stdout. A later version may add members, but does not rename or remove any: ignore those that you do
not know. A command that fails prints its error on stderr; stdout may contain the results until then.

` + "`ls`, `cat` and `order`" + ` print one JSON object per line, all others one value. Numbers may exceed 2^53: read them as 64-bit integers. ` + "`a[]`" + ` stands for
each element of an array, ` + "`a.*`" + ` for each member of an object whose names come from the data. A key that is not UTF-8
has its invalid bytes replaced in ` + "`key`, and is exact in `key_base64`" + `. Members without a meaning are as their names say; a member is absent where it
does not apply. A test runs every command and compares.

Braces name a group of members:

`

// jsonGroups are types of several commands, whose members the page lists at its head.
var jsonGroups = []jsonSection{
	{name: "{packed}", of: runJSON{}}, {name: "{place}", of: explain.Stored{}}, {name: "{order}", of: orderJSON{}}, {name: "{units}", of: units.Params{}},
	{name: "{balance}", of: reader.Balance{}}, {name: "{world}", of: simulate.Reading{}}, {name: "{mixing}", of: simulate.Mixing{}},
}

// catLine are the lines of cat.
type catLine struct {
	orderLine
	// With `--checkpoints`, a line after each batch: SPEC 9.10, of a mix SPEC 9.13.
	Checkpoint map[string]any `json:"checkpoint"`
}

type jsonSection struct {
	name string
	of   any // what is printed
	note string
	runs []string
}

// jsonSections are the sections of docs/json.md: what a command prints, and commands whose output,
// together, has every member of it. Lines that begin with ! are shell commands that prepare the
// next ones. All run in this order.
var jsonSections = []jsonSection{
	{"pack", packJSON{}, "", []string{
		`!mkdir src rows; for i in $(seq 10 39); do echo "text $i" > src/s$i.txt; done; : > src/s10.json; printf x > "src/$(printf 'k\377')"; : > src/.hidden`,
		`!for i in 0 1 2; do echo "{\"id\":\"r$i\",\"n\":$i,\"label\":\"a\"}" >> rows/r.jsonl; done`,
		"pack src out --block-size 4KiB", "pack rows/r.jsonl rowset --key id --attr n=n --attr label=label"}},
	{"pack --parts", partJSON{}, "", []string{"pack src parts --parts 2 --part 0"}},
	{"index", packJSON{}, "", []string{"!mkdir tars; cp src/s1* .; tar --sort=name -cf tars/t.tar s1*; : > tars/README", "index tars"}},
	{"commit", packJSON{}, "", []string{"!shardtool pack src parts --parts 2 --part 1 --quiet", "commit parts --parts 2"}},
	{"missing", missingJSON{}, "", []string{"!shardtool pack src lost --parts 2 --part 0 --quiet; for f in lost/*.tar.zst; do echo x > $f; done", "missing lost --parts 2"}},
	{"prune", pruneJSON{}, "", []string{"!for i in 1 2; do shardtool pack src old --overwrite --quiet; done; cp src/s11.txt old/data-000099.tar.zst", "prune old --keep 1 --grace 0s",
		"!shardtool pack src begun --parts 2 --part 0 --quiet", "prune begun"}},
	{"remove", reshard.RemoveReport{}, "", []string{"!cp -r out less; printf 's11\nnobody\n' > gone", "remove less --keys gone --allow-missing",
		"!mkdir texts; cp src/s1?.txt texts; shardtool pack texts layered --quiet; shardtool layer add layered texts --copy txt --quiet",
		"!rm texts/s11.txt; shardtool pack texts other --quiet; shardtool layer add other texts --copy txt --quiet",
		"!cp -r other/layers/texts layered/layers/misfit; echo s12 > gone12", "remove layered --keys gone12"}},
	{"purge", writer.PurgeReport{}, "", []string{"purge less", "purge less --generations", "!echo s12 > gone; shardtool remove less --keys gone", "purge less --dry-run",
		"!mkdir -p byclass/a byclass/b; echo 1 > byclass/a/x.txt; echo 2 > byclass/b/y.txt; shardtool pack byclass/b left --quiet",
		"!shardtool pack byclass left --overwrite --class-field cls --quiet; shardtool ls left | head -1 | shardtool remove left --keys -", "purge left", "purge layered"}},
	{"layer add", layerAddJSON{}, "", []string{"layer add layered again --copy txt", `!mkdir more; for f in texts/s1?.txt; do cp $f more/$(basename $f .txt).note; done; : > more/.hidden`,
		"layer add layered more more --missing allow --unknown skip", "!shardtool layer remove layered more"}},
	{"layer ls", layerLsJSON{}, "", []string{"layer ls layered", `!for i in 0 1 2; do echo "{\"id\":\"r$i\",\"score\":$i}" >> scores.jsonl; done`,
		"!shardtool layer add rowset scores scores.jsonl --key id --attr score=score --quiet", "layer ls rowset"}},
	{"layer remove", layerRemoveJSON{}, "", []string{"layer remove layered again"}},
	{"inspect", inspectJSON{}, "", []string{"!shardtool pack src out --overwrite --quiet --block-size 4KiB", "inspect out --blocks",
		"!shardtool select rowset --where 'n > 0' --name some; echo x > rowset/views/bad.json", "inspect rowset", "inspect rowset#some", "inspect layered --layer texts",
		"!shardtool pack \"$TOKENS/uint16.npy\" stacked --pack-tokens 10 --quiet", "inspect stacked"}},
	{"inspect MIX.yaml", dryRun{}, "", []string{
		"!for i in 0 1; do (echo '{\"id\":\"a\",\"n\":3}'; echo '{\"id\":\"b\",\"n\":5}') > rows/n$i.jsonl; shardtool pack rows/n$i.jsonl n$i --key id --attr tokens=n --quiet; done",
		"!printf 'sources: {a: {data: n0, weight: 1, max_epochs: 1}, b: {data: n1, weight: 1, max_epochs: 2}}\n' > dry.yaml",
		"inspect dry.yaml --shuffle --global-batch 2 --tail pad --samples-per-second 5",
		"inspect dry.yaml --global-batch 2 --pack 9 --plans none"}},
	{"inspect --against", againstJSON{}, "", []string{"inspect out --against rowset"}},
	{"inspect --checkpoint", checkpointJSON{}, "", []string{
		"!shardtool cat out --shuffle --global-batch 4 --limit 8 --checkpoint-out ck > /dev/null", "inspect out --checkpoint ck"}},
	{"inspect --checkpoint of units", checkpointJSON{}, "", []string{
		`!(printf '{"id":"a","n":3}\n{"id":"b","n":2}\n') > u.jsonl; shardtool pack u.jsonl uset --key id --attr n=n --quiet; shardtool cat uset --json --pack 3 --by n --global-batch 1 --limit 1 --plans none --checkpoint-out uck > /dev/null`,
		"inspect uset --checkpoint uck"}},
	{"verify", verifyJSON{}, "With exit code 8 all faults are `unread`.", []string{"!cp -r out broken; for f in broken/*.tar.zst; do printf x | dd of=$f bs=1 seek=50 conv=notrunc; done", "verify broken --deep"}},
	{"ls", lsLine{}, "", []string{"ls out", "ls rowset"}},
	{"cat", catLine{}, "", []string{
		"!for d in out rowset; do echo \"  $d: {data: $PWD/$d}\"; done | (echo sources:; cat) > mix.yaml",
		"cat out --global-batch 40 --tail pad --checkpoints", "cat mix.yaml --global-batch 10 --limit 10"}},
	{"order", orderLine{}, "`key`, `key_base64`: with `--keys`.", []string{"order out --global-batch 40 --tail pad --keys", "order mix.yaml --global-batch 10 --limit 10"}},
	{"order --pack", unitLine{}, "Each line is a sequence or a micro-batch, and positions count these.", []string{
		`!(printf '{"id":"a","n":3}\n{"id":"b","n":2}\n') > len.jsonl; shardtool pack len.jsonl lens --key id --attr n=n --quiet`,
		"order lens --pack 3 --by n --keys --global-batch 4 --tail pad", "order dry.yaml --pack 9 --keys --plans none"}},
	{"explain", explain.Step{}, "Positions count samples over all epochs and ranks.", []string{
		"explain out --global-batch 40 --tail pad", "explain mix.yaml --global-batch 10", "!cp -r out less; shardtool ls out | head -1 | shardtool remove less --keys -", "explain less",
		"!shardtool cat mix.yaml --global-batch 10 --limit 10 --skip-steps 0-1 --checkpoint-out mixck > /dev/null", "explain mixck mix.yaml --step 0"}},
	{"explain --pack", explain.Step{}, "With units: positions and counts count units.", []string{"explain dry.yaml --global-batch 2 --pack 9 --plans none", "explain uset --pack 3 --by n --plans none"}},
	{"explain CHECKPOINT", explain.Standing{}, "", []string{
		"explain ck", "explain mixck",
		"!echo 'segments: [{at: 1000, weights: {out: 1}}]' >> mix.yaml; shardtool cat mix.yaml --global-batch 10 --limit 10 --checkpoint-out mixck > /dev/null", "explain mixck"}},
	{"doctor", doctorJSON{}, "", []string{"doctor src", "doctor out", "!shardtool pack src gs://bucket/set --quiet", "doctor gs://bucket/set"}},
	{"export", exportJSON{}, "", []string{"export out --out exported"}},
	{"select", selectJSON{}, "", []string{
		`!printf 'key,value\nr0,1\nr1,1e-30\ngone,1\n' > w.csv; printf '{"id":"a","l":"x","t":1}\n{"id":"b","l":null,"t":1}\n' > l.jsonl`,
		"!shardtool pack l.jsonl labelled --key id --attr l=l --quiet",
		"select rowset --weight w.csv --default 0 --allow-missing --name scored", "select labelled --balance l"}},
	{"stage", stageJSON{}, "", []string{"stage out --cache cache", "stage mix.yaml --cache cache"}},
	{"simulate", simulateJSON{}, "", []string{
		"simulate out --shuffle --global-batch 4 --samples-per-second 5", "simulate rowset --label label --cost n --worlds 2 --micro-batches 2"}},
	{"simulate MIX.yaml", simulateMixJSON{}, "", []string{"simulate dry.yaml --shuffle --global-batch 2 --tail pad --samples-per-second 5 --cost tokens --worlds 1 --micro-batches 2"}},
	{"simulate --pack", simulateUnitsJSON{}, "", []string{"simulate uset --pack 3 --by n --plans none --cost n^2 --worlds 2 --micro-batches 2"}},
	{"simulate MIX.yaml --pack", simulateMixUnitsJSON{}, "", []string{"simulate dry.yaml --pack 9 --global-batch 2 --plans none --cost tokens --worlds 1 --micro-batches 2"}},
	{"bench", bench.Report{}, "", []string{"bench out --shuffle --global-batch 4 --batches 3 --cache cache --quiet", "bench mix.yaml --global-batch 4 --batches 3 --quiet",
		"bench uset --pack 3 --by n --batches 2 --quiet --plans plans"}},
	{"version", versionJSON{}, "", []string{"version"}},
}

// jsonRare are beginnings of the types and names of members that appear in no small run, with the
// reason.
var jsonRare = map[string]string{
	"bench.": "depends on the host, on timing and on flags", "check.Report.dropped": "a data set with more than 10,000 faults", "check.Report.unread": "a store that fails",
	"explain.Standing.steered": "weights that a program sets, see TestSteered", "explain.StandingSteered.": "as above",
	"writer.PurgedLayer.unpublished": "a layer whose addition was killed, see the script layerleft", "writer.PurgeReport.not_searched": "as above",
	"writer.LayerInfo.unpublished": "as above", "writer.LayerInfo.clashes": "a layer of an older version",
	"writer.KeptVersion.": "versions in a bucket, see TestVersions", "writer.PurgeReport.versions_": "as above", "main.pruneJSON.versions_": "as above",
}

const jsonModule = "github.com/shardtool/shardtool/"

// jsonMember is a field of a struct as JSON has it.
type jsonMember struct {
	key, field  string       // the field with its type, and its name in Go
	name, shown string       // shown has [] or .* behind it
	index       int          // of the field
	of          reflect.Type // of the value, or of the elements of an array
	object      bool         // the value is an object of that type
	flat        bool         // the members of that type are members of the struct
}

// jsonFields returns the fields of a struct that JSON has.
func jsonFields(t reflect.Type) (all []jsonMember) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		m := jsonMember{t.String() + "." + name, f.Name, name, name, i, f.Type, false, name == ""}
		if name == "-" || m.flat && !f.Anonymous && !f.IsExported() {
			continue
		}
		for m.of.Kind() == reflect.Pointer || m.of.Kind() == reflect.Slice && m.of.Elem().Kind() != reflect.Uint8 {
			if m.of.Kind() == reflect.Slice {
				m.shown += "[]"
			}
			m.of = m.of.Elem()
		}
		if m.of.Kind() == reflect.Map {
			m.shown += ".*"
		}
		m.object = m.of.Kind() == reflect.Struct && strings.HasPrefix(m.of.PkgPath(), jsonModule)
		all = append(all, m)
	}
	return all
}

// jsonMembers returns the members of an object.
func jsonMembers(t reflect.Type) (all []jsonMember) {
	for _, m := range jsonFields(t) {
		if m.flat {
			all = append(all, jsonMembers(m.of)...)
		} else {
			all = append(all, m)
		}
	}
	return all
}

// jsonSource is the declaration of a type.
type jsonSource struct {
	doc    string
	fields []jsonComment
}

// jsonComment is what the source says of a field.
type jsonComment struct {
	begins      bool   // a comment or a blank line is before the field
	doc, behind string // the comment before the field, and the one behind it
}

// jsonPage makes the page.
type jsonPage struct {
	t       *testing.T
	sources map[string]map[string]jsonSource // by package and name
	home    map[reflect.Type]string          // the section that lists the members of a type
	listed  map[reflect.Type]string          // the member of that section that they are listed below
	section string
	out     strings.Builder
}

// source returns the declaration of a type.
func (p *jsonPage) source(t reflect.Type) jsonSource {
	of := p.sources[t.PkgPath()]
	if of == nil {
		of = map[string]jsonSource{}
		p.sources[t.PkgPath()] = of
		names, _ := filepath.Glob("../../" + strings.TrimPrefix(t.PkgPath(), jsonModule) + "/*.go")
		for _, name := range names {
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, name, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				p.t.Fatal(err)
			}
			for _, d := range file.Decls {
				if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.TYPE {
					for _, spec := range d.Specs {
						of[spec.(*ast.TypeSpec).Name.Name] = jsonSource{d.Doc.Text(), jsonComments(files, spec.(*ast.TypeSpec).Type)}
					}
				}
			}
		}
	}
	return of[t.Name()]
}

// jsonComments returns the comments of the fields of a struct.
func jsonComments(files *token.FileSet, of ast.Expr) (all []jsonComment) {
	s, ok := of.(*ast.StructType)
	if !ok {
		return nil
	}
	last := files.Position(s.Pos()).Line
	for _, f := range s.Fields.List {
		c := jsonComment{f.Doc != nil || files.Position(f.Pos()).Line > last+1, f.Doc.Text(), f.Comment.Text()}
		last = files.Position(f.End()).Line
		for range max(1, len(f.Names)) {
			all = append(all, c)
			c = jsonComment{behind: c.behind}
		}
	}
	return all
}

var (
	jsonLead = regexp.MustCompile(`^(\w+)((,| and) [A-Z]\w*)*( is| are| has| have| says| counts?| reports that|:) `)
	jsonWord = regexp.MustCompile(`\b[A-Z]\w*`)
)

// jsonMeaning returns the first sentence of a comment, in which fields have their names in JSON.
func jsonMeaning(t reflect.Type, comment string) string {
	text, _, _ := strings.Cut(strings.Join(strings.Fields(comment), " ")+" ", ". ")
	names := map[string]string{t.Name(): t.Name()}
	for _, m := range jsonFields(t) {
		names[m.field] = "`" + m.name + "`"
	}
	if lead := jsonLead.FindStringSubmatch(text); lead != nil && names[lead[1]] != "" {
		text = text[len(lead[0]):]
	}
	first, rest, _ := strings.Cut(text, " ")
	if first != "" && first[1:] == strings.ToLower(first[1:]) {
		first = strings.ToLower(first[:1]) + first[1:]
	}
	return strings.TrimSpace(first + " " + jsonWord.ReplaceAllStringFunc(rest, func(w string) string { return cmp.Or(names[w], w) }))
}

// as says where the page lists the members of a type, if not at this member of the section.
func (p *jsonPage) as(t reflect.Type, at string) string {
	home, listed := cmp.Or(p.home[t], p.section), p.listed[t]
	switch {
	case home != p.section && home[0] == '{':
		return home
	case home != p.section:
		return "as for `" + home + "`"
	case listed != "":
		return "as " + listed
	}
	p.home[t], p.listed[t] = home, "`"+at+"`"
	if at == "" {
		p.listed[t] = "above"
	}
	return ""
}

// claim makes a section the home of a type and of its parts.
func (p *jsonPage) claim(t reflect.Type, section string) {
	p.home[t] = cmp.Or(p.home[t], section)
	for _, m := range jsonFields(t) {
		if m.flat {
			p.claim(m.of, section)
		}
	}
}

// jsonLine is a line of the page: members, what they mean, and the members of objects that they
// are.
type jsonLine struct {
	names   []string
	meaning string
	below   []jsonLine
}

// jsonLines are the lines of an object.
type jsonLines []jsonLine

// add adds a line, to the one before if both are of one comment, or if neither has a meaning.
func (all *jsonLines) add(l jsonLine, begins bool) {
	if n := len(*all); n > 0 && l.below == nil && (*all)[n-1].below == nil && (!begins || (*all)[n-1].meaning+l.meaning == "") {
		(*all)[n-1].names = append((*all)[n-1].names, l.names...)
	} else {
		*all = append(*all, l)
	}
}

// lines returns the lines of an object. A comment before a field holds for all fields up to the
// next comment or blank line.
func (p *jsonPage) lines(t reflect.Type, at string) (all jsonLines) {
	source, next, begins, doc := p.source(t), 0, true, ""
	var last reflect.Type // whose members are below the last line
	for _, m := range jsonFields(t) {
		for ; next <= m.index; next++ {
			if c := source.fields[next]; c.begins {
				begins, doc, last = true, jsonMeaning(t, c.doc), nil
			}
		}
		l, as := jsonLine{meaning: doc}, ""
		again := m.object && m.of == last
		if m.object && !again {
			as = p.as(m.of, cmp.Or(m.shown, at))
		}
		switch {
		case m.flat && as == "":
			for _, l := range p.lines(m.of, at) {
				all.add(l, true)
			}
		case m.flat && as[0] != '{':
			l.meaning = jsonJoin(doc, as)
			for _, m := range jsonMembers(m.of) {
				l.names = append(l.names, m.shown)
			}
			if n := len(l.names); n > 2 {
				l.names = []string{l.names[0] + "` to `" + l.names[n-1]}
			}
			all.add(l, true)
		default:
			name, note := cmp.Or(m.shown, as), jsonMeaning(t, source.fields[m.index].behind)
			switch {
			case as == "" || m.flat:
			case as[0] == '{':
				name += "." + as
			default:
				note = jsonJoin(note, as)
			}
			l.names = []string{strings.TrimSuffix(name+" ("+note+")", " ()")}
			if m.object && as == "" && !again {
				last, l.below = m.of, p.lines(m.of, m.shown)
			}
			if again {
				all[len(all)-1].names = append(all[len(all)-1].names, l.names...)
			} else {
				all.add(l, begins || m.flat)
			}
		}
		begins, doc = m.flat, ""
	}
	return all
}

func jsonJoin(meaning, as string) string { return strings.Trim(meaning+"; "+as, "; ") }

// write writes lines. The members of an object are on its line if they have no lines of their own.
func (p *jsonPage) write(indent string, lines jsonLines) {
	for _, l := range lines {
		text := jsonShown(l.names)
		if l.meaning != "" {
			text += ": " + l.meaning
		}
		if len(l.below) == 1 && l.below[0].meaning == "" && l.below[0].below == nil {
			text, l.below = text+": "+jsonShown(l.below[0].names), nil
		}
		fmt.Fprintf(&p.out, "%s- %s\n", indent, text)
		p.write(indent+"  ", l.below)
	}
}

func jsonShown(names []string) string {
	all := make([]string, len(names))
	for i, name := range names {
		name, note, noted := strings.Cut(name, " (")
		if all[i] = "`" + name + "`"; noted {
			all[i] += " (" + note
		}
	}
	return strings.Join(all, ", ")
}

// newJSONPage returns the page.
func newJSONPage(t *testing.T) string {
	p := jsonPage{t: t, sources: map[string]map[string]jsonSource{}, home: map[reflect.Type]string{}, listed: map[reflect.Type]string{}}
	for _, s := range append(slices.Clone(jsonGroups), jsonSections...) {
		p.claim(reflect.TypeOf(s.of), s.name)
	}
	p.out.WriteString(jsonIntro)
	for _, g := range jsonGroups {
		p.section = g.name
		p.write("", jsonLines{{[]string{g.name}, jsonMeaning(reflect.TypeOf(g.of), p.source(reflect.TypeOf(g.of)).doc), p.lines(reflect.TypeOf(g.of), "")}})
	}
	for _, s := range jsonSections {
		p.section = s.name
		fmt.Fprintf(&p.out, "\n## %s\n\n", s.name)
		if s.note != "" {
			p.out.WriteString(s.note + "\n\n")
		}
		if as := p.as(reflect.TypeOf(s.of), ""); as != "" {
			fmt.Fprintf(&p.out, "- %s\n", as)
		} else {
			p.write("", p.lines(reflect.TypeOf(s.of), ""))
		}
	}
	return p.out.String()
}

// TestJSONPage: docs/json.md is what the types that commands print say of their members.
func TestJSONPage(t *testing.T) {
	const name = "../../docs/json.md"
	want := newJSONPage(t)
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(name); err != nil {
		t.Fatal(err)
	} else if string(text) != want {
		t.Errorf("%s is not what the comments of the types say: run go test ./cmd/shardtool -run TestJSONPage -update", name)
	}
}

// jsonSeen records the members that a value of a type has. Members that the type does not have are
// errors.
func jsonSeen(t *testing.T, of reflect.Type, v any, seen map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			jsonSeen(t, of, e, seen)
		}
	case map[string]any:
		if of.Kind() != reflect.Struct {
			return // its names come from the data
		}
		members := jsonMembers(of)
		for name, e := range v {
			i := slices.IndexFunc(members, func(m jsonMember) bool { return m.name == name })
			if i < 0 {
				t.Errorf("the member %s appears, and %v does not have it", name, of)
				continue
			}
			if text := fmt.Sprint(e); text != "[]" && text != "map[]" {
				seen[members[i].key] = true
			}
			jsonSeen(t, members[i].of, e, seen)
		}
	}
}

// jsonKeys collects the members of a type, and of those below.
func jsonKeys(t reflect.Type, keys map[string]bool) {
	for _, m := range jsonMembers(t) {
		if !keys[m.key] {
			if keys[m.key] = true; m.object {
				jsonKeys(m.of, keys)
			}
		}
	}
}

// TestJSONMembers runs every command with --json: what it prints has no member but those of its
// type, and each member of a type appears.
func TestJSONMembers(t *testing.T) {
	if testing.Short() {
		t.Skip("output of commands: make test runs it without the race detector")
	}
	t.Parallel()
	programs.Need(t, "tar")
	google := gsserver.New(t)
	dir := t.TempDir()
	tokens, err := filepath.Abs("../../testdata/tokens")
	if err != nil {
		t.Fatal(err)
	}
	seen, keys := map[string]bool{}, map[string]bool{}
	for _, s := range jsonSections {
		jsonKeys(reflect.TypeOf(s.of), keys)
		for _, line := range s.runs {
			script, prepares := strings.CutPrefix(line, "!")
			if !prepares {
				script = "shardtool " + line
				if !strings.HasPrefix(line, "order ") {
					script += " --json"
				}
			}
			cmd := exec.Command("bash", "-c", script)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "TOKENS="+tokens, "STORAGE_EMULATOR_HOST="+google.URL)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Run(); err != nil && prepares {
				t.Fatalf("%s: %v\n%s", script, err, stderr.String())
			}
			if prepares {
				continue
			}
			decoder := json.NewDecoder(&stdout)
			n := 0
			for ; ; n++ {
				var v any
				if err := decoder.Decode(&v); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("%s: stdout is not JSON: %v\n%s", script, err, stderr.String())
				}
				jsonSeen(t, reflect.TypeOf(s.of), v, seen)
			}
			if n == 0 {
				t.Errorf("%s: nothing on stdout\n%s", script, stderr.String())
			}
		}
	}
	for key := range keys {
		if !seen[key] && !slices.ContainsFunc(slices.Collect(maps.Keys(jsonRare)), func(rare string) bool { return strings.HasPrefix(key, rare) }) {
			t.Errorf("the member %s appears in no run of jsonSections", key)
		}
	}
}

// TestJSONCommands: each command that prints JSON has a section.
func TestJSONCommands(t *testing.T) {
	for _, cmd := range newRoot().Commands() {
		if (cmd.Flags().Lookup("json") != nil || cmd.Name() == "order") &&
			!slices.ContainsFunc(jsonSections, func(s jsonSection) bool { return s.name == cmd.Name() }) {
			t.Errorf("jsonSections has no section %q", cmd.Name())
		}
	}
}
