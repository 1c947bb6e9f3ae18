// Package page has what the HTML pages of the program share: the style sheet, and how figures are
// written.
package page

import (
	_ "embed" // for the style sheet
	"html/template"
)

// Style is the style sheet. It works in light and dark, and at a width of 375 pixels.
//
//go:embed style.css
var Style string

// CSS returns the style sheet for a page that has it inline.
func CSS() template.CSS { return template.CSS(Style) }
