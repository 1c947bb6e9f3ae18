package docs_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/internal/format/npy"
	"github.com/shardtool/shardtool/internal/testset/programs"
	"github.com/shardtool/shardtool/objstore/storetest/azserver"
	"github.com/shardtool/shardtool/objstore/storetest/gsserver"
	"github.com/shardtool/shardtool/objstore/storetest/hubserver"
	"github.com/shardtool/shardtool/objstore/storetest/s3server"
)

// prelude has what the pages name but do not make. s3/ and hub/ become objects of stores.
const prelude = `
rows() { # FILE
	mkdir -p "$(dirname "$1")"
	for k in a b c d; do
		printf '{"id":"%s","text":"one %s","caption":"two","label":%d,"language":"en","score":3.5,"aesthetic":5.5,' $k $k $((x++ % 3))
		printf '"width":640,"height":480,"year":2024,"tokens":3,"num_frames":7,"input_ids":[5,7,9],"lang":"%s"}\n' $([ $k = a ] && echo fr || echo de)
	done > "$1"
}
table() { # FILE
	mkdir -p "$(dirname "$1")"
	rows made.jsonl && shardtool pack made.jsonl made --quiet && shardtool export made made-hf --as hf --quiet
	mv made-hf/data/*.parquet "$1" && rm -r made made-hf made.jsonl
}
photos() { # FOLDER
	mkdir -p "$1"
	for k in a b c; do
		cp photo.jpg "$1/${2-}$k.jpg" && echo "{\"n\": 1}" > "$1/${2-}$k.json"
	done
}
packed() { # ADDRESS [FLAGS]
	rows made.jsonl && shardtool pack made.jsonl "$@" --key id --quiet --attr score=score --attr lang=lang --attr tokens=tokens --attr width=width --attr frames=num_frames
	rm made.jsonl
}
mix() { printf 'sources:\n  docs: {data: docs, weight: 2}\n  chats: {data: chats, weight: 1}\n' > mix.yaml; }
`

// page is a page whose commands run in a folder with what a program makes.
type page struct {
	name, make string
	// other has words that are not what they are on the page, and what stands for them.
	other []string
}

var commandPages = []page{
	{name: "choosing.md", make: "rows rows.jsonl; photos photos"},
	{name: "curating.md", make: "packed s3://bucket/train"},
	{name: "errors.md", make: "packed out"},
	{name: "export.md", make: "packed out; shardtool pack tokens.npy tokens --quiet", other: []string{"/nvme/", "nvme/"}},
	{name: "files.md", make: `photos photos; photos more m; photos s3/raw; photos imagenet/train/cat; photos imagenet/train/dog
		(cd imagenet/train && tar -cf ../x.tar .) && mkdir z && tar -xf imagenet/x.tar -C z && bsdtar --format zip -cf photos.zip -C z cat dog`},
	{name: "huggingface.md", make: "table hub/uoft-cs/cifar10/plain_text/train-0.parquet; table hub/uoft-cs/cifar10/plain_text/test-0.parquet; cp -r $T/inputs/saved ."},
	{name: "json-and-csv.md", make: `rows corpus.jsonl; zstd -q corpus.jsonl; rows data/a.jsonl; gzip -k data/a.jsonl
		printf 'id,n\na,1\nb,2\n' > t.csv; mkdir -p s3/set web/set; cp t.csv s3/set/; tr , '\t' < t.csv > web/set/train.tsv`},
	{name: "many-machines.md", make: `photos data/photos; for k in 0 1 3 4 5 6; do shardtool pack $PWD/data/photos $PWD/data/out --name train --parts 8 --part $k --quiet; done`,
		other: []string{" /data/", " $PWD/data/", "shardtool commit", "for k in 2 7; do shardtool pack $PWD/data/photos $PWD/data/out --name train --parts 8 --part $k; done; shardtool commit"}},
	{name: "object-stores.md", make: `photos photos; table hub/uoft-cs/cifar10/plain_text/train-0.parquet; table hub/ORG/NAME/default/train/0.parquet
		packed hub/ORG/NAME/train`, other: []string{"/nvme/", "nvme/", "az://account/container", "az://acct/box", "abfss://container@account.dfs.core.windows.net", "az://acct/box"}},
	{name: "on-call.md", make: "packed s3://bucket/train"},
	{name: "packing.md", make: "rows docs.jsonl; rows chats.jsonl; table speech/0.parquet; packed docs; packed chats; packed speech; mix",
		other: []string{"--step 40000", "--step 4"}},
	{name: "parquet.md", make: `table data.parquet; table data/train-0.parquet; mkdir -p s3/set web/set s3/table/year=2024/lang=de; cp data.parquet s3/set/; cp data.parquet web/set/train.parquet
		cp -r $T/inputs/saved .; cp saved/train/*.arrow data.arrow; table cifar10/plain_text/train-0.parquet
		printf '{"n":1}\n' > n.jsonl; shardtool pack n.jsonl n --quiet; shardtool export n n-hf --as hf --quiet; mkdir -p table/year=2024/lang=de
		cp n-hf/data/*.parquet table/year=2024/lang=de/part-0.parquet; cp n-hf/data/*.parquet s3/table/year=2024/lang=de/
		photos photos; rm photos/*.json; printf 'file_name,text\na.jpg,one\nb.jpg,two\nc.jpg,three\n' > photos/metadata.csv
		mkdir -p s3/images; printf 1 > s3/images/a.jpg; printf '{"path":"a.jpg","mask_path":"a.jpg"}\n' > p.jsonl; shardtool pack p.jsonl p --quiet
		shardtool export p p-hf --as hf --quiet; mv p-hf/data/*.parquet rows.parquet; rows l.jsonl; sed -i s/text/jpg/ l.jsonl; shardtool pack l.jsonl l --quiet
		shardtool export l l-hf --as hf --quiet; mkdir laion; mv l-hf/data/*.parquet laion/0.parquet`},
	{name: "preemption.md", make: `packed out; for r in 0 1; do shardtool cat out --world-size 2 --rank $r --global-batch 2 --limit 1 --checkpoint-out rank-$r.json > /dev/null; done`},
	{name: "removal.md", make: "packed out; echo a > withdrawn.txt",
		other: []string{"shardtool cat out/ --shuffle --seed 7", "echo b > withdrawn.txt; shardtool cat out/ --shuffle --seed 7"}},
	{name: "reshard.md", make: `packed old; packed s3://bucket/a; rows x.jsonl; shardtool pack x.jsonl web/b --quiet; 
		for k in $(seq 40); do printf '{"id":"dog/%d","txt":"one","json":{"n":1},"width":640,"label":"sharp"}\n' $k; done > all.jsonl
		shardtool pack all.jsonl all --key id --columns txt,json --attr width=width --attr label=label --quiet`, other: []string{"9f2c61d07a1e44b3", "$(basename $(ls -d old/manifest-*.bin) .bin | cut -c 10-)"}},
	{name: "stalls.md", make: "packed s3://bucket/train; packed out"},
	{name: "tokens.md", make: `cp long.npy tokens-0.npy; cp tokens.npy rows.npy; cp tokens.npy features.npy; cp $T/inputs/nanogpt/train.bin .
		table docs/0.parquet; mkdir arrays corpus npz; cp tokens.npy arrays/a.npy; cp tokens.npy npz/x.npy; cp tokens.npy npz/y.npy; bsdtar --format zip -cf data.npz -C npz x.npy y.npy
		cp $T/inputs/megatron/a.* corpus; cp corpus/a.idx a_text_document.idx; cp corpus/a.bin a_text_document.bin`,
		other: []string{"--pack-tokens 4096", "--pack-tokens 4"}},
	{name: "upgrading.md", make: "packed DATASET"},
	{name: "webdataset.md", make: `photos p; for k in $(seq -f %06.0f 0 99); do tar -cf train-$k.tar --transform "s/^/$k-/" -C p a.jpg a.json; done`},
	{name: "writing.md", make: `photos p; printf '#!/bin/sh\ntar -cf - -C p .\n' > bin/my-exporter; chmod +x bin/my-exporter; echo '{"rows":[{"id":"a"},{"id":"b"}]}' | gzip > dump.json.gz`},
	{name: "mosaicml.md", make: "cp -r $T/mds/raw mds"},
	{name: "other-formats.md", make: "mkdir tfrecords; cp $T/inputs/tfrecord/* tfrecords"},
	{name: "foreign-tars.md", make: `mkdir -p data/wds; photos p; for k in $(seq -f %06.0f 0 99) new; do tar -cf data/wds/train-$k.tar --transform "s/^/$k-/" -C p a.jpg a.json; done
		mkdir -p s3/wds; mv data/wds/train-new.tar new.tar; cp data/wds/train-00000*.tar s3/wds/`,
		other: []string{"shardtool index /data/wds/new.tar", "mv new.tar data/wds; shardtool index data/wds/new.tar", "index '/data", "index --overwrite 'data", " /data/", " data/"}},
}

// unrun are beginnings of commands that do not run here, with the reasons.
var unrun = map[string]string{
	"make ": "another test, or minutes", "sbatch": "a cluster: test/slurm", "pack=$(sbatch": "a cluster: test/slurm",
	"kubectl": "a cluster: test/kubernetes", "energon": "another program", "hf download": "another program",
	"shardtool view": "it runs until it is stopped: the tests of view", "shardtool cat hf://buckets": "the keys of a gateway",
}

// elsewhere has the tests, in other files, of the commands of pages.
var elsewhere = map[string]string{
	"README.md": "docs/tour_test.go", "benchmarks.md": "bench/main.go", "clusters.md": "python/tests/engines.py", "comparison.md": "bench/main.go",
	"compatibility.md": "python/compat.py", "gpu.md": "python/tests/test_torch_nodes.py", "layers.md": "python/tests/test_torch_layers.py",
	"many-nodes.md": "python/tests/test_torch_nodes.py", "python.md": "python/tests/test_wheel.py", "viewing.md": "cmd/shardtool/internal/view/view_test.go",
	"start-audio.md": "python/tests/test_torch_start.py", "start-images.md": "python/tests/test_torch_start.py", "start-language.md": "python/tests/test_torch_start.py",
	"start-tables.md": "python/tests/test_torch_start.py", "start-vision-language.md": "python/tests/test_torch_start.py",
}

// TestCommandsOfAll has a test for the commands of each page.
func TestCommandsOfAll(t *testing.T) {
	for _, name := range pages(t) {
		here := slices.ContainsFunc(commandPages, func(p page) bool { return p.name == name })
		if _, err := os.Stat("../" + elsewhere[name]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(name, "/") && len(commands(t, name)) > 0 && !here && elsewhere[name] == "" {
			t.Errorf("no test runs the commands of %s: add it to commandPages", name)
		}
	}
}

var shell = regexp.MustCompile("(?ms)^```(sh|console)\n(.*?)^```$")

// commands returns what a page has a user type.
func commands(t *testing.T, name string) (all []string) {
	for _, block := range shell.FindAllStringSubmatch(read(t, name), -1) {
		for line := range strings.Lines(block[2]) {
			command, shown := strings.CutPrefix(line, "$ ")
			if command = strings.TrimSpace(command); command != "" && (shown || block[1] == "sh") {
				all = append(all, command)
			}
		}
	}
	return all
}

// TestCommands runs what the pages have a user type, each command as it is printed, against servers
// that stand for the stores.
func TestCommands(t *testing.T) {
	programs.Need(t, "bash", "bsdtar", "gzip", "jq", "tar", "zstd")
	bin := filepath.Join(t.TempDir(), "bin")
	build(t, bin)
	for _, p := range commandPages {
		t.Run(p.name, func(t *testing.T) { p.run(t, bin) })
	}
}

func (p *page) run(t *testing.T, bin string) {
	dir := t.TempDir()
	testdata, err := filepath.Abs("../testdata")
	if err != nil {
		t.Fatal(err)
	}
	amazon, google, azure := s3server.New(t), gsserver.New(t), azserver.New(t)
	hub := hubserver.New(t, map[string]*hubserver.Set{})
	web := httptest.NewServer(http.FileServer(http.Dir(dir + "/web")))
	t.Cleanup(web.Close)
	none := filepath.Join(dir, "none")
	for name, value := range map[string]string{
		"T": testdata, "PATH": dir + "/bin:" + bin + ":" + os.Getenv("PATH"), "HOME": dir,
		"AWS_ENDPOINT_URL_S3": amazon.URL, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
		"AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none,
		"STORAGE_EMULATOR_HOST": google.URL, "AZURE_STORAGE_ENDPOINT": azure.URL, "AZURE_STORAGE_KEY": base64.StdEncoding.EncodeToString(azserver.Key),
		"HF_ENDPOINT": hub.URL, "HF_HOME": none, "RANK": "0", "WORLD_SIZE": "1",
	} {
		t.Setenv(name, value)
	}
	bash := func(script string) (string, error) {
		c := exec.CommandContext(t.Context(), "bash", "-c", script)
		c.Dir = dir
		out, err := c.CombinedOutput()
		return string(out), err
	}
	write(t, dir+"/tokens.npy", array(64, 8))
	write(t, dir+"/long.npy", array(9000))
	var photo bytes.Buffer
	if err := jpeg.Encode(&photo, image.NewGray(image.Rect(0, 0, 64, 48)), nil); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/photo.jpg", photo.Bytes())
	write(t, dir+"/bin/train", []byte("#!/bin/sh\nhead -c 4000000 | tar -tf - >/dev/null 2>&1\ntrue\n"))
	if out, err := bash("chmod +x bin/train; set -eu; x=0\n" + prelude + p.make); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	under(t, dir+"/s3", func(name string, data []byte) {
		amazon.Objects[name] = s3server.Stored{Data: data, ETag: fmt.Sprintf("%q", name)}
	})
	sets := map[string]map[string]hubserver.File{}
	under(t, dir+"/hub", func(name string, data []byte) {
		parts := strings.SplitN(name, "/", 3)
		id := parts[0] + "/" + parts[1]
		if sets[id] == nil {
			sets[id] = map[string]hubserver.File{}
		}
		sets[id][parts[2]] = hubserver.File{Data: data}
	})
	for id, files := range sets {
		hub.Sets[id] = hubserver.NewSet(files)
		hub.Sets[id].Revisions["refs/convert/parquet"], hub.Sets[id].Revisions["v1.0"] = hubserver.Commit, hubserver.Commit
	}
	other := strings.NewReplacer(append(p.other, "https://host", web.URL, "shardtool bench", "shardtool bench --duration 1s")...)
	ran := 0
	for _, command := range commands(t, p.name) {
		if leftUnrun(command) {
			continue
		}
		if target := packedInto(command); strings.HasPrefix(target, "s3://") {
			for name := range amazon.Objects {
				if strings.HasPrefix(name, strings.TrimPrefix(target, "s3://bucket/")+"/") {
					delete(amazon.Objects, name)
				}
			}
		} else if target != "" {
			if err := os.RemoveAll(filepath.Join(dir, other.Replace(target))); err != nil {
				t.Fatal(err)
			}
		}
		astray(t, other.Replace(command), bash)
		aged(t, other.Replace(command), bash)
		out, err := bash(other.Replace(command) + "\nexit ${PIPESTATUS[0]}")
		if err != nil && !strings.HasPrefix(command, "shardtool missing ") { // which ends with 6 where parts are missing
			t.Errorf("%s\n%v\n%s", command, err, out)
		}
		ran++
	}
	if ran == 0 {
		t.Error("no command of the page runs")
	}
}

// astray runs a command whose first argument names nothing: the answer says so, with its own exit
// code.
func astray(t *testing.T, command string, bash func(string) (string, error)) {
	t.Helper()
	at := subject.FindStringSubmatchIndex(command)
	if at == nil || strings.HasPrefix(command[at[2]:], "-") {
		return
	}
	wrong := command[at[0]:at[2]] + "no/such" + strings.TrimRight(path.Ext(strings.Trim(command[at[2]:at[3]], "'")), "/") + command[at[3]:]
	out, err := bash(wrong + "\nexit ${PIPESTATUS[0]}")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 6 || !strings.Contains(out, "no/such") {
		t.Errorf("%s\n%v, want exit status 6\n%s", wrong, err, out)
	}
}

// aged runs a command on a data set of the oldest version of the format, in place of the one that it
// names. It works, or says what this data set lacks: another key, attribute, field, view or
// generation. It never calls the data set damaged, or of another version.
func aged(t *testing.T, command string, bash func(string) (string, error)) {
	t.Helper()
	at := ofDataset.FindStringSubmatchIndex(command)
	if at == nil || strings.HasPrefix(command[at[2]:], "-") {
		return
	}
	given := strings.Trim(command[at[2]:at[3]], "'")
	if strings.ContainsAny(given, "*{[$") || slices.Contains([]string{".yaml", ".json", ".jsonl", ".parquet", ".tar"}, path.Ext(given)) {
		return
	}
	old := "aged"
	if mark := strings.LastIndexAny(given, "@#"); mark > strings.LastIndexByte(given, '/') {
		old += given[mark:]
	}
	script := "W=$(mktemp -d) && trap 'rm -rf $W' EXIT && cp -r . $W && cd $W && cp -r $T/spec/golden-v1 aged && chmod -R u+w aged\n"
	out, err := bash(script + command[:at[2]] + "'" + old + "'" + command[at[3]:] + "\nexit ${PIPESTATUS[0]}")
	var exit *exec.ExitError
	code := 0
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	if !slices.Contains([]int{0, 1, 2, 6, 7}, code) || code != 0 && !strings.Contains(out, "shardtool: ") && !strings.HasPrefix(command, "shardtool doctor") ||
		code != 0 && !lacking.MatchString(out) || wrongly.MatchString(out) {
		t.Errorf("%s, on a data set of format 1.0: exit status %d\n%s", command, code, out)
	}
}

var (
	// ofDataset is the first argument of a command that reads a data set.
	ofDataset = regexp.MustCompile(`^shardtool (?:inspect|verify|cat|order|simulate|bench|select|export|unpack|remove|purge|prune|ls|get|head|explain|doctor|stage) ('[^']*'|[^\s$]+)`)
	wrongly   = regexp.MustCompile(`(?i)corrupt|damaged|newer version|panic`)
	// lacking is what a data set that cannot serve a command is said to lack, or to have instead.
	lacking = regexp.MustCompile(`there is no \w+ ".*There are: |it has |without a name, and \w+ needs|no sample has the key "|is .* in the checkpoint, .* here|^empty: \d`)
)

// subject is the first argument of a command that reads something.
var subject = regexp.MustCompile(`^shardtool (?:pack|inspect|verify|cat|order|simulate|bench|select|export|remove|purge|explain|doctor|index|stage) ('[^']*'|[^\s$]+)`)

func leftUnrun(command string) bool {
	for begin := range unrun {
		if strings.HasPrefix(command, begin) {
			return true
		}
	}
	return false
}

// packedInto returns the new data set that a command makes, which is one of several ways to do so.
func packedInto(command string) string {
	command, _, _ = strings.Cut(command, "   ")
	command, _, _ = strings.Cut(command, " && ")
	_, rest, pack := strings.Cut(command, "shardtool pack ")
	if !pack || strings.Contains(command, "--part") {
		return ""
	}
	rest, _, _ = strings.Cut(rest, " --")
	words := strings.Fields(rest)
	return strings.TrimSuffix(words[len(words)-1], "/")
}

func write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := cmp.Or(os.MkdirAll(filepath.Dir(name), 0o777), os.WriteFile(name, data, 0o666)); err != nil {
		t.Fatal(err)
	}
}

// under calls visit for each file below a folder, if there is one.
func under(t *testing.T, dir string, visit func(name string, data []byte)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err == nil {
			name, _ := filepath.Rel(dir, path)
			visit(filepath.ToSlash(name), data)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

// array returns a .npy file of numbers.
func array(shape ...int) []byte {
	out, n := npy.AppendHeader(nil, "<u2", shape...), 1
	for _, d := range shape {
		n *= d
	}
	for i := range n {
		out = binary.LittleEndian.AppendUint16(out, uint16(i))
	}
	return out
}
