package server

import (
	"math"

	"draftlab/engine/tokenizer"
	"draftlab/openai"
)

// noLogprob stands for −Inf, which JSON has no number for; the value is the OpenAI API's.
const noLogprob = -9999

func finite(lp float32) float64 {
	if math.IsInf(float64(lp), 0) || lp != lp {
		return noLogprob
	}
	return float64(lp)
}

// tokenText returns a token's text, in which parts of characters are U+FFFD, and its bytes.
func tokenText(tok *tokenizer.Tokenizer, id int32) (string, []byte) {
	if tok == nil {
		return "", nil
	}
	one := []int32{id}
	return tok.Decode(one, false), tok.Bytes(one, false)
}

// completionLogprobs are the log-probabilities of a piece in the shape of /v1/completions.
func completionLogprobs(tok *tokenizer.Tokenizer, tokens []entry) *openai.CompletionLogprobs {
	l := &openai.CompletionLogprobs{Tokens: []string{}, TokenLogprobs: []float64{}, TopLogprobs: []map[string]float64{}, TextOffset: []int{}}
	for _, t := range tokens {
		text, _ := tokenText(tok, t.ID)
		top := make(map[string]float64, len(t.Top)+1)
		for _, c := range t.Top {
			name, _ := tokenText(tok, c.ID)
			if lp, ok := top[name]; !ok || finite(c.Logprob) > lp { // parts of characters share a text
				top[name] = finite(c.Logprob)
			}
		}
		if _, ok := top[text]; !ok { // the API adds the chosen token where it is not among the most probable
			top[text] = finite(t.Logprob)
		}
		l.Tokens = append(l.Tokens, text)
		l.TokenLogprobs = append(l.TokenLogprobs, finite(t.Logprob))
		l.TopLogprobs = append(l.TopLogprobs, top)
		l.TextOffset = append(l.TextOffset, t.chars)
	}
	return l
}

// chatLogprobs are the same in the shape of /v1/chat/completions.
func chatLogprobs(tok *tokenizer.Tokenizer, tokens []entry) *openai.ChatLogprobs {
	l := &openai.ChatLogprobs{Content: []openai.ChatLogprob{}}
	one := func(id int32, lp float32) openai.TokenLogprob {
		text, raw := tokenText(tok, id)
		bytes := make([]int, len(raw))
		for i, b := range raw {
			bytes[i] = int(b)
		}
		return openai.TokenLogprob{Token: text, Logprob: finite(lp), Bytes: bytes}
	}
	for _, t := range tokens {
		c := openai.ChatLogprob{TokenLogprob: one(t.ID, t.Logprob), TopLogprobs: []openai.TokenLogprob{}}
		for _, top := range t.Top {
			c.TopLogprobs = append(c.TopLogprobs, one(top.ID, top.Logprob))
		}
		l.Content = append(l.Content, c)
	}
	return l
}
