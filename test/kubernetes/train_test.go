package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	kubeflow "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"
)

// decode decodes a manifest into its API type. Unknown and repeated members are errors.
func decode(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy/kubernetes", name))
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// trains checks a pod that trains: the arguments are those of the example, and what they name is
// mounted. It returns the arguments before the program.
func trains(t *testing.T, spec *core.PodSpec) (launcher []string) {
	t.Helper()
	if len(spec.Containers) != 1 || !slices.Equal(spec.Containers[0].Command, []string{"torchrun"}) {
		t.Fatalf("containers %+v", spec.Containers)
	}
	c := &spec.Containers[0]
	program := slices.IndexFunc(c.Args, func(a string) bool { return strings.HasSuffix(a, ".py") })
	if program < 0 {
		t.Fatalf("no program in %q", c.Args)
	}
	source, err := os.ReadFile(filepath.Join(root, "python/examples/authors", filepath.Base(c.Args[program])))
	if err != nil {
		t.Fatal(err)
	}
	mounted := map[string]string{}
	for _, m := range c.VolumeMounts {
		mounted[m.MountPath] = m.Name
	}
	for _, v := range spec.Volumes {
		if !slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.Name == v.Name }) {
			t.Errorf("the volume %s is not mounted", v.Name)
		}
		if s := v.EmptyDir; v.Name == "shm" && (s == nil || s.Medium != core.StorageMediumMemory || s.SizeLimit.IsZero()) {
			t.Errorf("shared memory is %+v", v)
		}
	}
	positional := 0
	for _, a := range c.Args[program+1:] {
		name, value, flag := strings.Cut(a, "=")
		switch {
		case flag && !strings.Contains(string(source), fmt.Sprintf("add_argument(%q", name)):
			t.Errorf("the program has no option %s", name)
		case flag && mounted[value] == "":
			t.Errorf("%s: nothing is mounted there", a)
		case !flag:
			positional++
		}
	}
	if mounted[filepath.Dir(c.Args[program])] != "program" || mounted[c.Args[program+2]] != "run" || mounted["/dev/shm"] != "shm" || positional != 2 {
		t.Errorf("arguments %q, mounted %v", c.Args, mounted)
	}
	if gpus := c.Resources.Limits["nvidia.com/gpu"]; gpus.Cmp(c.Resources.Requests["nvidia.com/gpu"]) != 0 || gpus.IsZero() {
		t.Errorf("resources %+v", c.Resources)
	}
	return c.Args[:program]
}

// TestJobSet checks that all nodes are one rendezvous, and that a disruption starts all of them
// again without being counted.
func TestJobSet(t *testing.T) {
	var set jobset.JobSet
	decode(t, "train-jobset.yaml", &set)
	if set.APIVersion != jobset.GroupVersion.String() || set.Kind != "JobSet" || len(set.Spec.ReplicatedJobs) != 1 {
		t.Fatalf("%s %s of %d jobs", set.APIVersion, set.Kind, len(set.Spec.ReplicatedJobs))
	}
	node := &set.Spec.ReplicatedJobs[0]
	job := &node.Template.Spec
	args := trains(t, &job.Template.Spec)
	if node.Replicas != 1 || *job.CompletionMode != batch.IndexedCompletion || *job.Completions != *job.Parallelism || *job.BackoffLimit != 0 ||
		job.Template.Spec.RestartPolicy != core.RestartPolicyNever {
		t.Errorf("the job %+v", job)
	}
	for _, want := range []string{
		fmt.Sprintf("--nnodes=%d", *job.Completions),
		fmt.Sprintf("--nproc-per-node=%s", job.Template.Spec.Containers[0].Resources.Limits.Name("nvidia.com/gpu", "")),
		"--node-rank=$(JOB_COMPLETION_INDEX)",
		fmt.Sprintf("--master-addr=%s-%s-0-0.%s", set.Name, node.Name, set.Spec.Network.Subdomain),
	} {
		if !slices.Contains(args, want) {
			t.Errorf("%q lacks %s", args, want)
		}
	}
	if !*set.Spec.Network.EnableDNSHostnames {
		t.Error("pods have no names")
	}
	rules, policy := set.Spec.FailurePolicy.Rules, job.PodFailurePolicy.Rules
	if len(rules) != 1 || rules[0].Action != jobset.RestartJobSetAndIgnoreMaxRestarts || !slices.Equal(rules[0].OnJobFailureReasons, []string{batch.JobReasonPodFailurePolicy}) ||
		len(policy) != 1 || policy[0].Action != batch.PodFailurePolicyActionFailJob || policy[0].OnPodConditions[0].Type != core.DisruptionTarget {
		t.Errorf("failure policies %+v, %+v", rules, policy)
	}
}

// TestPyTorchJob checks that nodes may leave and return.
func TestPyTorchJob(t *testing.T) {
	var job kubeflow.PyTorchJob
	decode(t, "train-pytorchjob.yaml", &job)
	kubeflow.SetDefaults_PyTorchJob(&job)
	if job.APIVersion != kubeflow.GroupVersion.String() || job.Kind != kubeflow.PyTorchJobKind {
		t.Fatalf("%s %s", job.APIVersion, job.Kind)
	}
	worker := job.Spec.PyTorchReplicaSpecs[kubeflow.PyTorchJobReplicaTypeWorker]
	if worker == nil || len(job.Spec.PyTorchReplicaSpecs) != 1 {
		t.Fatalf("replicas %+v", job.Spec.PyTorchReplicaSpecs)
	}
	if args := trains(t, &worker.Template.Spec); len(args) > 0 {
		t.Errorf("arguments of torchrun %q: the operator sets them", args)
	}
	elastic := job.Spec.ElasticPolicy
	if *elastic.MinReplicas >= *elastic.MaxReplicas || *worker.Replicas != *elastic.MaxReplicas || worker.RestartPolicy != kubeflow.RestartPolicyOnFailure {
		t.Errorf("%d to %d replicas, %d at first, %s", *elastic.MinReplicas, *elastic.MaxReplicas, *worker.Replicas, worker.RestartPolicy)
	}
	gpus := worker.Template.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"]
	if *job.Spec.NprocPerNode != gpus.String() || worker.Template.Spec.Containers[0].Name != kubeflow.PyTorchJobDefaultContainerName {
		t.Errorf("%s processes on %s GPUs in %s", *job.Spec.NprocPerNode, gpus.String(), worker.Template.Spec.Containers[0].Name)
	}
}
