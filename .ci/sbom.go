// Command sbom writes the modules linked into a Go binary as a CycloneDX 1.5 document.
//
//	go run .ci/sbom.go BINARY > shardtool.cdx.json
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
)

type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
	BOMRef  string `json:"bom-ref"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY")
		os.Exit(2)
	}
	info, err := buildinfo.ReadFile(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
	standard := component{"library", "std", info.GoVersion, "pkg:golang/std@" + info.GoVersion, "std"}
	parts := []component{standard}
	for _, d := range info.Deps {
		parts = append(parts, module("library", d))
	}
	enc := json.NewEncoder(os.Stdout)
	enc.SetIndent("", "  ")
	err = enc.Encode(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
		"metadata":   map[string]any{"component": module("application", &info.Main)},
		"components": parts,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func module(kind string, m *debug.Module) component {
	if m.Replace != nil {
		m = m.Replace
	}
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	return component{kind, m.Path, m.Version, purl, purl}
}
