package ranks_test

import (
	"fmt"
	"log"

	"github.com/shardtool/shardtool/reader/ranks"
)

// The variables that Slurm sets; a program passes os.Getenv.
func ExampleFromEnvironment() {
	environment := map[string]string{"SLURM_PROCID": "9", "SLURM_NTASKS": "16", "SLURM_LOCALID": "1"}
	job, err := ranks.FromEnvironment(func(name string) string { return environment[name] })
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.Launcher, "rank", job.Rank, "of", job.World)
	// Output:
	// Slurm rank 9 of 16
}
