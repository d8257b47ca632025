package file

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxBytes bounds a campaign file; a long one has a few hundred arms.
const maxBytes = 1 << 20

// node is a value of the file with its place. Its methods read it as what the key wants; the first that cannot notes an error and
// later ones do not count, so that reading needs no checks in between.
type node struct {
	ast.Node
	path string // such as factors.steps
	r    *reader
}

// reader collects the first error.
type reader struct {
	name string
	err  error
}

// fail notes an error with the line of the file, which it shows.
func (n node) fail(format string, a ...any) {
	if n.r.err != nil {
		return
	}
	text := fmt.Sprintf(format, a...)
	if n.path != "" {
		text = n.path + ": " + text
	}
	if n.Node == nil {
		n.r.err = fmt.Errorf("%s: %s", n.r.name, text)
		return
	}
	token := n.GetToken()
	shown := yaml.FormatError(&yaml.SyntaxError{Message: text, Token: token}, false, true)
	_, excerpt, _ := strings.Cut(shown, "\n")
	n.r.err = fmt.Errorf("%s:%d: %s\n%s", n.r.name, token.Position.Line, text, strings.TrimRight(excerpt, "\n"))
}

// root parses a document of one mapping.
func root(name string, source []byte) (node, *reader) {
	r := &reader{name: name}
	top := node{r: r}
	if len(source) > maxBytes {
		top.fail("%d bytes: a campaign file has at most %d", len(source), maxBytes)
		return top, r
	}
	file, err := parser.ParseBytes(source, 0)
	if err != nil {
		r.err = fmt.Errorf("%s: %s", name, strings.TrimSpace(yaml.FormatError(err, false, true)))
		return top, r
	}
	docs := slices.DeleteFunc(file.Docs, func(d *ast.DocumentNode) bool { return d.Body == nil })
	switch {
	case len(docs) == 0:
		top.fail("is empty: it needs at least a target, a model and factors or arms")
		return top, r
	case len(docs) > 1:
		top.Node = docs[1].Body
		top.fail("a campaign file is one document, and here a second one begins")
		return top, r
	}
	top.Node = docs[0].Body
	if odd := find(top.Node); odd != nil {
		top.Node = odd
		top.fail("tags, anchors, aliases and merge keys have no meaning in a campaign file")
	}
	return top, r
}

// find returns the first node of a kind that no campaign file has, nil if there is none.
func find(n ast.Node) ast.Node {
	var f finder
	ast.Walk(&f, n)
	return f.found
}

type finder struct{ found ast.Node }

// Visit is the walk's callback.
func (f *finder) Visit(n ast.Node) ast.Visitor {
	switch n.(type) {
	case *ast.TagNode, *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		if f.found == nil {
			f.found = n
		}
		return nil
	}
	return f
}

// entry is a key of a mapping with its value.
type entry struct {
	key string
	at  node // the key itself
	node
}

// entries are a mapping's in the order of the file.
func (n node) entries() (out []entry) {
	var values []*ast.MappingValueNode
	switch m := n.Node.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		n.fail("want keys with values, not %s", n.kind())
		return nil
	}
	seen := map[string]bool{}
	for _, v := range values {
		key := v.Key.GetToken().Value
		path := key
		if n.path != "" {
			path = n.path + "." + key
		}
		e := entry{key, node{v.Key, path, n.r}, node{v.Value, path, n.r}}
		if seen[key] {
			e.at.fail("stands here for the second time")
		}
		seen[key] = true
		out = append(out, e)
	}
	return out
}

// each calls what a mapping's keys ask for; an unknown one is an error that names those that there are.
func (n node) each(known map[string]func(node)) {
	for _, e := range n.entries() {
		if read := known[e.key]; read != nil {
			read(e.node)
			continue
		}
		var names []string
		for k := range known {
			names = append(names, k)
		}
		slices.Sort(names)
		e.at.fail("no such key: there are %s", strings.Join(names, ", "))
	}
}

// list are the elements of a list.
func (n node) list() (out []node) {
	s, ok := n.Node.(*ast.SequenceNode)
	if !ok {
		n.fail("want a list, such as [a, b], not %s", n.kind())
		return nil
	}
	for i, v := range s.Values {
		out = append(out, node{v, fmt.Sprintf("%s[%d]", n.path, i), n.r})
	}
	if len(out) == 0 {
		n.fail("is an empty list")
	}
	return out
}

// kind is what a node is, for errors.
func (n node) kind() string {
	switch n.Node.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "keys with values"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "the text " + strconv.Quote(n.source())
	}
	return strconv.Quote(n.source())
}

// source is a scalar as the file has it.
func (n node) source() string {
	switch v := n.Node.(type) {
	case *ast.LiteralNode:
		return v.Value.Value
	case *ast.StringNode:
		return v.Value
	}
	return n.GetToken().Value
}

// null reports an explicit null.
func (n node) null() bool {
	_, ok := n.Node.(*ast.NullNode)
	return ok
}

// text reads a string that is not empty.
func (n node) text() string {
	switch n.Node.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		if s := n.source(); strings.TrimSpace(s) != "" && !strings.ContainsRune(s, 0) {
			return s
		}
		n.fail("is blank, or has a zero byte")
	default:
		n.fail("want a text, not %s: put it in quotes if it is meant as one", n.kind())
	}
	return ""
}

// oneOf reads one of some words.
func (n node) oneOf(words ...string) string {
	s, ok := n.Node.(*ast.StringNode)
	if !ok || !slices.Contains(words, s.Value) {
		n.fail("want one of %s, not %s", strings.Join(words, ", "), n.kind())
		return ""
	}
	return s.Value
}

// scalar reads a value as a command line or an environment has it: texts as they are, numbers as they are written.
func (n node) scalar() string {
	switch n.Node.(type) {
	case *ast.StringNode, *ast.LiteralNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		if s := n.source(); !strings.ContainsRune(s, 0) {
			return s
		}
	}
	n.fail("want a text or a number, not %s", n.kind())
	return ""
}

// flag reads true or false.
func (n node) flag() bool {
	b, ok := n.Node.(*ast.BoolNode)
	if !ok {
		n.fail("want true or false, not %s", n.kind())
		return false
	}
	return b.Value
}

// whole reads a whole number from least to most.
func (n node) whole(least, most int) int {
	v, err := strconv.ParseInt(n.GetToken().Value, 10, 64)
	if _, ok := n.Node.(*ast.IntegerNode); !ok || err != nil || v < int64(least) || v > int64(most) {
		n.fail("want a whole number from %d to %d, not %s", least, most, n.kind())
		return least
	}
	return int(v)
}

// positive reads a number above 0.
func (n node) positive() float64 {
	v, err := strconv.ParseFloat(n.GetToken().Value, 64)
	switch n.Node.(type) {
	case *ast.FloatNode, *ast.IntegerNode:
	default:
		err = errors.New("not a number")
	}
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		n.fail("want a number above 0, not %s", n.kind())
		return 1
	}
	return v
}

// duration reads a time such as 90s or 2h30m.
func (n node) duration() time.Duration {
	s, ok := n.Node.(*ast.StringNode)
	if ok {
		if d, err := time.ParseDuration(s.Value); err == nil && d > 0 {
			return d
		}
	}
	n.fail("want a time with its unit, such as 90s, 30m or 2h30m, not %s", n.kind())
	return time.Second
}

// texts reads a mapping of names, which name checks, to values of a command line or an environment.
func (n node) texts(name func(entry) string) map[string]string {
	out := map[string]string{}
	for _, e := range n.entries() {
		out[name(e)] = e.scalar()
	}
	return out
}

// flagName is a key that names a flag.
func (e entry) flagName() string {
	if e.key == "" || strings.HasPrefix(e.key, "-") || strings.ContainsAny(e.key, "= \t\r\n\x00") {
		e.at.fail("is no name: write it without dashes in front, blanks and =")
	}
	return e.key
}

// word is what a shell takes for the name of a variable.
var word = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// variableName is a key that names an environment variable.
func (e entry) variableName() string {
	if !word.MatchString(e.key) {
		e.at.fail("is no name of a variable: it has letters, digits and _, no digit first")
	}
	return e.key
}

// any reads a value of a JSON document.
func (n node) any() any {
	switch v := n.Node.(type) {
	case *ast.NullNode:
		return nil
	case *ast.BoolNode:
		return v.Value
	case *ast.IntegerNode:
		if i, err := strconv.ParseInt(v.GetToken().Value, 10, 64); err == nil {
			return i
		}
	case *ast.FloatNode:
		if !math.IsInf(v.Value, 0) && !math.IsNaN(v.Value) {
			return v.Value
		}
	case *ast.StringNode, *ast.LiteralNode:
		return n.source()
	case *ast.SequenceNode:
		out := []any{}
		for i, x := range v.Values {
			out = append(out, node{x, fmt.Sprintf("%s[%d]", n.path, i), n.r}.any())
		}
		return out
	case *ast.MappingNode, *ast.MappingValueNode:
		out := map[string]any{}
		for _, e := range n.entries() {
			out[e.key] = e.any()
		}
		return out
	}
	n.fail("want a value of JSON, not %s", n.kind())
	return nil
}
