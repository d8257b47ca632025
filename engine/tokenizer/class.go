package tokenizer

import (
	"sync"
	"unicode/utf8"
)

// A class is what the pre-tokenizers' patterns ask about a character.
type class uint8

const (
	other  class = iota // [^\s\p{L}\p{N}], and every invalid byte
	letter              // \p{L}
	number              // \p{N}
	space               // \s
	digit               // like other to a pattern, but cut out by the Digits pre-tokenizer
)

// runeRange is an inclusive range of code points.
type runeRange struct{ lo, hi rune }

// contains reports whether r lies in the ascending ranges.
func contains(ranges []runeRange, r rune) bool {
	lo, hi := 0, len(ranges)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch {
		case r < ranges[mid].lo:
			hi = mid
		case r > ranges[mid].hi:
			lo = mid + 1
		default:
			return true
		}
	}
	return false
}

// classPages holds the class of every code point: page[index[r>>8]][r&255]. Most pages are alike, so that it
// takes some 40 KB where a flat table would take a megabyte and a binary search ten steps a character.
type classPages struct {
	index [0x110000 >> 8]uint8
	page  [][256]class
}

var classes = sync.OnceValue(func() *classPages {
	flat := make([]class, 0x110000)
	for _, set := range []struct {
		ranges []runeRange
		class  class
	}{{letterRanges, letter}, {numberRanges, number}, {spaceRanges, space}, {extraDigitRanges, digit}} {
		for _, rg := range set.ranges {
			for r := rg.lo; r <= rg.hi; r++ {
				flat[r] = set.class
			}
		}
	}
	p := &classPages{}
	seen := map[[256]class]uint8{}
	for i := range p.index {
		pg := [256]class(flat[i<<8:])
		n, ok := seen[pg]
		if !ok {
			if len(p.page) > 255 {
				panic("tokenizer: more than 256 distinct pages of character classes")
			}
			n = uint8(len(p.page))
			seen[pg] = n
			p.page = append(p.page, pg)
		}
		p.index[i] = n
	}
	return p
})

// at returns the class of the character at the start of s, which must not be empty, and its length in bytes.
// An invalid byte is a character of its own.
func (p *classPages) at(s string) (class, int) {
	if c := s[0]; c < utf8.RuneSelf {
		return p.page[p.index[0]][c], 1
	}
	r, n := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && n == 1 {
		return other, 1
	}
	return p.page[p.index[r>>8]][r&255], n
}

// run returns the length in bytes of the longest prefix of s whose characters are all of class c.
func (p *classPages) run(s string, c class) int {
	i := 0
	for i < len(s) {
		got, n := p.at(s[i:])
		if got != c && (c != other || got != digit) {
			break
		}
		i += n
	}
	return i
}
