//go:build !linux

package serve

func system() memory { return portable }
