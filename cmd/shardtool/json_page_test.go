package main

import (
	"bytes"
	"encoding/json"
	"errors"
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
	"github.com/shardtool/shardtool/internal/testset/programs"
	"github.com/shardtool/shardtool/objstore/storetest/gsserver"
)

// jsonRuns are commands whose output, together, has every member that docs/json.md lists in the
// section of that name. Lines that begin with ! are shell commands that prepare the next ones. All
// run in the order of the page.
var jsonRuns = map[string][]string{
	"pack": {
		`!mkdir src rows; for i in $(seq 10 39); do echo "text $i" > src/s$i.txt; done; : > src/s10.json; printf x > "src/$(printf 'k\377')"; : > src/.hidden`,
		`!for i in 0 1 2; do echo "{\"id\":\"r$i\",\"n\":$i,\"label\":\"a\"}" >> rows/r.jsonl; done`,
		"pack src out --block-size 4KiB", "pack rows/r.jsonl rowset --key id --attr n=n --attr label=label"},
	"pack --parts": {"pack src parts --parts 2 --part 0"},
	"commit":       {"!shardtool pack src parts --parts 2 --part 1 --quiet", "commit parts --parts 2"},
	"missing":      {"!shardtool pack src lost --parts 2 --part 0 --quiet; for f in lost/*.tar.zst; do echo x > $f; done", "missing lost --parts 2"},
	"index":        {"!mkdir tars; cp src/s1* .; tar --sort=name -cf tars/t.tar s1*; : > tars/README", "index tars"},
	"prune": {"!for i in 1 2; do shardtool pack src old --overwrite --quiet; done; cp src/s11.txt old/data-000099.tar.zst", "prune old --keep 1 --grace 0s",
		"!shardtool pack src begun --parts 2 --part 0 --quiet", "prune begun"},
	"remove": {"!cp -r out less; printf 's11\nnobody\n' > gone", "remove less --keys gone --allow-missing",
		"!mkdir texts; cp src/s1?.txt texts; shardtool pack texts layered --quiet; shardtool layer add layered texts --copy txt --quiet",
		"!rm texts/s11.txt; shardtool pack texts other --quiet; shardtool layer add other texts --copy txt --quiet",
		"!cp -r other/layers/texts layered/layers/misfit; echo s12 > gone12", "remove layered --keys gone12"},
	"purge": {"purge less", "purge less --generations", "!echo s12 > gone; shardtool remove less --keys gone", "purge less --dry-run",
		"!mkdir -p byclass/a byclass/b; echo 1 > byclass/a/x.txt; echo 2 > byclass/b/y.txt; shardtool pack byclass/b left --quiet",
		"!shardtool pack byclass left --overwrite --class-field cls --quiet; shardtool ls left | head -1 | shardtool remove left --keys -", "purge left", "purge layered"},
	"layer add": {"layer add layered again --copy txt", `!mkdir more; for f in texts/s1?.txt; do cp $f more/$(basename $f .txt).note; done; : > more/.hidden`,
		"layer add layered more more --missing allow --unknown skip", "!shardtool layer remove layered more"},
	"layer ls": {"layer ls layered", `!for i in 0 1 2; do echo "{\"id\":\"r$i\",\"score\":$i}" >> scores.jsonl; done`,
		"!shardtool layer add rowset scores scores.jsonl --key id --attr score=score --quiet", "layer ls rowset"},
	"layer remove": {"layer remove layered again"},
	"inspect": {"!shardtool pack src out --overwrite --quiet --block-size 4KiB", "inspect out --blocks",
		"!shardtool select rowset --where 'n > 0' --name some; echo x > rowset/views/bad.json", "inspect rowset", "inspect rowset#some", "inspect layered --layer texts",
		"!shardtool pack \"$TOKENS/uint16.npy\" stacked --pack-tokens 10 --quiet", "inspect stacked"},
	"inspect MIX.yaml": {
		"!for i in 0 1; do (echo '{\"id\":\"a\",\"n\":3}'; echo '{\"id\":\"b\",\"n\":5}') > rows/n$i.jsonl; shardtool pack rows/n$i.jsonl n$i --key id --attr tokens=n --quiet; done",
		"!printf 'sources: {a: {data: n0, weight: 1, max_epochs: 1}, b: {data: n1, weight: 1, max_epochs: 2}}\n' > dry.yaml",
		"inspect dry.yaml --shuffle --global-batch 2 --tail pad --samples-per-second 5",
		"inspect dry.yaml --global-batch 2 --pack 9 --plans none"},
	"inspect --against": {"inspect out --against rowset"},
	"inspect --checkpoint": {
		"!shardtool cat out --shuffle --global-batch 4 --limit 8 --checkpoint-out ck > /dev/null", "inspect out --checkpoint ck"},
	"inspect --checkpoint of units": {
		`!(printf '{"id":"a","n":3}\n{"id":"b","n":2}\n') > u.jsonl; shardtool pack u.jsonl uset --key id --attr n=n --quiet; shardtool cat uset --json --pack 3 --by n --global-batch 1 --limit 1 --plans none --checkpoint-out uck > /dev/null`,
		"inspect uset --checkpoint uck"},
	"verify": {"!cp -r out broken; for f in broken/*.tar.zst; do printf x | dd of=$f bs=1 seek=50 conv=notrunc; done", "verify broken --deep"},
	"ls":     {"ls out", "ls rowset"},
	"cat": {
		"!for d in out rowset; do echo \"  $d: {data: $PWD/$d}\"; done | (echo sources:; cat) > mix.yaml",
		"cat out --global-batch 40 --tail pad --checkpoints", "cat mix.yaml --global-batch 10 --limit 10"},
	"order": {"order out --global-batch 40 --tail pad --keys", "order mix.yaml --global-batch 10 --limit 10"},
	"explain": {
		"explain out --global-batch 40 --tail pad", "explain mix.yaml --global-batch 10", "!cp -r out less; shardtool ls out | head -1 | shardtool remove less --keys -", "explain less",
		"!shardtool cat mix.yaml --global-batch 10 --limit 10 --skip-steps 0-1 --checkpoint-out mixck > /dev/null", "explain mixck mix.yaml --step 0"},
	"explain --pack": {"explain dry.yaml --global-batch 2 --pack 9 --plans none", "explain uset --pack 3 --by n --plans none"},
	"explain CHECKPOINT": {
		"explain ck", "explain mixck",
		"!echo 'segments: [{at: 1000, weights: {out: 1}}]' >> mix.yaml; shardtool cat mix.yaml --global-batch 10 --limit 10 --checkpoint-out mixck > /dev/null", "explain mixck"},
	"order --pack": {
		`!(printf '{"id":"a","n":3}\n{"id":"b","n":2}\n') > len.jsonl; shardtool pack len.jsonl lens --key id --attr n=n --quiet`,
		"order lens --pack 3 --by n --keys --global-batch 4 --tail pad", "order dry.yaml --pack 9 --keys --plans none"},
	"doctor": {"doctor src", "doctor out", "!shardtool pack src gs://bucket/set --quiet", "doctor gs://bucket/set"},
	"export": {"export out --out exported"},
	"select": {
		`!printf 'key,value\nr0,1\nr1,1e-30\ngone,1\n' > w.csv; printf '{"id":"a","l":"x","t":1}\n{"id":"b","l":null,"t":1}\n' > l.jsonl`,
		"!shardtool pack l.jsonl labelled --key id --attr l=l --quiet",
		"select rowset --weight w.csv --default 0 --allow-missing --name scored", "select labelled --balance l"},
	"stage": {"stage out --cache cache", "stage mix.yaml --cache cache"},
	"simulate": {
		"simulate out --shuffle --global-batch 4 --samples-per-second 5", "simulate rowset --label label --cost n --worlds 2 --micro-batches 2"},
	"simulate MIX.yaml":        {"simulate dry.yaml --shuffle --global-batch 2 --tail pad --samples-per-second 5 --cost tokens --worlds 1 --micro-batches 2"},
	"simulate --pack":          {"simulate uset --pack 3 --by n --plans none --cost n^2 --worlds 2 --micro-batches 2"},
	"simulate MIX.yaml --pack": {"simulate dry.yaml --pack 9 --global-batch 2 --plans none --cost tokens --worlds 1 --micro-batches 2"},
	"bench": {"bench out --shuffle --global-batch 4 --batches 3 --cache cache --quiet", "bench mix.yaml --global-batch 4 --batches 3 --quiet",
		"bench uset --pack 3 --by n --batches 2 --quiet --plans plans"},
	"version": {"version"},
}

// jsonRare are members that appear in no small run, with the reason.
var jsonRare = map[string]string{
	"verify dropped": "a data set with more than 10,000 faults", "verify unread": "a store that fails",
	"order --pack items[].key_base64":     "keys of rows are UTF-8",
	"explain CHECKPOINT steered.position": "weights that a program sets, see TestSteered", "explain CHECKPOINT steered.step": "as above",
	"purge layers[].unpublished": "a layer whose addition was killed, see the script layerleft", "purge not_searched[]": "as above",
	"purge versions_deleted[].name": "versions in a bucket, see TestVersions", "purge versions_deleted[].version": "as above", "purge versions_deleted[].bytes": "as above",
	"purge versions_left[].name": "as above", "purge versions_left[].version": "as above", "purge versions_left[].bytes": "as above", "purge versions_left[].error": "as above",
	"prune versions_deleted[]": "as above", "prune versions_left[]": "as above",
	"layer ls layers[].unpublished": "as above", "layer ls layers[].clashes[]": "a layer of an older version",
}

var (
	jsonGroup   = regexp.MustCompile(`(?m)^\| \{(\w+)\} \| (.*) \|$`)
	jsonBraces  = regexp.MustCompile(`^(.*)\{(.*)\}$`)
	jsonSection = regexp.MustCompile(`(?m)^## (.+)$`)
	jsonMember  = regexp.MustCompile("`([^`]+)`")
)

// readJSONPage returns the members of each section, and the sections in order.
func readJSONPage(t *testing.T) (members map[string]map[string]bool, sections []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string][]string{}
	for _, row := range jsonGroup.FindAllSubmatch(text, -1) {
		for _, m := range jsonMember.FindAllSubmatch(row[2], -1) {
			groups[string(row[1])] = append(groups[string(row[1])], string(m[1]))
		}
	}
	members = map[string]map[string]bool{}
	heads := jsonSection.FindAllSubmatchIndex(text, -1)
	for i, h := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		name := string(text[h[2]:h[3]])
		sections = append(sections, name)
		members[name] = map[string]bool{}
		for line := range strings.Lines(string(text[h[1]:end])) {
			if !strings.HasPrefix(line, "- `") {
				continue
			}
			listed, _, _ := strings.Cut(strings.TrimSpace(line)+": ", "`: ")
			for _, m := range jsonMember.FindAllStringSubmatch(listed+"`", -1) {
				for _, member := range inBraces(m[1], groups) {
					if members[name][member] {
						t.Errorf("docs/json.md: %s: %s is listed twice", name, member)
					}
					members[name][member] = true
				}
			}
		}
	}
	return members, sections
}

// inBraces returns the members that a.{b, c} stands for, or a.{group} of a group of the page.
func inBraces(member string, groups map[string][]string) []string {
	m := jsonBraces.FindStringSubmatch(member)
	if m == nil {
		return []string{member}
	}
	names := groups[m[2]]
	if names == nil {
		names = strings.Split(m[2], ", ")
	}
	var all []string
	for _, name := range names {
		all = append(all, m[1]+name)
	}
	return all
}

// jsonPaths collects the paths of all values below v. Members of objects that are path.* on the
// page count as path.*.
func jsonPaths(v any, path string, page, found map[string]bool) {
	join := func(name string) string {
		if path == "" {
			return name
		}
		return path + "." + name
	}
	switch v := v.(type) {
	case map[string]any:
		for name, of := range v {
			if page[join("*")] {
				found[join("*")] = true
				continue
			}
			jsonPaths(of, join(name), page, found)
		}
	case []any:
		for _, of := range v {
			jsonPaths(of, path+"[]", page, found)
		}
	default:
		found[path] = true
	}
}

// structPaths collects the paths that values of a type can have.
func structPaths(t reflect.Type, path string, found map[string]bool) {
	switch {
	case t.Kind() == reflect.Pointer:
		structPaths(t.Elem(), path, found)
	case t.Kind() == reflect.Slice:
		structPaths(t.Elem(), path+"[]", found)
	case t.Kind() == reflect.Map:
		found[path+".*"] = true
	case t.Kind() == reflect.Struct && t.PkgPath() != "time":
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			switch {
			case name == "-":
				continue
			case name == "": // its members are those of t
				name = path
			case path != "":
				name = path + "." + name
			}
			structPaths(t.Field(i).Type, name, found)
		}
	default:
		found[path] = true
	}
}

// TestJSONPage runs every command with --json: each member that appears is on docs/json.md, and
// each member of the page appears.
func TestJSONPage(t *testing.T) {
	if testing.Short() {
		t.Skip("output of commands against a page: make test runs it without the race detector")
	}
	t.Parallel()
	programs.Need(t, "tar")
	page, sections := readJSONPage(t)
	google := gsserver.New(t)
	dir := t.TempDir()
	tokens, err := filepath.Abs("../../testdata/tokens")
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range sections {
		runs, known := jsonRuns[section]
		if !known {
			t.Errorf("docs/json.md has a section %q that nothing here runs", section)
		}
		found := map[string]bool{}
		for _, line := range runs {
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
			decoder.UseNumber()
			n := 0
			for ; ; n++ {
				var v any
				if err := decoder.Decode(&v); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("%s: stdout is not JSON: %v\n%s", script, err, stderr.String())
				}
				jsonPaths(v, "", page[section], found)
			}
			if n == 0 {
				t.Errorf("%s: nothing on stdout\n%s", script, stderr.String())
			}
		}
		for _, m := range slices.Sorted(maps.Keys(found)) {
			if !page[section][m] {
				t.Errorf("%s: the member %s appears, and docs/json.md does not have it", section, m)
			}
		}
		can := maps.Clone(found)
		if section == "bench" { // much of it depends on the host and on timing
			structPaths(reflect.TypeFor[bench.Report](), "", can)
		}
		for _, m := range slices.Sorted(maps.Keys(page[section])) {
			if !can[m] && jsonRare[section+" "+m] == "" {
				t.Errorf("%s: docs/json.md has the member %s, which does not appear", section, m)
			}
		}
		for m := range can {
			if !page[section][m] && !found[m] {
				t.Errorf("%s: the report has the member %s, and docs/json.md does not", section, m)
			}
		}
	}
	for section := range jsonRuns {
		if page[section] == nil {
			t.Errorf("docs/json.md has no section %q", section)
		}
	}
}

// TestJSONCommands: each command that prints JSON has a section.
func TestJSONCommands(t *testing.T) {
	page, _ := readJSONPage(t)
	for _, cmd := range newRoot().Commands() {
		if (cmd.Flags().Lookup("json") != nil || cmd.Name() == "order") && page[cmd.Name()] == nil {
			t.Errorf("docs/json.md has no section %q", cmd.Name())
		}
	}
}
