package main

import (
	"github.com/spf13/cobra"
)

// newServe is for programs, so the list of commands leaves it out.
func newServe() *cobra.Command {
	var fd, parent int
	var metricsAddr string
	cmd := &cobra.Command{
		Use:    "serve --fd N",
		Hidden: true,
		Short:  "Hand batches to the program that started this one",
		Long: `Hand batches, in memory that both map, to the program that started this one; the Python package does. The program passes one
end of a socket pair as the descriptor --fd. docs/serve-protocol.md says what both ends say.

It ends with the program, however that ends, and ignores SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2: they are the program's to
answer.

With --metrics it serves metrics for Prometheus, as cat does, from the moment that a data set is opened. Processes that are given the
same port, such as the ranks of a host, take the first free one from it on, of 64.

Exit codes:
` + exitCodes,
		Example: "  shardtool serve --fd 3 3<>socket   # one end of a socket pair, in practice",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if fd < 3 {
				return usagef("--fd: give the number of the descriptor that is one end of a socket pair; programs start this command, see docs/serve-protocol.md")
			}
			return runServe(cmd, fd, parent, metricsAddr)
		},
	}
	cmd.Flags().IntVar(&fd, "fd", -1, "descriptor of the socket")
	cmd.Flags().IntVar(&parent, "parent", 0, "end when this process is no longer the parent (0: only when the socket is closed)")
	cmd.Flags().StringVar(&metricsAddr, "metrics", "", "serve metrics for Prometheus at this address, as in :9400, or at the next free port (this host only, unless it names a host)")
	return cmd
}
