package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/shardtool/shardtool/objstore/storetest/s3server"
)

// TestDoctorOfAnEmptyPlace: a store in which there is nothing yet is no mistake. A folder without
// files is one.
func TestDoctorOfAnEmptyPlace(t *testing.T) {
	t.Parallel()
	place := "s3://bucket/new?path_style=true&region=here&endpoint=" + s3server.New(t).URL
	for _, args := range [][]string{{place}, {place, "--write"}, {place, "--json"}, {t.TempDir()}} {
		cmd := exec.Command("shardtool", append([]string{"doctor"}, args...)...)
		cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "AWS_EC2_METADATA_DISABLED=true")
		out, _ := cmd.CombinedOutput()
		want, complains := 0, args[0] != place
		if complains {
			want = exitNotFound
		}
		if got := cmd.ProcessState.ExitCode(); got != want || strings.Contains(string(out), "shardtool: ") != complains {
			t.Errorf("%q: exit status %d, want %d\n%s", args, got, want, out)
		}
	}
}
