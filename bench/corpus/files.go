package corpus

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
)

// WriteFiles writes samples as files below dir, one a field, named
// key.field, and returns how many files and bytes they were. It makes dir and the
// class folders, and replaces files that are there.
func WriteFiles(dir string, samples iter.Seq[Sample]) (files int, bytes int64, err error) {
	var made string
	for s := range samples {
		base := filepath.Join(dir, filepath.FromSlash(s.Key))
		if folder := filepath.Dir(base); folder != made {
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return files, bytes, fmt.Errorf("corpus: sample %s: %w", s.Key, err)
			}
			made = folder
		}
		for _, f := range s.Fields {
			if err := os.WriteFile(base+"."+f.Name, f.Data, 0o644); err != nil {
				return files, bytes, fmt.Errorf("corpus: sample %s: %w", s.Key, err)
			}
			files++
			bytes += int64(len(f.Data))
		}
	}
	return files, bytes, nil
}
