package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/testset/programs"
)

var console = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")

// build builds shardtool in a folder.
func build(t *testing.T, dir string) {
	t.Helper()
	if out, err := exec.Command("go", "build", "-o", dir+"/shardtool", "../cmd/shardtool").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestTour runs the tour of README.md as it is, in a folder that has what the repository has.
func TestTour(t *testing.T) {
	programs.Need(t, "bash", "diff", "tar", "zstd")
	_, tour, found := strings.Cut(read(t, "README.md"), "\n## A tour in five minutes\n")
	tour, _, ended := strings.Cut(tour, "\n## ")
	if !found || !ended {
		t.Fatal("README.md has no tour")
	}
	dir := t.TempDir()
	build(t, dir+"/bin")
	data, err := filepath.Abs("../testdata")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(data, dir+"/testdata"); err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	for _, block := range console.FindAllStringSubmatch(tour, -1) {
		for line := range strings.Lines(block[1]) {
			command, shown := strings.CutPrefix(line, "$ ")
			if !shown {
				t.Errorf("not a command: %s", line)
			}
			script.WriteString(command)
		}
	}
	cmd := exec.Command("bash", "-ec", script.String())
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"\nthe same\n", "205 samples"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	picture, err := os.ReadFile(dir + "/out/monkey.png")
	if err != nil || !strings.HasPrefix(string(picture), "\x89PNG") {
		t.Errorf("the field of one sample: %v, %d bytes", err, len(picture))
	}
}
