package inputs

import "github.com/shardtool/shardtool/internal/input/stems"

// SetStems sets the Stem of each file, as stems.Of says.
func SetStems(files []File, suffixes ...string) error {
	return setStems(files, stems.Of, suffixes)
}

// SetStemsApart sets the Stem of each file, as stems.Apart says.
func SetStemsApart(files []File, suffixes ...string) error {
	return setStems(files, stems.Apart, suffixes)
}

func setStems(files []File, of func([]string, ...string) ([]string, error), suffixes []string) error {
	paths := make([]string, len(files))
	for i := range files {
		paths[i] = files[i].Path
	}
	list, err := of(paths, suffixes...)
	for i := range list {
		files[i].Stem = list[i]
	}
	return err
}
