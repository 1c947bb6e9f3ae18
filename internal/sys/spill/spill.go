// Package spill makes the temporary files for what does not fit in memory, such as runs of a sort.
package spill

import (
	"fmt"
	"os"
)

// Create makes a file in dir, or in the system's folder for temporary files if dir is empty. Nobody
// else needs its name, so it is removed at once where open files can be, and a killed process
// leaves no file. The caller ends it by Close.
func Create(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "shardtool-sort-*")
	if err != nil {
		return nil, fmt.Errorf("a temporary file cannot be made (TMPDIR names its folder): %w", err)
	}
	_ = os.Remove(f.Name())
	return f, nil
}

// Close closes a file of Create, and removes it where Create could not. The file may be nil.
func Close(f *os.File) error {
	if f == nil {
		return nil
	}
	err := f.Close()
	_ = os.Remove(f.Name()) // an error if Create removed it
	return err
}
