// Package shell writes words, paths and variables as a POSIX shell reads them, for commands that are shown to people or sent elsewhere:
// [Quote] one word, [Path] one that is an argument. It is the only place that does, and runs nothing.
package shell

import (
	"maps"
	"slices"
	"strings"
)

// Quote returns a word as a POSIX shell takes it for one word, in quotation marks only if it needs them. So does zsh, which replaces =NAME,
// at the beginning of a word and behind a colon in an assignment, by the path of the program NAME.
func Quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,@%+", r)
	}
	program := strings.HasPrefix(s, "=") || strings.Contains(s, ":=")
	if s != "" && !program && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Path returns the path of a file that is an argument of a command, quoted: one that begins with a dash is no flag then.
func Path(path string) string {
	if strings.HasPrefix(path, "-") {
		path = "./" + path
	}
	return Quote(path)
}

// QuoteAll quotes words and joins them with blanks.
func QuoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = Quote(w)
	}
	return strings.Join(quoted, " ")
}

// Assignments are variables as a shell takes them before a command, in the order of their names.
func Assignments(env map[string]string) (words []string) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		words = append(words, name+"="+Quote(env[name]))
	}
	return words
}
