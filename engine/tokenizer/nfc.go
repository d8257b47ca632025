package tokenizer

import (
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// nfc returns s in Unicode's Normalization Form C as Hugging Face's NFC normaliser computes it. It differs
// from norm.NFC in two ways: it knows the characters of Unicode 9 only (markRanges, decomposedRanges), and it does
// not break runs of more than 30 combining marks with U+034F. Invalid bytes stay as they are.
func nfc(s string) string {
	if isASCII(s) || norm.NFC.IsNormalString(s) {
		return s // what a newer Unicode finds normal an older one does too
	}
	return compose(decompose(s))
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// A mark is a code point with its canonical combining class; an invalid byte b is invalidByte + b.
type mark struct {
	r   rune
	ccc uint8
}

const invalidByte = 0x110000

// Hangul syllables are composed by arithmetic (The Unicode Standard, section 3.12).
const (
	hangulS, hangulL, hangulV, hangulT       = 0xAC00, 0x1100, 0x1161, 0x11A7
	hangulLCount, hangulVCount, hangulTCount = 19, 21, 28
	hangulSCount                             = hangulLCount * hangulVCount * hangulTCount
)

// decompose returns the canonical decomposition of s, marks in canonical order.
func decompose(s string) []mark {
	out := make([]mark, 0, len(s))
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch h := r - hangulS; {
		case r == utf8.RuneError && n == 1:
			out = append(out, mark{r: invalidByte + rune(s[i])})
		case h >= 0 && h < hangulSCount:
			out = append(out, mark{r: hangulL + h/(hangulVCount*hangulTCount)},
				mark{r: hangulV + h%(hangulVCount*hangulTCount)/hangulTCount})
			if t := h % hangulTCount; t != 0 {
				out = append(out, mark{r: hangulT + t})
			}
		case contains(decomposedRanges, r):
			for _, d := range string(norm.NFD.PropertiesString(s[i : i+n]).Decomposition()) {
				out = append(out, mark{d, combiningClass(d)})
			}
		default:
			out = append(out, mark{r, combiningClass(r)})
		}
		i += n
	}
	for i := 0; i < len(out); i++ {
		start := i
		for i < len(out) && out[i].ccc != 0 {
			i++
		}
		slices.SortStableFunc(out[start:i], func(a, b mark) int { return int(a.ccc) - int(b.ccc) })
	}
	return out
}

func combiningClass(r rune) uint8 {
	if r < 0x300 || !contains(markRanges, r) {
		return 0
	}
	return norm.NFD.PropertiesString(string(r)).CCC()
}

// compose joins a starter with each mark that nothing of the same or a higher class separates from it.
func compose(in []mark) string {
	out := in[:0] // never longer than what has been read
	starter := -1
	last := -1 // class of the last mark kept behind the starter, -1 if none
	for _, m := range in {
		if starter >= 0 && last < int(m.ccc) {
			if c, ok := composePair(out[starter].r, m.r); ok {
				out[starter].r = c
				continue
			}
		}
		last = int(m.ccc)
		if m.ccc == 0 {
			starter, last = len(out), -1
		}
		out = append(out, m)
	}
	var b strings.Builder
	for _, m := range out {
		if m.r >= invalidByte {
			b.WriteByte(byte(m.r - invalidByte))
		} else {
			b.WriteRune(m.r)
		}
	}
	return b.String()
}

// composePair returns the primary composite of a and b.
func composePair(a, b rune) (rune, bool) {
	if l, v := a-hangulL, b-hangulV; l >= 0 && l < hangulLCount && v >= 0 && v < hangulVCount {
		return hangulS + (l*hangulVCount+v)*hangulTCount, true
	}
	if s, t := a-hangulS, b-hangulT; s >= 0 && s < hangulSCount && s%hangulTCount == 0 && t > 0 && t < hangulTCount {
		return a + t, true
	}
	c, ok := composites()[[2]rune{a, b}]
	return c, ok
}

// composites maps the two parts of every primary composite to it. A full decomposition less its last
// character, composed again, is the first part.
var composites = sync.OnceValue(func() map[[2]rune]rune {
	pairs := map[[2]rune]rune{}
	for _, rg := range decomposedRanges {
		for c := rg.lo; c <= rg.hi; c++ {
			s := string(c)
			if norm.NFC.String(s) != s {
				continue // excluded from composition
			}
			d := []rune(norm.NFD.String(s))
			head := []rune(norm.NFC.String(string(d[:len(d)-1])))
			if len(head) != 1 {
				panic("tokenizer: a composite's head does not compose")
			}
			pairs[[2]rune{head[0], d[len(d)-1]}] = c
		}
	}
	return pairs
})
