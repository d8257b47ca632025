package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// EncodeOptions says what Encode does beside cutting the text into tokens. The zero value treats the text as
// nothing but text.
type EncodeOptions struct {
	// ParseSpecial turns control tokens that are spelt out in the text, such as "<|im_end|>", into their ids.
	// Set it for a raw prompt, whose author writes the turns; leave it unset for text from outside that must not be able to
	// end a turn ([Tokenizer.EncodeChat] sees to that). Added tokens that are not control tokens are matched in any case.
	ParseSpecial bool
	// AddSpecial puts the beginning-of-text and end-of-text tokens around the result, where the vocabulary's
	// settings ask for them. Chat templates write their own.
	AddSpecial bool
}

// Encode returns the ids of text (T1, T2, T4). The only error is invalid UTF-8 that holds a byte for which
// the vocabulary has no token. It is safe for concurrent use.
func (t *Tokenizer) Encode(text string, o EncodeOptions) ([]int32, error) {
	return t.encode(text, o, nil)
}

// encode is Encode of a text in which characters stand for plain text that must not be taken for an added token; reveal puts it back, nil for none.
func (t *Tokenizer) encode(text string, o EncodeOptions, reveal *strings.Replacer) ([]int32, error) {
	out := make([]int32, 0, len(text)/3+2)
	if o.AddSpecial {
		out = append(out, t.prefix...)
	}
	e := encoder{t: t, out: out, strict: !utf8.ValidString(text), reveal: reveal}
	addID := func(id int32) { e.out = append(e.out, id) }
	t.raw.split(text, o.ParseSpecial, func(s string) {
		if t.nfc {
			s = nfc(s)
		}
		t.normalized.split(s, o.ParseSpecial, e.plain, addID)
	}, addID)
	if e.err != nil {
		return nil, e.err
	}
	if o.AddSpecial {
		e.out = append(e.out, t.suffix...)
	}
	return e.out, nil
}

// encoder is the state of one Encode.
type encoder struct {
	t      *Tokenizer
	out    []int32
	strict bool // a byte without a token is an error
	reveal *strings.Replacer
	err    error
}

// plain encodes text that holds no added token.
func (e *encoder) plain(s string) {
	if e.reveal != nil {
		s = e.reveal.Replace(s)
	}
	if e.t.spacePrefix && s[0] != ' ' {
		s = " " + s
	}
	e.t.pre.split(s, e.word)
}

func (e *encoder) word(w string) {
	if e.err != nil {
		return
	}
	out, bad := e.t.bpe.encode(e.out, w, e.strict && !utf8.ValidString(w))
	e.out = out
	if bad >= 0 {
		e.err = fmt.Errorf("tokenizer: the text is not valid UTF-8 and the vocabulary has no token for its byte 0x%02x; convert the text to UTF-8", w[bad])
	}
}
