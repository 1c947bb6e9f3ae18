package main

import (
	"slices"

	"github.com/spf13/cobra"
)

// newServe is for programs, so the list of commands leaves it out.
func newServe() *cobra.Command {
	var fd, listen, parent int
	var peers []int
	var metricsAddr string
	cmd := &cobra.Command{
		Use:    "serve --fd N",
		Hidden: true,
		Short:  "Deliver batches to the program that started this one",
		Long: `Deliver batches in shared memory to the program that started this one, such as the Python package. The program passes one end of a
socket pair as the descriptor --fd. cmd/shardtool/internal/serve/PROTOCOL.md describes the protocol.

With --listen it serves other processes too, the ranks of a host: they share the data sets that they open, and what is decoded of
those that an order holds whole. With --peers it serves the processes that read one rank together.

It ends with that program, however that ends, and ignores SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2, which the program handles.

With --metrics it serves metrics for Prometheus, as cat does, from the opening of a data set on. If several processes are given the
same port, such as the ranks of a host, each takes the first free port of that one and the 63 after it.`,
		Example: "  shardtool serve --fd 3 3<>socket   # one end of a socket pair, in practice",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if fd < 3 {
				return usagef("--fd: give the number of the descriptor that is one end of a socket pair; programs start this command, see cmd/shardtool/internal/serve/PROTOCOL.md")
			}
			if listen != 0 && listen < 3 {
				return usagef("--listen: give the number of the descriptor of a socket that listens")
			}
			if slices.ContainsFunc(peers, func(n int) bool { return n < 3 || listen != 0 }) {
				return usagef("--peers: give the numbers of descriptors of sockets that listen, and no --listen")
			}
			return runServe(cmd, fd, listen, peers, parent, metricsAddr)
		},
	}
	cmd.Flags().IntVar(&fd, "fd", -1, "descriptor of the socket")
	cmd.Flags().IntVar(&listen, "listen", 0,
		"serve the processes of this user that connect to the socket with this descriptor, too, until the last has ended (Linux)")
	cmd.Flags().IntSliceVar(&peers, "peers", nil,
		"serve the peers of a rank, which connect to the sockets with these descriptors, and not --fd, which says who they are")
	cmd.Flags().IntVar(&parent, "parent", 0,
		"end when this process is no longer the parent (0: only when the socket is closed)")
	cmd.Flags().StringVar(&metricsAddr, "metrics", "",
		"serve metrics for Prometheus at this address, as in :9400, or at the next free port (this host only, unless it names a host)")
	return cmd
}
