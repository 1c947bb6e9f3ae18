// Package page has what the HTML pages of the program share: the style sheet.
package page

import _ "embed" // for the style sheet

// Style is the style sheet. It works in light and dark, and at a width of 375 pixels.
//
//go:embed style.css
var Style string
