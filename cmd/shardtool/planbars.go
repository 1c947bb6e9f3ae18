package main

import (
	"io"
	"sync"
)

// planBars shows a bar for the first epoch of a source that is planned, if planning takes longer
// than a second. Later epochs are planned while the epoch before is read.
func planBars(stderr io.Writer) func(source string) func(epoch, done, of uint64) {
	return func(source string) func(epoch, done, of uint64) {
		return firstPlan(func(of uint64) func(done uint64) {
			bar := newBar(stderr, io.Discard, planningOf(source), samplesOf(int64(of)), false)
			return func(done uint64) {
				if bar.set(int64(done), ""); done == of {
					bar.end()
				}
			}
		})
	}
}

// planningOf describes what is planned; source is "" for a data set that is read alone.
func planningOf(source string) string {
	if source == "" {
		return "planning units"
	}
	return "planning units of " + source
}

// firstPlan shows the progress of the first epoch that is planned. It calls begin with the number
// of samples, and the function that begin returns with how many are done.
func firstPlan(begin func(of uint64) func(done uint64)) func(epoch, done, of uint64) {
	var once sync.Once
	var first uint64
	var show func(done uint64)
	return func(epoch, done, of uint64) {
		once.Do(func() { first, show = epoch, begin(of) })
		if epoch == first {
			show(done)
		}
	}
}
