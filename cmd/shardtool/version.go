package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format"
)

func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the versions of module, format and Go",
		Example: "  shardtool version --json",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f := fmt.Sprintf("%d.%d", format.Major, format.Minor)
			if asJSON {
				return printJSON(cmd, map[string]string{"version": version, "format": f, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "shardtool %s, format %s, %s %s/%s\n", version, f, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}
