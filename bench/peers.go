package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/shardtool/shardtool/bench/table"
)

// peersScripts measure one system per call; bench/peers/main.py is the entry point.
//
//go:embed peers/*.py
var peersScripts embed.FS

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
	{"tar", "zstd -dc, tar"},
}

// peerJob is the input of the script.
type peerJob struct {
	System   string   `json:"system"`
	Kind     string   `json:"kind"`
	Field    string   `json:"field"`
	Batch    int      `json:"batch"`
	Samples  int      `json:"samples"`
	Bytes    int64    `json:"bytes"`
	Shard    int64    `json:"shard"`
	Plain    []string `json:"plain"`  // tars
	Packed   string   `json:"packed"` // ours, compressed
	Files    string   `json:"files"`  // a sample each
	Mapped   string   `json:"mapped"` // one file of rows of tokens
	Work     string   `json:"work"`
	S3       *peerS3  `json:"s3"`
	Readings int      `json:"readings"`
	// Seconds: not counted before a reading from local disk, counted there, counted from S3 at most,
	// after which a reading is the last of its kind, and that a process may take.
	Warm     float64 `json:"warm"`
	Window   float64 `json:"window"`
	Longest  float64 `json:"longest"`
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

	Setting string       `json:"setting"`
	Swept   [][2]any     `json:"swept"`
	Rates   table.Sample `json:"rates"` // samples per second; steady from local disk, of the first epoch from S3
	Cold    table.Sample `json:"cold"`  // the same from local disk in the first epoch, its start included
	Bytes   table.Sample `json:"bytes"` // a second
	CPU     table.Sample `json:"cpu"`   // seconds a sample, of all processes
	Memory  table.Sample `json:"memory"`
	Whole   bool         `json:"whole"` // the readings reached an epoch's end
	Note    string       `json:"note"`
	First   table.Sample `json:"first"`  // seconds
	Resume  table.Sample `json:"resume"` // seconds
	Loaded  float64      `json:"loaded"` // of these, the start of Python and its packages
	Way     string       `json:"way"`    // how it resumes

	system string
	kind   string
}

// peersBench is what the group has in common.
type peersBench struct {
	*bench
	group, temporary string
	env              []string
	s3               *peerS3
	noS3             string // why it is not there
}

// peersGroup reads equal data by other systems and by ours, each at its best of some settings, from
// local disk and from S3.
func (b *bench) peersGroup() error {
	if b.others("peers") == "" {
		return nil
	}
	p := &peersBench{bench: b, group: "peers"}
	if err := p.unpack(); err != nil {
		return err
	}
	server, err := b.startS3("-first-byte", peersFirstByte.String(), "-total", fmt.Sprint(peersTotal))
	if err != nil {
		p.noS3 = err.Error()
		b.LeftOut("peers", "from S3: "+p.noS3)
	} else {
		defer server.stop()
		p.env = append(p.env, server.env...)
		p.s3 = &peerS3{Endpoint: server.value("AWS_ENDPOINT_URL"), Direct: server.value("DIRECT_ENDPOINT_URL"),
			Bucket: server.value("BUCKET"), Region: server.value("AWS_REGION")}
		p.env = append(p.env, "S3_ENDPOINT_URL="+p.s3.Endpoint, "AWS_DEFAULT_REGION="+p.s3.Region)
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

// unpack writes the scripts and settles their environment.
func (p *peersBench) unpack() error {
	env, err := p.packageEnv()
	if err != nil {
		return err
	}
	if err := os.CopyFS(p.dir, peersScripts); err != nil {
		return err
	}
	p.env = append(env, "HF_HUB_OFFLINE=1",
		"AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/none", "AWS_SHARED_CREDENTIALS_FILE=/none")
	return nil
}

// measure has systems read data of one kind.
func (p *peersBench) measure(k peerKind, systems []peerSystem) (all []peerResult, err error) {
	p.peersMachine = p.machine()
	job, err := p.prepare(k)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(job.Work)
	for _, system := range systems {
		fmt.Fprintf(os.Stderr, "bench: %s: %s: %s …\n", p.group, k.shown, system.shown)
		job.System = system.id
		begin := time.Now()
		results, err := p.call(job)
		if p.ctx.Err() != nil {
			return nil, p.ctx.Err()
		}
		if err != nil {
			// A system that fails has a row with the reason.
			for _, store := range p.stores()[len(results):] {
				results = append(results, peerResult{Store: store, Reason: err.Error()})
			}
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

func (p *peersBench) stores() []string {
	if p.s3 == nil {
		return []string{"local"}
	}
	return []string{"local", "s3"}
}

// call runs the script and returns what it has said, also when it fails then.
func (p *peersBench) call(job peerJob) (results []peerResult, err error) {
	out, err := p.script("main.py", 10*time.Minute, job)
	for line := range bytes.Lines(out) {
		var r peerResult
		if err := json.Unmarshal(line, &r); err != nil {
			return results, fmt.Errorf("it printed %q: %w", line, err)
		}
		results = append(results, r)
	}
	return results, err
}

// script runs a script of peers with a job as its input, and returns what it printed, also when it
// fails then.
func (p *peersBench) script(name string, most time.Duration, job any) ([]byte, error) {
	in, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(p.ctx, most)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.interpreter, filepath.Join(p.dir, "peers", name))
	cmd.Env, cmd.Stdin = append(p.env, "TMPDIR="+p.temporary), bytes.NewReader(in)
	// It ends what it has started.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		lines := strings.Split(strings.TrimSpace(string(exit.Stderr)), "\n")
		err = fmt.Errorf("%w: %s", err, lines[len(lines)-1])
	}
	return out, err
}

// storeNames are for people.
var storeNames = map[string]string{"local": "local disk", "s3": "S3"}

// addPeer adds a row to the table.
func (p *peersBench) addPeer(r peerResult) {
	name := fmt.Sprintf("%s, %s: %s", r.kind, storeNames[r.Store], r.system)
	if r.Reason != "" {
		p.Rows = append(p.Rows, table.Row{Group: p.group, Name: name, Missing: r.Reason})
		return
	}
	figures := map[string]float64{"bytes_per_second": r.Bytes.Median(), "cpu_seconds_per_sample": r.CPU.Median()}
	detail := fmt.Sprintf("%.0f MB/s, %.3g µs of CPU a sample", r.Bytes.Median()/1e6, 1e6*r.CPU.Median())
	if len(r.Memory) > 0 {
		figures["memory_mib"] = slices.Max(r.Memory)
		detail += fmt.Sprintf(", %.0f MiB", slices.Max(r.Memory))
	}
	if len(r.Cold) > 0 {
		figures["first_epoch_samples_per_second"] = r.Cold.Median()
		detail += fmt.Sprintf(", first epoch %s samples/s", table.Count(r.Cold.Median()))
	}
	if len(r.First) > 0 {
		figures["first_batch_seconds"] = r.First.Median()
		detail += fmt.Sprintf(", first batch %.0f ms", 1000*r.First.Median())
	}
	if len(r.Resume) > 0 {
		figures["resume_seconds"], figures["imports_seconds"] = r.Resume.Median(), r.Loaded
		detail += fmt.Sprintf(", resumed after %.2f s", r.Resume.Median())
	}
	for _, more := range []string{r.Way, r.Setting, r.Note, swept(r)} {
		if more != "" {
			detail += "; " + more
		}
	}
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
