package recognise

import (
	"path"
	"slices"
	"strings"
)

// splitWords are the words by which names say a split, and its name.
var splitWords = map[string]string{
	"train": "train", "training": "train", "validation": "validation", "valid": "validation", "val": "validation",
	"dev":  "validation",
	"test": "test", "testing": "test", "eval": "test", "evaluation": "test",
}

// Split is a part of a data set that names set apart, such as the test set.
type Split struct {
	// Name is train, validation or test.
	Name string
	// Example is a file of it, and Folder the folder that holds it, or empty where its files lie
	// beside the files of the others. Word is the word in the name.
	Example, Folder, Word string
}

// Splits are the splits that names say, in the order of Split.Name.
type Splits []Split

// SplitsOf returns the splits of files of rows or archives: a folder is called train, or the name
// of a file has the word, as in data/train-00000-of-00004.parquet and imdb_test.csv.
func SplitsOf(names []string) (all Splits) {
	for _, name := range names {
		if all.folder(name) {
			continue
		}
		for word := range words(path.Base(name)) {
			if split := splitWords[word]; split != "" {
				all.add(Split{split, name, "", word})
				break
			}
		}
	}
	return all
}

// folder adds the split of the folder that a file is in, if there is one. A year may follow its
// name, as in val2017.
func (s *Splits) folder(name string) bool {
	at := 0
	for element := range strings.SplitSeq(path.Dir(name), "/") {
		at += len(element) + 1
		word := strings.ToLower(strings.TrimRight(element, "0123456789"))
		if split := splitWords[word]; split != "" {
			s.add(Split{split, name, name[:at-1], word})
			return true
		}
	}
	return false
}

// add adds a split if it is new. The first example, by name, is kept.
func (s *Splits) add(of Split) {
	at, found := slices.BinarySearchFunc(*s, of.Name,
		func(a Split, name string) int { return strings.Compare(a.Name, name) })
	switch {
	case !found:
		*s = slices.Insert(*s, at, of)
	case compare(of.Example, (*s)[at].Example) < 0:
		(*s)[at] = of
	}
}

// words yields the words of a name in lower case: its runs of letters.
func words(name string) func(yield func(string) bool) {
	return strings.FieldsFuncSeq(strings.ToLower(name), func(r rune) bool { return r < 'a' || r > 'z' })
}

// String lists the splits, each with an example.
func (s Splits) String() string {
	var list []string
	for _, of := range s {
		list = append(list, of.Name+", such as "+of.Example)
	}
	return strings.Join(list[:len(list)-1], ", ") + ", and " + list[len(list)-1]
}

// Names lists their names.
func (s Splits) Names() string {
	var list []string
	for _, of := range s {
		list = append(list, of.Name)
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}

// SplitsError: a folder contains the splits of a data set, which are data sets of their own.
type SplitsError struct {
	Splits Splits
	// Saved are the folders of those that save_to_disk wrote.
	Saved []string
}

// Error implements error.
func (e *SplitsError) Error() string {
	if len(e.Splits) == 0 {
		return "it contains the splits " + strings.Join(e.Saved, ", ") + " of save_to_disk"
	}
	return "it contains the splits " + e.Splits.String()
}
