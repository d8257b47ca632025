// Package ui writes what commands have to say: [NewProgress] shows transfers as bars on a terminal and
// as plain lines in a pipe, [Table] is a ruled table on a terminal that is wide enough and aligned columns in a pipe, and
// [JSON] is one document for machines.
//
// The package decides on form alone. Whether a writer is a terminal, and how wide, is told to it; it asks neither
// the system nor the environment, and it knows nothing of models or commands.
package ui

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// JSON writes v as one indented JSON document and a newline. Text stays as it is: <, > and & are not escaped.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Bytes returns a number of bytes in decimal units, such as "98.4 MB", as disks and networks count.
func Bytes(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	x, unit := float64(n), ""
	for _, unit = range []string{"kB", "MB", "GB", "TB", "PB", "EB"} {
		x /= 1000
		if x < 999.95 { // what prints as 1000.0 belongs to the next unit
			break
		}
	}
	return fmt.Sprintf("%.1f %s", x, unit)
}

// Clean returns s with every character that could steer a terminal written as an escape, so that text
// from a file or a server can be shown. Line breaks are such characters, too.
func Clean(s string) string {
	if strings.IndexFunc(s, unsafe) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unsafe(r) {
			fmt.Fprintf(&b, "\\u%04x", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// CleanLines is Clean for text of several lines, such as one that shows a piece of a file: line breaks and tabs stay.
func CleanLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		parts := strings.Split(line, "\t")
		for k, part := range parts {
			parts[k] = Clean(part)
		}
		lines[i] = strings.Join(parts, "\t")
	}
	return strings.Join(lines, "\n")
}

// unsafe reports control characters, marks that reorder text, and what stands for broken UTF-8.
func unsafe(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == unicode.ReplacementChar || r == '\u2028' || r == '\u2029'
}
