package server

import (
	"strconv"
	"unicode/utf8"

	"draftlab/engine"
	"draftlab/engine/tokenizer"
)

// entry is a token of an output and where its text begins.
type entry struct {
	engine.Token
	offset int // in bytes
	chars  int // the same in characters
}

// output turns one output's tokens into text, token by token, so that nothing depends on how they are bundled (S3).
type output struct {
	tok    *tokenizer.Tokenizer // nil: the text is the ids in decimal
	stream *tokenizer.Stream
	stop   stopper

	tokens      int // pushed
	size, chars int // of the text that the tokens make, before stop strings
	sent        int // bytes that were returned
	pending     []entry
}

// newOutput returns an output without tokens.
func newOutput(tok *tokenizer.Tokenizer, stops []string, skipSpecial bool) *output {
	o := &output{tok: tok, stop: stopper{stops: stops}}
	if tok != nil {
		o.stream = tok.NewStream(skipSpecial)
	}
	return o
}

// push adds a token. It returns the text that can be sent now, and the stop string that ended the text, if one did.
func (o *output) push(t engine.Token) (text, matched string) {
	piece := strconv.Itoa(int(t.ID))
	if o.stream != nil {
		piece = o.stream.Push(t.ID)
	} else if o.tokens > 0 {
		piece = " " + piece
	}
	o.tokens++
	o.pending = append(o.pending, entry{t, o.size, o.chars})
	o.size += len(piece)
	o.chars += utf8.RuneCountInString(piece)
	text, matched = o.stop.push(piece)
	o.sent += len(text)
	return text, matched
}

// finish returns what was held back, at the end of an output that no stop string ended.
func (o *output) finish() string {
	text := ""
	if o.stream != nil {
		text = o.stream.Flush()
	}
	text, matched := o.stop.push(text)
	if matched == "" {
		text += o.stop.flush()
	}
	o.sent += len(text)
	return text
}

// release returns the tokens that go with the text returned so far: those that begin in it, or all of them at the end
// of an output that no stop string cut.
func (o *output) release(all bool) []entry {
	n := len(o.pending)
	if !all {
		for n = 0; n < len(o.pending) && o.pending[n].offset < o.sent; n++ {
		}
	}
	out := o.pending[:n:n]
	o.pending = o.pending[n:]
	return out
}
