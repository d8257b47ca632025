package file

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Retarget returns a campaign file with another kind of target, so that one file compares several engines; all else stays as it was
// written, comments included. The program of a target (target.command) is that of one kind: a file that names it has none but its own.
func Retarget(name string, source []byte, kind string) ([]byte, error) {
	top, r := root(name, source)
	if r.err != nil {
		return nil, r.err
	}
	at := func(n node, key string) (found node) {
		for _, e := range n.entries() {
			if e.key == key {
				found = e.node
			}
		}
		return found
	}
	target := at(top, "target")
	if target.Node == nil {
		top.fail("target.kind is missing: want one of %v", Kinds())
		return nil, r.err
	}
	was := at(target, "kind")
	if was.Node == nil {
		target.fail("kind is missing: want one of %v", Kinds())
		return nil, r.err
	}
	old := was.oneOf(Kinds()...)
	if command := at(target, "command"); command.Node != nil && old != kind {
		command.fail("is the program of kind %s: leave it out where the kind is chosen on the command line, and each kind starts its own", old)
	}
	if r.err != nil || old == kind {
		return source, r.err
	}
	lines := strings.SplitAfter(string(source), "\n")
	place := was.GetToken().Position
	line, column := place.Line-1, place.Column-1 // of characters
	if _, plain := was.Node.(*ast.StringNode); plain && line < len(lines) {
		text := []rune(lines[line])
		for _, quote := range []string{"", `"`, "'"} {
			word := []rune(quote + old + quote)
			if end := column + len(word); end <= len(text) && slices.Equal(text[column:end], word) {
				lines[line] = string(text[:column]) + kind + string(text[end:])
				return []byte(strings.Join(lines, "")), nil
			}
		}
	}
	was.fail("is written in a way that cannot be replaced: write the word alone")
	return nil, r.err
}
