// Package browser has the tests of shardtool view in headless Chromium; make test-view runs them.
package browser
