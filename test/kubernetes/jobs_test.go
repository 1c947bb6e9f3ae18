// Package kubernetes checks deploy/kubernetes against the API's types, and against the program that
// the Jobs run.
package kubernetes

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// load decodes a manifest. Unknown and repeated members are errors.
func load(t *testing.T, name string) *batch.Job {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy/kubernetes", name))
	if err != nil {
		t.Fatal(err)
	}
	var job batch.Job
	if err := yaml.UnmarshalStrict(text, &job); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if job.APIVersion != "batch/v1" || job.Kind != "Job" || job.Name == "" {
		t.Fatalf("%s: %s %s %q", name, job.APIVersion, job.Kind, job.Name)
	}
	return &job
}

func container(t *testing.T, job *batch.Job) *core.Container {
	t.Helper()
	spec := &job.Spec.Template.Spec
	if len(spec.Containers) != 1 || spec.RestartPolicy != core.RestartPolicyNever { // a policy for failures needs Never
		t.Fatalf("%s: %d containers, restart %s", job.Name, len(spec.Containers), spec.RestartPolicy)
	}
	c := &spec.Containers[0]
	limit, request := c.Resources.Limits.Memory(), c.Resources.Requests.Memory()
	if request.IsZero() || limit.Cmp(*request) < 0 {
		t.Errorf("%s: memory %v of %v", job.Name, request, limit)
	}
	volumes := map[string]bool{}
	for _, v := range spec.Volumes {
		volumes[v.Name] = true
	}
	tmp := false
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("%s: no volume %s", job.Name, m.Name)
		}
		tmp = tmp || m.MountPath == "/tmp"
	}
	if !tmp {
		t.Errorf("%s: the image has no folder for temporary files, and none is mounted", job.Name)
	}
	return c
}

// actions returns what a Job does for each exit code, and for a disruption.
func actions(t *testing.T, job *batch.Job) (codes map[int32]batch.PodFailurePolicyAction, disruption batch.PodFailurePolicyAction) {
	t.Helper()
	codes = map[int32]batch.PodFailurePolicyAction{}
	for _, r := range job.Spec.PodFailurePolicy.Rules {
		switch {
		case r.OnExitCodes != nil && r.OnPodConditions != nil:
			t.Errorf("%s: a rule is for codes and conditions", job.Name)
		case r.OnExitCodes != nil:
			e := r.OnExitCodes
			if e.Operator != batch.PodFailurePolicyOnExitCodesOpIn || *e.ContainerName != job.Spec.Template.Spec.Containers[0].Name || !slices.IsSorted(e.Values) {
				t.Errorf("%s: %+v", job.Name, e)
			}
			for _, code := range e.Values {
				if codes[code] != "" {
					t.Errorf("%s: code %d stands twice", job.Name, code)
				}
				codes[code] = r.Action
			}
		default:
			for _, c := range r.OnPodConditions {
				if c.Type != core.DisruptionTarget || c.Status != core.ConditionTrue {
					t.Errorf("%s: %+v", job.Name, c)
				}
				disruption = r.Action
			}
		}
	}
	return codes, disruption
}

func flag(args []string, name string) string {
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return v
		}
	}
	return ""
}

// program builds the binary in the same way as the container file.
func program(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy/Containerfile"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^RUN (.* go build .*) -o /shardtool (.*)$`).FindSubmatch(text)
	if line == nil {
		t.Fatal("deploy/Containerfile has no line that builds the program")
	}
	bin := filepath.Join(t.TempDir(), "shardtool")
	cmd := exec.Command("sh", "-c", fmt.Sprintf("%s -o %s %s", line[1], bin, line[2]))
	cmd.Dir, cmd.Env = root, append(os.Environ(), "VERSION=test")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program is not static: it does not run in an empty image")
		}
	}
	return bin
}

// run runs the program like a pod of that index, if any, and returns its exit code.
func run(t *testing.T, bin, index string, args ...string) int {
	t.Helper()
	cmd := exec.Command(bin, args...)
	cmd.Env = append(os.Environ(), "JOB_COMPLETION_INDEX="+index, "SLURM_ARRAY_TASK_ID=")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	t.Logf("%v as %q: exit %d: %s", args, index, cmd.ProcessState.ExitCode(), out)
	return cmd.ProcessState.ExitCode()
}

// TestJobs checks that the manifests agree with each other.
func TestJobs(t *testing.T) {
	pack, commit := load(t, "pack.yaml"), load(t, "commit.yaml")
	p, c := container(t, pack), container(t, commit)
	parts := flag(p.Args, "parts")
	if *pack.Spec.CompletionMode != batch.IndexedCompletion || fmt.Sprint(*pack.Spec.Completions) != parts || *pack.Spec.Parallelism > *pack.Spec.Completions ||
		*pack.Spec.BackoffLimitPerIndex < 1 {
		t.Errorf("%d completions of %q, --parts=%s", *pack.Spec.Completions, *pack.Spec.CompletionMode, parts)
	}
	if flag(c.Args, "parts") != parts || flag(c.Args, "name") != flag(p.Args, "name") || c.Args[1] != p.Args[2] || c.Image != p.Image {
		t.Errorf("pack %q, commit %q", p.Args, c.Args)
	}
	for _, job := range []*batch.Job{pack, commit} {
		codes, disruption := actions(t, job)
		never := batch.PodFailurePolicyActionFailIndex
		if job == commit {
			never = batch.PodFailurePolicyActionFailJob
		}
		want := map[int32]batch.PodFailurePolicyAction{2: never, 3: never, 4: batch.PodFailurePolicyActionIgnore, 5: batch.PodFailurePolicyActionIgnore, 6: never}
		if fmt.Sprint(codes) != fmt.Sprint(want) || disruption != batch.PodFailurePolicyActionIgnore {
			t.Errorf("%s: %v, %v", job.Name, codes, disruption)
		}
		if *job.Spec.PodReplacementPolicy != batch.Failed { // the API takes no other beside a policy for failures
			t.Errorf("%s replaces pods that are %s", job.Name, *job.Spec.PodReplacementPolicy)
		}
	}
}

// TestOptimize checks the Job that runs a program of docs/clusters.md.
func TestOptimize(t *testing.T) {
	job := load(t, "optimize.yaml")
	c := container(t, job)
	page, err := os.ReadFile(filepath.Join(root, "docs/clusters.md"))
	if err != nil {
		t.Fatal(err)
	}
	if *job.Spec.CompletionMode != batch.IndexedCompletion || !strings.Contains(string(page), fmt.Sprintf(`"out", parts=%d)`, *job.Spec.Completions)) {
		t.Errorf("%d completions of %q are not the parts of the page", *job.Spec.Completions, *job.Spec.CompletionMode)
	}
	file := filepath.Base(c.Args[0])
	if !strings.Contains(string(page), "create configmap make --from-file="+file) || c.VolumeMounts[0].MountPath != filepath.Dir(c.Args[0]) {
		t.Errorf("the program %q of %+v", c.Args, c.VolumeMounts)
	}
	if codes, disruption := actions(t, job); len(codes) > 0 || disruption != batch.PodFailurePolicyActionIgnore {
		t.Errorf("%v, %v", codes, disruption)
	}
	if c.Resources.Limits.Cpu().Cmp(*c.Resources.Requests.Cpu()) != 0 {
		t.Error("without a limit the function runs in a process for each core of the node")
	}
}

// TestArguments runs the containers' arguments with directories in place of the bucket, like that
// many pods, and checks the exit codes that the policies name.
func TestArguments(t *testing.T) {
	bin := program(t)
	pack, commit := load(t, "pack.yaml"), load(t, "commit.yaml")
	dir := t.TempDir()
	out, src := filepath.Join(dir, "out"), filepath.Join(root, "testdata/demo")
	with := func(c *core.Container, src, out string) []string {
		args := slices.Clone(c.Args)
		if c.Name == "pack" {
			args[1], args[2] = src, out
		} else {
			args[1] = out
		}
		return args
	}
	p, c := container(t, pack), container(t, commit)
	want := func(what string, got, code int) {
		t.Helper()
		if got != code {
			t.Errorf("%s: exit %d, want %d", what, got, code)
		}
	}
	want("a commit without parts", run(t, bin, "", with(c, "", out)...), 6)
	for i := range int(*pack.Spec.Completions) {
		want("a pod", run(t, bin, fmt.Sprint(i), with(p, src, out)...), 0)
	}
	want("a pod that comes again", run(t, bin, "3", with(p, src, out)...), 0)
	want("the commit", run(t, bin, "", with(c, "", out)...), 0)
	want("the commit again", run(t, bin, "", with(c, "", out)...), 0)
	want("verify", run(t, bin, "", "verify", out, "--deep"), 0)

	want("an index that is none of the parts", run(t, bin, fmt.Sprint(*pack.Spec.Completions), with(p, src, out)...), 2)
	want("no source", run(t, bin, "0", with(p, filepath.Join(dir, "none"), filepath.Join(dir, "other"))...), 6)
	cut := filepath.Join(dir, "cut.tar")
	if err := os.WriteFile(cut, make([]byte, 700), 0o644); err != nil {
		t.Fatal(err)
	}
	want("a cut archive", run(t, bin, "0", with(p, cut, filepath.Join(dir, "other"))...), 3)
	bad := filepath.Join(dir, "bad")
	err := errors.Join(os.Mkdir(bad, 0o755), os.WriteFile(bad+"/a.txt", []byte("a"), 0o644), os.Symlink("nowhere", bad+"/b.txt"))
	if err != nil {
		t.Fatal(err)
	}
	skip := append(with(p, bad, filepath.Join(dir, "skip")), "--on-error=skip", "--parts=1")
	want("samples left out", run(t, bin, "0", skip...), 4)
	want("and again", run(t, bin, "0", skip...), 0)
}
