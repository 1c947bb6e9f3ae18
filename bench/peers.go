package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/shardtool/shardtool/bench/table"
)

// The network of the readings from S3. A connection has all of the rate: what is fetched by one
// request at a time is not held back by that, as it would be by most stores.
const (
	peersFirstByte = 30 * time.Millisecond
	peersTotal     = 200 // MB/s
)

type peerSystem struct{ id, shown string }

// peerSystems are measured on data of every kind, in this order.
var peerSystems = []peerSystem{
	{"shardtool", "shardtool, copies"},
	{"views", "shardtool, views"},
	{"webdataset", "WebDataset " + release("webdataset")},
	{"mosaicml", "MosaicML Streaming " + release("mosaicml-streaming")},
	{"litdata", "LitData " + release("litdata")},
	{"grain", "Grain " + release("grain") + ", ArrayRecord"},
	{"lance", "LanceDB " + release("lancedb")},
	{"arrow", "Hugging Face datasets " + release("datasets") + ", map-style"},
	{"streaming", "Hugging Face datasets " + release("datasets") + ", streaming"},
	{"files", "PyTorch DataLoader over files"},
	{"tar", tarAlone},
}

// tarAlone and inMemory are measured beside the systems, and deliver no batches.
const tarAlone, inMemory = "zstd -dc, tar", "str of bytes in memory"

// loads reports whether the system delivers batches.
func (r *peerResult) loads() bool { return r.system != tarAlone && r.system != inMemory }

// peerJob is the input of the script.
type peerJob struct {
	System   string          `json:"system"`
	Kind     string          `json:"kind"`
	Field    string          `json:"field"`
	Batch    int             `json:"batch"`
	Samples  int             `json:"samples"`
	Bytes    int64           `json:"bytes"`
	Shard    int64           `json:"shard"`
	Plain    []string        `json:"plain"`  // tars
	Packed   string          `json:"packed"` // ours, compressed
	Files    string          `json:"files"`  // a sample each
	Mapped   string          `json:"mapped"` // one file of rows of tokens
	Work     string          `json:"work"`
	Parts    []peerJob       `json:"parts,omitempty"` // the sources of a mix
	S3       *peerS3         `json:"s3"`
	Stores   []string        `json:"stores"`
	Memory   int64           `json:"memory"`         // of a reading from disk, its part of the page cache included
	Best     json.RawMessage `json:"best,omitempty"` // the setting, if it is known
	Readings int             `json:"readings"`
	// Seconds: of the first epoch at most, not counted before the window, counted there, after which
	// a reading is the last of its kind, and that a process may take.
	Longest  float64 `json:"longest"`
	Warm     float64 `json:"warm"`
	Window   float64 `json:"window"`
	Patience float64 `json:"patience"`
	Limit    float64 `json:"limit"`
}

type peerS3 struct {
	Endpoint string `json:"endpoint"` // through the slow network
	Direct   string `json:"direct"`
	Bucket   string `json:"bucket"`
	Region   string `json:"region"`
}

// peerResult is the script's result for one system on one store.
type peerResult struct {
	Store  string `json:"store"`
	Reason string `json:"reason"` // why there is nothing else

	Best    json.RawMessage `json:"best"`
	Setting string          `json:"setting"`
	Swept   [][2]any        `json:"swept"`
	Rates   table.Sample    `json:"rates"` // samples per second; steady from local disk, of the first epoch from S3
	Cold    table.Sample    `json:"cold"`  // the same from local disk in the first epoch, its start included
	Bytes   table.Sample    `json:"bytes"` // a second
	CPU     table.Sample    `json:"cpu"`   // seconds a sample, of all processes
	Memory  table.Sample    `json:"memory"`
	Whole   bool            `json:"whole"` // the readings reached an epoch's end
	Note    string          `json:"note"`
	First   table.Sample    `json:"first"`  // seconds
	Resume  table.Sample    `json:"resume"` // seconds
	Loaded  float64         `json:"loaded"` // of these, the start of Python and its packages
	Way     string          `json:"way"`    // how it resumes

	system string
	kind   string
}

// peersBench is what the group has in common.
type peersBench struct {
	*bench
	group string
	env   []string
	s3    *peerS3
	noS3  string // why it is not there
}

// peersGroup reads equal data by other systems and by ours, each at its best of some settings, from
// local disk and from S3.
func (b *bench) peersGroup() error {
	if b.others("peers") == "" {
		return nil
	}
	p := &peersBench{bench: b, group: "peers"}
	server, err := b.startS3("-first-byte", peersFirstByte.String(), "-total", fmt.Sprint(peersTotal))
	if err != nil {
		p.noS3 = err.Error()
		b.LeftOut("peers", "from S3: "+p.noS3)
	} else {
		defer server.stop()
		p.s3 = &peerS3{Endpoint: server.value("AWS_ENDPOINT_URL"), Direct: server.value("DIRECT_ENDPOINT_URL"),
			Bucket: server.value("BUCKET"), Region: server.value("AWS_REGION")}
		p.env = append(server.env, "S3_ENDPOINT_URL="+p.s3.Endpoint, "AWS_DEFAULT_REGION="+p.s3.Region,
			"AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/none", "AWS_SHARED_CREDENTIALS_FILE=/none")
	}
	for _, k := range peerKinds {
		results, err := p.measure(k, peerSystems)
		if err != nil {
			return fmt.Errorf("%s: %w", k.shown, err)
		}
		b.peers = append(b.peers, results...)
	}
	return nil
}

// measure has systems read data of one kind.
func (p *peersBench) measure(k peerKind, systems []peerSystem) (all []peerResult, err error) {
	if p.peersMachine == nil {
		p.peersMachine = p.machine()
	}
	work := filepath.Join(p.dir, "peers-"+k.id)
	defer os.RemoveAll(work)
	job, err := p.prepare(k, work, int64(p.mib)<<19, 0) // half of what others have: there are many readings
	if err != nil {
		return nil, err
	}
	job.Stores = slices.DeleteFunc(slices.Clone(k.stores),
		func(store string) bool { return store == "disk" || store == "s3" && p.s3 == nil })
	jobs := []peerJob{job}
	if slices.Contains(k.stores, "disk") {
		large, err := p.prepare(k, filepath.Join(work, "disk"), int64(p.mib)<<23, 0)
		if err != nil {
			return nil, err
		}
		large.Stores, large.Memory, large.Longest, large.Warm = []string{"disk"}, p.diskMemory(), 2, 2
		jobs = append(jobs, large)
	}
	for _, system := range systems {
		if slices.Contains(k.without, system.id) {
			continue
		}
		fmt.Fprintf(os.Stderr, "bench: %s: %s: %s …\n", p.group, k.shown, system.shown)
		begin := time.Now()
		var results []peerResult
		for _, on := range jobs {
			if on.System = system.id; len(results) > 0 {
				on.Best = results[0].Best
			}
			got, err := p.call(on)
			if p.ctx.Err() != nil {
				return nil, p.ctx.Err()
			}
			for len(got) < len(on.Stores) { // a system that fails has a row with the reason
				got = append(got, peerResult{Store: on.Stores[len(got)], Reason: lastLine(fmt.Sprint(err))})
			}
			results = append(results, got...)
		}
		fmt.Fprintf(os.Stderr, "bench: %s: took %.0f s\n", p.group, time.Since(begin).Seconds())
		for _, r := range results {
			r.system, r.kind = system.shown, k.shown
			all = append(all, r)
			p.addPeer(r)
		}
	}
	return all, nil
}

// diskMemory is what a reading from disk and the page cache of its files may hold: half of its
// data, but what a process needs.
func (p *peersBench) diskMemory() int64 { return max(int64(p.mib)<<22, 192<<20) }

// call runs the script and returns what it has said, also when it fails then.
func (p *peersBench) call(job peerJob) (results []peerResult, err error) {
	in, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	// for the locks of others
	out, err := p.script(p.interpreter, "main.py", in, append(p.env, "HF_HUB_OFFLINE=1", "TMPDIR="+job.Work))
	for line := range bytes.Lines(out) {
		var r peerResult
		if err := json.Unmarshal(line, &r); err != nil {
			return results, fmt.Errorf("it printed %q: %w", line, err)
		}
		results = append(results, r)
	}
	return results, err
}

// storeNames are for people.
var storeNames = map[string]string{"local": "local disk", "s3": "S3", "disk": "disk"}

// addPeer adds a row to the table.
func (p *peersBench) addPeer(r peerResult) {
	name := fmt.Sprintf("%s, %s: %s", r.kind, storeNames[r.Store], r.system)
	if r.Reason != "" {
		p.Rows = append(p.Rows, table.Row{Group: p.group, Name: name, Missing: r.Reason})
		return
	}
	figures := map[string]float64{"bytes_per_second": r.Bytes.Median(), "cpu_seconds_per_sample": r.CPU.Median()}
	for name, figure := range map[string]table.Sample{"first_epoch_samples_per_second": r.Cold,
		"first_batch_seconds": r.First, "resume_seconds": r.Resume} {
		if len(figure) > 0 {
			figures[name] = figure.Median()
		}
	}
	if len(r.Memory) > 0 {
		figures["memory_mib"] = slices.Max(r.Memory)
	}
	if len(r.Resume) > 0 {
		figures["imports_seconds"] = r.Loaded
	}
	detail := ""
	for i, cell := range r.cells()[1:] {
		detail += peerColumns[i+1] + " " + cell + "; "
	}
	detail += swept(r)
	p.Info(p.group, name, r.Rates, "samples/s", detail)
	p.Rows[len(p.Rows)-1].Figures = figures
}

// swept lists the settings tried and their rates.
func swept(r peerResult) string {
	var all []string
	for _, s := range r.Swept {
		if rate, ok := s[1].(float64); ok {
			all = append(all, fmt.Sprintf("%v %.0f/s", s[0], rate))
		} else {
			all = append(all, fmt.Sprintf("%v %v", s[0], s[1]))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "tried: " + strings.Join(all, " | ")
}
