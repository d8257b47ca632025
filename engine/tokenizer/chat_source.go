package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxTemplateLen bounds a template in bytes, and with it how deep the library's parser and evaluator recurse.
// Published templates have up to 40 KB.
const maxTemplateLen = 128 << 10

// prepareTemplate rewrites a Jinja template for the library, which is exact in expressions and not in what
// surrounds them. In the result
//
//   - white space around tags has been dealt with by Jinja2's rules under trim_blocks and lstrip_blocks, the
//     settings of Hugging Face (the library trims beyond a neighbouring {{ … }}); all text stands in {{ "…" }}, where
//     the library leaves it alone;
//   - string literals know all of Python's escapes;
//   - output, and the filters in replacedFilters, go through installFilters';
//   - loops and macros call the guard;
//   - every line keeps its number, so that errors name the right one.
func prepareTemplate(source string) (string, error) {
	if len(source) > maxTemplateLen {
		return "", fmt.Errorf("the template is %d bytes long; allowed are %d", len(source), maxTemplateLen)
	}
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	p := preparer{rest: strings.TrimSuffix(source, "\n"), lineStart: true}
	for {
		start := nextTag(p.rest)
		if start < 0 {
			p.text(p.rest)
			return p.out.String(), nil
		}
		if err := p.tag(start); err != nil {
			return "", err
		}
	}
}

// nextTag returns where the next {{, {% or {# lies in s, -1 if there is none.
func nextTag(s string) int {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '{' || s[i+1] == '%' || s[i+1] == '#') {
			return i
		}
	}
	return -1
}

// preparer is the state of prepareTemplate.
type preparer struct {
	rest      string // what has not been read yet
	out       strings.Builder
	lineStart bool // what was read last ended with a line break
	line      int  // line breaks read and not yet written
	read      int  // line breaks read in all, for errors
}

// tag consumes the text up to start and the tag there.
func (p *preparer) tag(start int) error {
	text, tag := p.rest[:start], p.rest[start:]
	end, err := tagEnd(tag)
	if err != nil {
		return fmt.Errorf("%w at line %d", err, p.read+strings.Count(text, "\n")+1)
	}
	p.rest = tag[end:]
	kind, body := tag[1], tag[2:end-2]
	if kind == '%' && statement(body) == "raw" {
		return p.raw(text, tag, end)
	}
	p.text(p.trimBefore(text, kind, flag(body, 0)))
	body, flags := cutFlags(body)
	switch kind {
	case '{':
		p.emit("{{", "("+expression(body)+")|"+outName, "}}")
	case '%':
		p.statement(body)
	default:
		p.countLines(body)
	}
	p.trimBehind(kind, flags)
	return nil
}

// raw consumes {% raw %} … {% endraw %}, whose inside is text.
func (p *preparer) raw(text, tag string, end int) error {
	body := tag[2 : end-2]
	p.text(p.trimBefore(text, '%', flag(body, 0)))
	p.countLines(body)
	p.lineStart = false
	if flag(body, len(body)-1) == '-' {
		p.eatSpace()
	}
	for from := 0; ; {
		i := strings.Index(p.rest[from:], "{%")
		if i < 0 {
			return fmt.Errorf("raw block without an end at line %d", p.read+1)
		}
		from += i
		end, err := tagEnd(p.rest[from:])
		if err == nil && statement(p.rest[from+2:from+end-2]) == "endraw" {
			inside, closing := p.rest[:from], p.rest[from+2:from+end-2]
			p.rest = p.rest[from+end:]
			p.text(p.trimBefore(inside, '%', flag(closing, 0)))
			p.countLines(closing)
			p.trimBehind('%', flag(closing, len(closing)-1))
			return nil
		}
		from += 2
	}
}

// statement writes a {% … %} tag and the guard's calls that belong to it: {% set %} tags, which render nothing.
func (p *preparer) statement(body string) {
	const set = "{% set " + stepName + "_ = "
	word := statement(body)
	if word == "endmacro" {
		p.out.WriteString(set + leaveName + "() %}")
	}
	p.emit("{%", expression(body), "%}")
	switch word {
	case "for", "call":
		p.out.WriteString(set + stepName + "() %}")
	case "macro":
		p.out.WriteString(set + enterName + "() %}")
	}
}

// trimBefore returns text as a tag of the given kind and flag behind it leaves it.
func (p *preparer) trimBefore(text string, kind, flag byte) string {
	switch {
	case flag == '-':
		trimmed := strings.TrimRightFunc(text, isSpace)
		p.countLines(text[len(trimmed):])
		return trimmed
	case flag == '+' || kind == '{':
		return text
	}
	at := strings.LastIndexByte(text, '\n') + 1
	if (at > 0 || p.lineStart) && strings.TrimLeftFunc(text[at:], isSpace) == "" {
		return text[:at]
	}
	return text
}

// trimBehind consumes what a tag of the given kind and flag swallows behind it.
func (p *preparer) trimBehind(kind, flag byte) {
	p.lineStart = false
	switch {
	case flag == '-':
		p.eatSpace()
	case flag != '+' && kind != '{' && strings.HasPrefix(p.rest, "\n"):
		p.countLines("\n")
		p.rest = p.rest[1:]
		p.lineStart = true
	}
}

// eatSpace consumes white space.
func (p *preparer) eatSpace() {
	rest := strings.TrimLeftFunc(p.rest, isSpace)
	eaten := p.rest[:len(p.rest)-len(rest)]
	p.countLines(eaten)
	p.rest, p.lineStart = rest, strings.HasSuffix(eaten, "\n")
}

// text writes text as an expression.
func (p *preparer) text(s string) {
	if s != "" {
		p.emit("{{", quote(s), "}}")
	}
}

// emit writes a tag, behind the line breaks that were read and not written.
func (p *preparer) emit(open, body, end string) {
	p.out.WriteString(open + strings.Repeat("\n", p.line) + " " + body + " " + end)
	p.line = 0
	p.read += strings.Count(body, "\n")
}

func (p *preparer) countLines(s string) {
	n := strings.Count(s, "\n")
	p.line += n
	p.read += n
}

// tagEnd returns the length of the tag that s starts with. A closer inside a string literal does not count.
func tagEnd(s string) (int, error) {
	closer := map[byte]string{'{': "}}", '%': "%}", '#': "#}"}[s[1]]
	for j := 2; j < len(s); j++ {
		if c := s[j]; (c == '\'' || c == '"') && s[1] != '#' {
			n := literalEnd(s[j:])
			if n < 0 {
				return 0, fmt.Errorf("string without an end in a tag")
			}
			j += n - 1
			continue
		}
		if strings.HasPrefix(s[j:], closer) {
			return j + 2, nil
		}
	}
	return 0, fmt.Errorf("tag %s without an end", s[:2])
}

// literalEnd returns the length of the string literal that s starts with, -1 if it does not end.
func literalEnd(s string) int {
	for j := 1; j < len(s); j++ {
		switch s[j] {
		case '\\':
			j++
		case s[0]:
			return j + 1
		}
	}
	return -1
}

// flag returns the white-space control at place i of a tag's body, 0 if there is none.
func flag(body string, i int) byte {
	if i >= 0 && i < len(body) && (body[i] == '-' || body[i] == '+') {
		return body[i]
	}
	return 0
}

// cutFlags removes the white-space controls of a tag's body and returns the last.
func cutFlags(body string) (rest string, last byte) {
	if flag(body, 0) != 0 {
		body = body[1:]
	}
	if last = flag(body, len(body)-1); last != 0 {
		body = body[:len(body)-1]
	}
	return body, last
}

// statement returns the keyword of a statement tag's body.
func statement(body string) string {
	body, _ = cutFlags(body)
	body = strings.TrimLeft(body, " \t\n")
	return body[:identifierEnd(body)]
}

// expression rewrites the string literals of a tag's body, and the names of filters that are replaced.
func expression(body string) string {
	var b strings.Builder
	for i := 0; i < len(body); {
		switch c := body[i]; {
		case c == '\'' || c == '"':
			n := literalEnd(body[i:])
			b.WriteString(quote(unescape(body[i+1 : i+n-1])))
			i += n
		case c == '|':
			name := strings.TrimLeft(body[i+1:], " \t\n")
			n := identifierEnd(name)
			b.WriteString(body[i : len(body)-len(name)])
			i = len(body) - len(name)
			if ours, ok := replacedFilters[name[:n]]; ok {
				b.WriteString(ours)
				i += n
			}
		default:
			b.WriteByte(c)
			i++
		}
	}
	return b.String()
}

// identifierEnd returns the length of the identifier that s starts with.
func identifierEnd(s string) int {
	end := 0
	for end < len(s) && (s[end] == '_' || lower(s[end]) >= 'a' && lower(s[end]) <= 'z' || s[end] >= '0' && s[end] <= '9') {
		end++
	}
	return end
}

// quote writes s as a literal that the library reads back as s. Line breaks stay, so that lines keep their numbers.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// unescape resolves Python's escapes. An unknown one stays as it is, as in Python.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if at := strings.IndexByte("ntrabfv\\'\"", s[i]); at >= 0 {
			b.WriteByte("\n\t\r\a\b\f\v\\'\""[at])
			continue
		}
		if digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[i]]; digits > 0 && i+digits < len(s) {
			if r, ok := parseHex(s[i+1 : i+1+digits]); ok {
				b.WriteRune(r)
				i += digits
				continue
			}
		}
		b.WriteByte('\\')
		b.WriteByte(s[i])
	}
	return b.String()
}

// parseHex reads a code point.
func parseHex(s string) (rune, bool) {
	var r uint32
	for i := range len(s) {
		d := strings.IndexByte("0123456789abcdef", lower(s[i]))
		if d < 0 {
			return 0, false
		}
		r = r<<4 | uint32(d)
	}
	return rune(r), r <= utf8.MaxRune && utf8.ValidRune(rune(r))
}
