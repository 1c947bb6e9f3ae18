package docs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	recipe    = regexp.MustCompile("(?ms)^```yaml\n([^`]*)^```\n\n\\| source \\| has \\| an epoch reads \\|\n\\|---\\|---:\\|---:\\|\n((?:\\|[^\n]*\\|\n)+)")
	recipeRow = regexp.MustCompile(`\| (\w+) \| (\d+) \| (\d+) \|`)
)

// TestMixesOfOthers runs the mix files of mixing.md that have a table over data sets of the stated sizes. An epoch
// reads as many samples of each source as the table after the file states, and cat reads the
// samples that order lists. A source that is read a whole number of times gives each sample that
// often.
func TestMixesOfOthers(t *testing.T) {
	page := read(t, "mixing.md")
	recipes := recipe.FindAllStringSubmatchIndex(page, -1)
	if n := strings.Count(page, "```yaml"); n != len(recipes)+1 || n < 6 { // the first one opens the page
		t.Fatalf("%d mix files, %d with a table", n, len(recipes))
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "shardtool")
	if out, err := exec.Command("go", "build", "-o", bin, "../cmd/shardtool").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, at := range recipes {
		line := 1 + strings.Count(page[:at[2]], "\n")
		t.Run(fmt.Sprintf("line %d", line), func(t *testing.T) {
			file := filepath.Join(dir, fmt.Sprintf("mix-%d.yaml", line))
			text := strings.ReplaceAll(page[at[2]:at[3]], "s3://bucket/", dir+"/"+strconv.Itoa(line)+"-")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			has, reads := map[string]int{}, map[string]int{}
			for _, row := range recipeRow.FindAllStringSubmatch(page[at[4]:at[5]], -1) {
				name := row[1]
				has[name], _ = strconv.Atoi(row[2])
				reads[name], _ = strconv.Atoi(row[3])
				packRows(t, bin, filepath.Join(dir, strconv.Itoa(line)+"-"+name), has[name])
			}
			listed := shardtool(t, bin, "order", file, "--shuffle", "--seed", "1", "--tail", "short", "--keys")
			if got := shardtool(t, bin, "cat", file, "--shuffle", "--seed", "1", "--tail", "short", "--json"); !bytes.Equal(got, listed) {
				t.Error("cat does not read what order lists")
			}
			seen := map[string]map[uint64]int{}
			total := map[string]int{}
			for text := range bytes.Lines(listed) {
				var sample struct {
					Source string
					Number uint64
				}
				if err := json.Unmarshal(text, &sample); err != nil {
					t.Fatal(err)
				}
				if seen[sample.Source] == nil {
					seen[sample.Source] = map[uint64]int{}
				}
				seen[sample.Source][sample.Number]++
				total[sample.Source]++
			}
			if len(total) != len(reads) {
				t.Errorf("sources %v, the table has %v", total, reads)
			}
			for name, want := range reads {
				if total[name] != want {
					t.Errorf("%s: %d samples, the table has %d", name, total[name], want)
				}
				for number, times := range seen[name] {
					if want%has[name] == 0 && times != want/has[name] {
						t.Errorf("%s: sample %d was read %d times, not %d", name, number, times, want/has[name])
					}
				}
			}
		})
	}
}

// packRows packs a data set of n small samples.
func packRows(t *testing.T, bin, dir string, n int) {
	t.Helper()
	var rows bytes.Buffer
	for i := range n {
		fmt.Fprintf(&rows, "{\"id\":\"%d\",\"text\":\"sample %d\"}\n", i, i)
	}
	if err := os.WriteFile(dir+".jsonl", rows.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	shardtool(t, bin, "pack", dir+".jsonl", dir, "--key", "id", "--block-size", "4KiB", "--quiet")
}

func shardtool(t *testing.T, bin string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(bin, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, stderr.Bytes())
	}
	return out
}
