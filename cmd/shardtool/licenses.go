package main

import _ "embed"

// licenses are the texts of every module in the binary; `make licenses` writes the file.
//
//go:embed licenses.txt
var licenses string
