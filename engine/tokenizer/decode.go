package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// Bytes returns the bytes that ids stand for, which need not be UTF-8. With skipSpecial it leaves control
// tokens out. An id that the vocabulary lacks is an error.
func (t *Tokenizer) Bytes(ids []int32, skipSpecial bool) ([]byte, error) {
	var out []byte
	for i, id := range ids {
		b, err := t.piece(id, skipSpecial)
		if err != nil {
			return nil, fmt.Errorf("%w (at position %d)", err, i)
		}
		out = append(out, b...)
	}
	return out, nil
}

// Decode returns the text of ids. Bytes that are not UTF-8 become U+FFFD, one for each maximal part of a
// character (The Unicode Standard, section 3.9, as Rust's from_utf8_lossy does). With skipSpecial it leaves
// control tokens out. An id that the vocabulary lacks is an error.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) (string, error) {
	b, err := t.Bytes(ids, skipSpecial)
	if err != nil {
		return "", err
	}
	if utf8.Valid(b) {
		return string(b), nil
	}
	out, rest := appendLossy(nil, b)
	if len(rest) > 0 {
		out = append(out, replacement...)
	}
	return string(out), nil
}

// piece returns the bytes of one token, or "" for one to be skipped.
func (t *Tokenizer) piece(id int32, skipSpecial bool) (string, error) {
	if id < 0 || int(id) >= len(t.tokens) || t.tokens[id] == "" {
		return "", fmt.Errorf("tokenizer: no token has the id %d; the vocabulary has %d", id, len(t.tokens))
	}
	if skipSpecial && t.special[id] {
		return "", nil
	}
	return t.pieces[id], nil
}

// A Stream decodes one token at a time. It holds back the bytes of an unfinished character, three at most, so
// that every string it returns is valid UTF-8 (T3). It is not safe for concurrent use.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	held        [utf8.UTFMax]byte
	n           int // bytes in held
	buf         []byte
}

// NewStream returns a Stream; skipSpecial as in Decode.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream {
	return &Stream{t: t, skipSpecial: skipSpecial}
}

// Push returns the text that id completes, often "" in the midst of a character. An id that the vocabulary lacks
// is an error and leaves the Stream as it was.
func (s *Stream) Push(id int32) (string, error) {
	piece, err := s.t.piece(id, s.skipSpecial)
	if err != nil || piece == "" {
		return "", err
	}
	if s.n == 0 && utf8.ValidString(piece) {
		return piece, nil // the usual case, which allocates nothing
	}
	in := append(append([]byte(nil), s.held[:s.n]...), piece...)
	out, rest := appendLossy(s.buf[:0], in)
	s.buf = out
	s.n = copy(s.held[:], rest)
	return string(out), nil
}

// Flush ends the text: it returns U+FFFD if an unfinished character is held, else "". The Stream is then as new.
func (s *Stream) Flush() string {
	if s.n == 0 {
		return ""
	}
	s.n = 0
	return replacement
}

const replacement = "\uFFFD"

// appendLossy appends b to out with U+FFFD for each maximal invalid part, and returns the bytes at the end of
// b that may yet become a character.
func appendLossy(out, b []byte) (text, rest []byte) {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r != utf8.RuneError || n > 1 {
			out = append(out, b[:n]...)
			b = b[n:]
			continue
		}
		if !utf8.FullRune(b) {
			return out, b
		}
		out = append(out, replacement...)
		b = b[invalidPart(b):]
	}
	return out, nil
}

// invalidPart returns how many bytes of b, which starts with an invalid sequence, one U+FFFD replaces: the
// longest prefix that some character starts with, or one byte.
func invalidPart(b []byte) int {
	n := 1
	for n < len(b) && n < utf8.UTFMax && !utf8.FullRune(b[:n+1]) {
		n++
	}
	return n
}
