package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// The parts of a tokenizer.json that decide how it tokenises. Components (normaliser, pre-tokenizer, decoder)
// are decoded strictly, each by its type, so that a setting unknown here is refused and not skipped (T5).
type hfTokenizer struct {
	AddedTokens   []hfAdded       `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
}

type hfAdded struct {
	ID         int64  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

type hfModel struct {
	Type         string            `json:"type"`
	Dropout      *float64          `json:"dropout"`
	UnkToken     *string           `json:"unk_token"`
	Prefix       *string           `json:"continuing_subword_prefix"`
	Suffix       *string           `json:"end_of_word_suffix"`
	FuseUnk      bool              `json:"fuse_unk"`
	ByteFallback bool              `json:"byte_fallback"`
	IgnoreMerges bool              `json:"ignore_merges"`
	Vocab        map[string]int64  `json:"vocab"`
	Merges       []json.RawMessage `json:"merges"`
}

// hfConfig is what tokenizer_config.json adds. Its special tokens are a string, an object with content, or null.
type hfConfig struct {
	BOS          json.RawMessage `json:"bos_token"`
	EOS          json.RawMessage `json:"eos_token"`
	PAD          json.RawMessage `json:"pad_token"`
	UNK          json.RawMessage `json:"unk_token"`
	ChatTemplate json.RawMessage `json:"chat_template"`
}

// FromJSON builds a Tokenizer from the files of a Hugging Face checkpoint: tokenizer.json, and, where they
// exist, tokenizer_config.json (nil if not), which names the special tokens and may hold a chat template, and
// the text of chat_template.jinja ("" if not), which takes precedence over that. What AddSpecial adds
// follows from tokenizer.json's post_processor alone, as it does in Hugging Face tokenizers. Errors name the field.
func FromJSON(tokenizerJSON, configJSON []byte, chatTemplate string) (*Tokenizer, error) {
	var f hfTokenizer
	if err := json.Unmarshal(tokenizerJSON, &f); err != nil {
		return nil, fmt.Errorf("tokenizer: tokenizer.json: %w", err)
	}
	var h hfConfig
	if configJSON != nil {
		if err := json.Unmarshal(configJSON, &h); err != nil {
			return nil, fmt.Errorf("tokenizer: tokenizer_config.json: %w", err)
		}
	}
	c := config{fields: fieldNames{"tokenizer.json: model.vocab", "tokenizer.json: model.merges", "chat_template"}}
	for _, step := range []func() error{
		func() error { return c.hfModel(f.Model) },
		func() error { return c.hfAdded(f.AddedTokens) },
		func() error { return c.hfNormalizer(f.Normalizer) },
		func() error { return c.hfPreTokenizer(f.PreTokenizer) },
		func() error { return hfDecoder(f.Decoder) },
		func() error { return c.hfPostProcessor(f.PostProcessor) },
		func() error { return c.hfConfig(h, chatTemplate) },
	} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("tokenizer: %w", err)
		}
	}
	return build(c)
}

// strict decodes raw into v and refuses fields that v lacks.
func strict(field string, raw json.RawMessage, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("tokenizer.json: %s: %w", field, err)
	}
	return nil
}

// isNull reports whether raw is absent or null.
func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || string(raw) == "null"
}

// hfType returns the type field of a component.
func hfType(field string, raw json.RawMessage) (string, error) {
	var t struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return "", fmt.Errorf("tokenizer.json: %s: %w", field, err)
	}
	return t.Type, nil
}

// hfModel reads the vocabulary and the merges.
func (c *config) hfModel(raw json.RawMessage) error {
	if isNull(raw) {
		return fmt.Errorf("tokenizer.json: model is missing")
	}
	kind, err := hfType("model", raw)
	if err != nil {
		return err
	}
	if kind != "BPE" && kind != "" { // files from before 2020 leave the type of a BPE model out
		return fmt.Errorf("tokenizer.json: model.type is %q; only BPE is known", kind)
	}
	var m hfModel
	if err := strict("model", raw, &m); err != nil {
		return err
	}
	switch {
	case m.Dropout != nil && *m.Dropout != 0:
		return fmt.Errorf("tokenizer.json: model.dropout is %g; random merges are for training only", *m.Dropout)
	case m.Prefix != nil && *m.Prefix != "":
		return fmt.Errorf("tokenizer.json: model.continuing_subword_prefix %q: not known", *m.Prefix)
	case m.Suffix != nil && *m.Suffix != "":
		return fmt.Errorf("tokenizer.json: model.end_of_word_suffix %q: not known", *m.Suffix)
	case m.ByteFallback:
		return fmt.Errorf("tokenizer.json: model.byte_fallback: not known; byte-level vocabularies do without")
	}
	if err := c.hfVocab(m.Vocab); err != nil {
		return err
	}
	if m.UnkToken != nil {
		for _, r := range byteSymbol {
			if _, ok := m.Vocab[string(r)]; !ok {
				return fmt.Errorf("tokenizer.json: model.unk_token %q with a vocabulary that lacks the byte symbol %q: not known", *m.UnkToken, r)
			}
		}
	}
	c.ignoreMerges = m.IgnoreMerges
	c.merges, err = hfMerges(m.Merges)
	return err
}

// hfVocab lays the vocabulary out by id.
func (c *config) hfVocab(vocab map[string]int64) error {
	limit := idLimit(len(vocab))
	for token, id := range vocab {
		if id < 0 || id >= limit {
			return fmt.Errorf("tokenizer.json: model.vocab: %q has the id %d; with %d tokens, allowed are 0 to %d", token, id, len(vocab), limit-1)
		}
		if token == "" {
			return fmt.Errorf("tokenizer.json: model.vocab: the token with the id %d is empty", id)
		}
		c.grow(id)
		if c.tokens[id] != "" {
			return fmt.Errorf("tokenizer.json: model.vocab: %q and %q both have the id %d", c.tokens[id], token, id)
		}
		c.tokens[id], c.model[id] = token, true
	}
	return nil
}

// idLimit bounds the ids of n tokens: published vocabularies have few holes, and a hostile one must not ask for a
// large table with a small file.
func idLimit(n int) int64 { return int64(min(2*n+4096, maxVocab)) }

// grow makes room for an id.
func (c *config) grow(id int64) {
	if n := int(id) + 1 - len(c.tokens); n > 0 {
		c.tokens = append(c.tokens, make([]string, n)...)
		c.model = append(c.model, make([]bool, n)...)
	}
}

// hfMerges reads merges in both of their notations: "left right" and ["left", "right"].
func hfMerges(raw []json.RawMessage) ([][2]string, error) {
	out := make([][2]string, len(raw))
	for i, r := range raw {
		if len(r) > 0 && r[0] == '"' {
			var line string
			if err := json.Unmarshal(r, &line); err != nil {
				return nil, fmt.Errorf("tokenizer.json: model.merges[%d]: %w", i, err)
			}
			pair, err := cutMerge(line)
			if err != nil {
				return nil, fmt.Errorf("tokenizer.json: model.merges[%d]: %w", i, err)
			}
			out[i] = pair
			continue
		}
		var pair []string
		if err := json.Unmarshal(r, &pair); err != nil || len(pair) != 2 {
			return nil, fmt.Errorf("tokenizer.json: model.merges[%d]: %s is neither \"left right\" nor a pair", i, r)
		}
		out[i] = [2]string(pair)
	}
	return out, nil
}

// hfAdded reads the added tokens, which may extend the vocabulary.
func (c *config) hfAdded(tokens []hfAdded) error {
	byText := make(map[string]int64, len(c.tokens))
	for id, token := range c.tokens {
		if token != "" {
			byText[token] = int64(id)
		}
	}
	limit := idLimit(len(c.tokens) + len(tokens))
	for i, a := range tokens {
		place := fmt.Sprintf("tokenizer.json: added_tokens[%d]: %q", i, a.Content)
		if a.Content == "" || a.ID < 0 || a.ID >= limit {
			return fmt.Errorf("%s has the id %d; a text and an id from 0 to %d are needed", place, a.ID, limit-1)
		}
		if a.SingleWord {
			return fmt.Errorf("%s: single_word: not known", place)
		}
		if id, ok := byText[a.Content]; ok && id != a.ID {
			return fmt.Errorf("%s has the id %d here and %d elsewhere", place, a.ID, id)
		}
		c.grow(a.ID)
		if old := c.tokens[a.ID]; old != "" && old != a.Content {
			return fmt.Errorf("%s: the id %d already belongs to %q", place, a.ID, old)
		}
		c.tokens[a.ID] = a.Content
		byText[a.Content] = a.ID
		c.added = append(c.added, added{
			id: int32(a.ID), text: a.Content, special: a.Special,
			lstrip: a.LStrip, rstrip: a.RStrip, normalized: a.Normalized,
		})
	}
	return nil
}

// hfConfig reads the special tokens and the template.
func (c *config) hfConfig(h hfConfig, template string) error {
	c.named = map[string]int32{}
	ids := make(map[string]int32, len(c.tokens))
	for id, token := range c.tokens {
		ids[token] = int32(id)
	}
	for _, n := range []struct {
		name string
		raw  json.RawMessage
	}{{"bos_token", h.BOS}, {"eos_token", h.EOS}, {"pad_token", h.PAD}, {"unk_token", h.UNK}} {
		if isNull(n.raw) {
			continue
		}
		var token string
		if json.Unmarshal(n.raw, &token) != nil {
			var object struct {
				Content string `json:"content"`
			}
			if err := json.Unmarshal(n.raw, &object); err != nil {
				return fmt.Errorf("tokenizer_config.json: %s: %w", n.name, err)
			}
			token = object.Content
		}
		id, ok := ids[token]
		if !ok || token == "" {
			return fmt.Errorf("tokenizer_config.json: %s: the vocabulary has no token %q", n.name, token)
		}
		c.named[n.name] = id
	}
	c.template = template
	if template != "" || isNull(h.ChatTemplate) {
		return nil
	}
	var err error
	c.template, err = hfTemplate(h.ChatTemplate)
	return err
}

// hfTemplate reads chat_template: a text, or a list of named ones of which "default" is taken.
func hfTemplate(raw json.RawMessage) (string, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var list []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return "", fmt.Errorf("tokenizer_config.json: chat_template: %w", err)
	}
	for _, e := range list {
		if e.Name == "default" {
			return e.Template, nil
		}
	}
	return "", fmt.Errorf("tokenizer_config.json: chat_template: none of the %d templates is named default", len(list))
}
