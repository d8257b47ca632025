package tokenizer

import "unicode/utf8"

// Bytes returns the bytes that ids stand for, which need not be UTF-8. With skipSpecial it leaves control
// tokens out. An id without a token stands for nothing: models compute logits for more ids than their tokenizer
// has tokens (Qwen 2.5: 151,936 and 151,665), and sampling may draw one.
func (t *Tokenizer) Bytes(ids []int32, skipSpecial bool) []byte {
	var out []byte
	for _, id := range ids {
		out = append(out, t.piece(id, skipSpecial)...)
	}
	return out
}

// Decode returns the text of ids. Bytes that are not UTF-8 become U+FFFD, one for each maximal part of a
// character (The Unicode Standard, section 3.9, as Rust's from_utf8_lossy does). With skipSpecial it leaves
// control tokens out. An id without a token has no text.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	b := t.Bytes(ids, skipSpecial)
	if utf8.Valid(b) {
		return string(b)
	}
	out, rest := appendLossy(nil, b)
	if len(rest) > 0 {
		out = append(out, replacement...)
	}
	return string(out)
}

// piece returns the bytes of one token, or "" for one to be skipped and for an id without a token.
func (t *Tokenizer) piece(id int32, skipSpecial bool) string {
	if id < 0 || int(id) >= len(t.pieces) || skipSpecial && t.special[id] {
		return ""
	}
	return t.pieces[id]
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

// Push returns the text that id completes, often "" in the midst of a character.
func (s *Stream) Push(id int32) string {
	piece := s.t.piece(id, s.skipSpecial)
	if piece == "" {
		return ""
	}
	if s.n == 0 && utf8.ValidString(piece) {
		return piece // the usual case, which allocates nothing
	}
	in := append(append([]byte(nil), s.held[:s.n]...), piece...)
	out, rest := appendLossy(s.buf[:0], in)
	s.buf = out
	s.n = copy(s.held[:], rest)
	return string(out)
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
