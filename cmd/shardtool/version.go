package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/shardtool/shardtool/format"
	"github.com/shardtool/shardtool/internal/sys/build"
)

// versionJSON is what version prints.
type versionJSON struct {
	Version string `json:"version"`
	Format  string `json:"format"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func newVersion() *cobra.Command {
	var asJSON, texts bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the versions of the program, the format and Go",
		Long:    `Print the versions of the program, the format and Go.`,
		Example: "  shardtool version --json\n  shardtool version --licenses | less",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if texts {
				_, err := fmt.Fprint(cmd.OutOrStdout(), licenses)
				return err
			}
			return present(cmd, asJSON, byName{versionJSON{version, formatVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH}},
				func(w io.Writer) { fmt.Fprintln(w, versionText()) })
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	cmd.Flags().BoolVar(&texts, "licenses", false, "print the licences of all software in the binary")
	cmd.MarkFlagsMutuallyExclusive("json", "licenses")
	return cmd
}

func formatVersion() string { return fmt.Sprintf("%d.%d", format.Major, format.Minor) }

func versionText() string {
	return fmt.Sprintf("shardtool %s, format %s, %s %s/%s", version, formatVersion(), runtime.Version(), runtime.GOOS,
		runtime.GOARCH)
}

// version is the version of the build.
var version = build.Version()
