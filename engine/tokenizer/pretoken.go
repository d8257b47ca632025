package tokenizer

import (
	"fmt"
	"slices"
	"strings"
)

// A preKind is a pre-tokenizer: the rule that cuts text into the words inside which BPE merges.
type preKind uint8

const (
	preGPT2   preKind = iota // ByteLevel with its own pattern
	preSmolLM                // Digits, one by one, then as GPT-2
	preLlama3                // Split by patternLlama3
	preQwen2                 // Split by patternQwen2
)

// The patterns, as a tokenizer.json writes them. They are recognised by these exact strings; what follows
// implements them by hand because package regexp has no look-ahead, and because its alternatives to \p{L} are
// of another Unicode version.
const (
	// patternGPT2 is built into the ByteLevel pre-tokenizer.
	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// preNames maps GGUF's tokenizer.ggml.pre to what it means.
var preNames = map[string]preKind{
	"gpt2": preGPT2, "gpt-2": preGPT2,
	"smollm":    preSmolLM,
	"llama-bpe": preLlama3, "llama3": preLlama3, "llama-v3": preLlama3,
	"qwen2": preQwen2,
}

// parsePre resolves a name of preNames; field names the place for the error.
func parsePre(field, name string) (preKind, error) {
	if k, ok := preNames[name]; ok {
		return k, nil
	}
	known := make([]string, 0, len(preNames))
	for n := range preNames {
		known = append(known, n)
	}
	slices.Sort(known)
	return 0, fmt.Errorf("tokenizer: %s: unknown pre-tokenizer %q; known: %s", field, name, strings.Join(known, ", "))
}

// split calls emit with each word of s in order; their concatenation is s.
func (k preKind) split(s string, emit func(word string)) {
	p := classes()
	switch k {
	case preGPT2:
		splitGPT2(p, s, emit)
	case preSmolLM:
		splitSmolLM(p, s, emit)
	case preLlama3:
		splitCased(p, s, 3, emit)
	case preQwen2:
		splitCased(p, s, 1, emit)
	default:
		panic("tokenizer: pre-tokenizer without a splitter")
	}
}

// splitSmolLM cuts every digit out first, so that the look-ahead of the second pattern ends at a digit too:
// white space before a digit stays whole.
func splitSmolLM(p *classPages, s string, emit func(string)) {
	start := 0
	for i := 0; i < len(s); {
		c, n := p.at(s[i:])
		if c == number || c == digit {
			splitGPT2(p, s[start:i], emit)
			emit(s[i : i+n])
			start = i + n
		}
		i += n
	}
	splitGPT2(p, s[start:], emit)
}

// splitGPT2 cuts s by patternGPT2.
func splitGPT2(p *classPages, s string, emit func(string)) {
	for len(s) > 0 {
		n := contraction(s, false)
		if n == 0 {
			n = wordGPT2(p, s)
		}
		if n == 0 {
			n = spaces(p, s)
		}
		emit(s[:n])
		s = s[n:]
	}
}

// wordGPT2 matches ` ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+` at the start of s; 0 if it does not match.
func wordGPT2(p *classPages, s string) int {
	lead := 0
	if s[0] == ' ' {
		lead = 1
	}
	if lead == len(s) {
		return 0
	}
	c, _ := p.at(s[lead:])
	switch c {
	case space:
		return 0
	case digit:
		c = other
	}
	return lead + p.run(s[lead:], c)
}

// splitCased cuts s by patternLlama3 (maxDigits 3) or patternQwen2 (maxDigits 1).
func splitCased(p *classPages, s string, maxDigits int, emit func(string)) {
	for len(s) > 0 {
		n := contraction(s, true)
		if n == 0 {
			n = wordCased(p, s, maxDigits)
		}
		if n == 0 {
			n = spaces(p, s)
		}
		emit(s[:n])
		s = s[n:]
	}
}

// wordCased matches, in this order, `[^\r\n\p{L}\p{N}]?\p{L}+`, digits, ` ?[^\s\p{L}\p{N}]+[\r\n]*` and
// `\s*[\r\n]+` at the start of s; 0 if none matches.
func wordCased(p *classPages, s string, maxDigits int) int {
	c, n := p.at(s)
	switch {
	case c == letter:
		return p.run(s, letter)
	case c == number:
		end := n
		for i := 1; i < maxDigits && end < len(s); i++ {
			c, n := p.at(s[end:])
			if c != number {
				break
			}
			end += n
		}
		return end
	case s[0] != '\r' && s[0] != '\n':
		if l := p.run(s[n:], letter); l > 0 {
			return n + l
		}
	}
	lead := 0
	if s[0] == ' ' {
		lead = 1
	}
	if l := p.run(s[lead:], other); l > 0 {
		end := lead + l
		for end < len(s) && (s[end] == '\r' || s[end] == '\n') {
			end++
		}
		return end
	}
	// \s* gives back until [\r\n]+ fits: the match ends after the run's last line break.
	return strings.LastIndexAny(s[:p.run(s, space)], "\r\n") + 1
}

// spaces matches `\s+(?!\S)|\s+`: a run of white space that ends the text is one word; before anything else
// the run leaves its last character to what follows, unless it has no other.
func spaces(p *classPages, s string) int {
	end, last := 0, 0
	for end < len(s) {
		c, n := p.at(s[end:])
		if c != space {
			break
		}
		last = end
		end += n
	}
	if end == len(s) || last == 0 {
		return end
	}
	return last
}

// contraction matches 's 't 're 've 'm 'll 'd at the start of s, in any case if fold; 0 if there is none.
// Under the patterns' case folding the long s, ſ, is an s; no other character outside ASCII folds to one of these.
func contraction(s string, fold bool) int {
	if s[0] != '\'' || len(s) < 2 {
		return 0
	}
	a, b := s[1], byte(0)
	if len(s) > 2 {
		b = s[2]
	}
	if fold {
		if strings.HasPrefix(s[1:], "ſ") {
			return 1 + len("ſ")
		}
		a, b = lower(a), lower(b)
	}
	switch {
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return 2
	case (a == 'r' || a == 'v') && b == 'e' || a == 'l' && b == 'l':
		return 3
	}
	return 0
}

// lower lowers an ASCII letter.
func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
