package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// cpuModel returns the name of the processor, if the system reports it.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return "a processor without a name"
}

// memoryGiB is how much memory the machine has.
func memoryGiB() float64 {
	text, err := os.ReadFile("/proc/meminfo")
	var kib float64
	if err == nil {
		_, _ = fmt.Sscanf(string(text), "MemTotal: %f", &kib)
	}
	return kib / (1 << 20)
}

// load is the mean number of processes that wanted to run in the last minute: what else the machine
// was busy with.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// says returns the first line that a command prints, or that the command is missing.
func says(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return name + " is missing"
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}

// machine describes the machine and the versions of the programs in the comparison.
func (p *peersBench) machine() []string {
	versions := says(p.interpreter, "-c",
		`import platform, torch, numpy, boto3; print(f"Python {platform.python_version()}, torch {torch.__version__}, numpy {numpy.__version__}, boto3 {boto3.__version__}")`)
	network := "S3 left out: " + p.noS3
	if p.s3 != nil {
		network = fmt.Sprintf("S3: versitygw on loopback behind a proxy: %v to the first byte of an answer, %d MB/s for all together, a connection may have all of it; every reading begins with an empty local cache; the server shares the CPUs", peersFirstByte, peersTotal)
	}
	return []string{
		fmt.Sprintf("%s: %s, %d CPUs, %.0f GiB of memory, load %s before, %s", today(), cpuModel(), p.cores,
			memoryGiB(), load(), says("uname", "-sr")),
		versions + "; " + strings.Trim(says("zstd", "--version"), "* ") + "; " + says("tar", "--version"),
		fmt.Sprintf("%d MiB of samples of each kind, in eight shards; local files on %s, page cache warm", p.mib/2,
			fsKind(p.dir)),
		fmt.Sprintf("disk: %d MiB of samples; a control group limits the processes and the page cache of a reading to %d MiB", p.mib*8, p.diskMemory()>>20),
		network,
	}
}
