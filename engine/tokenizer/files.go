package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Files are the tokenizer files of a Hugging Face checkpoint.
type Files struct {
	Tokenizer     []byte // tokenizer.json
	Config        []byte // tokenizer_config.json
	SpecialTokens []byte // special_tokens_map.json
	ChatTemplate  string // chat_template.jinja; "" if the vocabulary has no template
}

// Files is the inverse of FromJSON: it writes the vocabulary so that Hugging Face tokenizers, transformers and
// FromJSON encode and decode as t does (T1). maxLength is the longest text in tokens that the model takes.
//
// Two things are not written. Entries that only fill a GGUF's vocabulary up to the rows of its embedding, "[PADn]"
// at id n, are none of the tokenizer's, and the published files do not have them either; decoding such an id, which
// a model does not emit, gives nothing then. And the end of a turn has no name in these files beyond the end of a
// text: generation_config.json lists all ends.
func (t *Tokenizer) Files(maxLength int) Files {
	added := t.addedTokens()
	text := hfOut{
		Version: "1.0", AddedTokens: added, PreTokenizer: t.hfPre(), PostProcessor: t.hfPost(),
		Decoder: hfByteLevelOut(true, true),
		Model:   hfModelOut{Type: "BPE", IgnoreMerges: t.bpe.whole != nil, Vocab: t.hfVocab(added), Merges: t.hfMerges()},
	}
	if t.nfc {
		text.Normalizer = map[string]string{"type": "NFC"}
	}
	special := map[string]string{}
	for _, name := range []string{"bos_token", "eos_token", "pad_token", "unk_token"} {
		if id, ok := t.named[name]; ok {
			special[name] = t.tokens[id]
		}
	}
	config := map[string]any{
		// The class that takes tokenizer.json as it is; the families' own classes build parts of it anew.
		"tokenizer_class": "PreTrainedTokenizerFast",
		// draftlab does not undo spaces after decoding, and no byte-level vocabulary wants it.
		"clean_up_tokenization_spaces": false,
		"model_max_length":             maxLength,
	}
	for name, token := range special {
		config[name] = token
	}
	return Files{
		Tokenizer: marshalPlain(text), Config: marshalPlain(config), SpecialTokens: marshalPlain(special),
		ChatTemplate: t.ChatTemplate(),
	}
}

// hfOut is hfTokenizer for writing; the order of its fields is that of published files.
type hfOut struct {
	Version       string     `json:"version"`
	Truncation    *struct{}  `json:"truncation"`
	Padding       *struct{}  `json:"padding"`
	AddedTokens   []hfAdded  `json:"added_tokens"`
	Normalizer    any        `json:"normalizer"`
	PreTokenizer  any        `json:"pre_tokenizer"`
	PostProcessor any        `json:"post_processor"`
	Decoder       any        `json:"decoder"`
	Model         hfModelOut `json:"model"`
}

// hfModelOut is hfModel for writing. Null unk_token: a byte without a token is dropped (T1), also where the vocabulary
// names a token for the unknown, since a GGUF's key for it is only passed on to templates.
type hfModelOut struct {
	Type         string          `json:"type"`
	Dropout      *float64        `json:"dropout"`
	UnkToken     *string         `json:"unk_token"`
	Prefix       *string         `json:"continuing_subword_prefix"`
	Suffix       *string         `json:"end_of_word_suffix"`
	FuseUnk      bool            `json:"fuse_unk"`
	ByteFallback bool            `json:"byte_fallback"`
	IgnoreMerges bool            `json:"ignore_merges"`
	Vocab        json.RawMessage `json:"vocab"`
	Merges       [][2]string     `json:"merges"`
}

// marshalPlain writes JSON for people: indented, and "<|end|>" as it is.
func marshalPlain(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		panic("tokenizer: " + err.Error()) // plain data, all of it valid UTF-8
	}
	return b.Bytes()
}

// addedTokens lists the added tokens by id.
func (t *Tokenizer) addedTokens() []hfAdded {
	out := []hfAdded{}
	for _, m := range []*matcher{t.raw, t.normalized} {
		for _, a := range m.tokens {
			out = append(out, hfAdded{
				ID: int64(a.id), Content: t.tokens[a.id], // a.text is normalised
				LStrip: a.lstrip, RStrip: a.rstrip, Normalized: a.normalized, Special: a.special,
			})
		}
	}
	slices.SortFunc(out, func(a, b hfAdded) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// hfVocab writes the model's vocabulary in the order of ids. Added tokens behind all others stay outside, as in the
// files of Llama 3 and Qwen 2; elsewhere they must be inside, as in those of SmolLM2, since Hugging Face tokenizers
// numbers tokens outside upwards from the size of the vocabulary.
func (t *Tokenizer) hfVocab(added []hfAdded) json.RawMessage {
	isAdded := make([]bool, len(t.tokens))
	for _, a := range added {
		isAdded[a.ID] = true
	}
	var own []int
	for id, token := range t.tokens {
		if token != "" && !isAdded[id] && token != fmt.Sprintf("[PAD%d]", id) {
			own = append(own, id)
		}
	}
	outside := len(own) == 0 || own[len(own)-1] == len(own)-1
	for i, a := range added {
		outside = outside && int(a.ID) == len(own)+i
	}
	if !outside {
		for _, a := range added {
			own = append(own, int(a.ID))
		}
		slices.Sort(own)
	}
	b := []byte{'{'}
	for i, id := range own {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, bytes.TrimSpace(marshalPlain(t.tokens[id]))...)
		b = fmt.Appendf(b, ":%d", id)
	}
	return append(b, '}')
}

// hfMerges lists the merges, best first. Pairs, unlike "left right", can say any token.
func (t *Tokenizer) hfMerges() [][2]string {
	keys := slices.SortedFunc(maps.Keys(t.bpe.merges), func(a, b uint64) int {
		return cmp.Compare(t.bpe.merges[a].rank, t.bpe.merges[b].rank)
	})
	out := make([][2]string, len(keys))
	for i, key := range keys {
		out[i] = [2]string{t.tokens[key>>32], t.tokens[uint32(key)]}
	}
	return out
}

// hfPre is the inverse of hfPreTokenizer.
func (t *Tokenizer) hfPre() any {
	var first any
	switch t.pre {
	case preGPT2:
		return hfByteLevelOut(t.spacePrefix, true)
	case preSmolLM:
		first = hfDigits{Type: "Digits", Individual: true}
	case preLlama3:
		first = hfSplitOut(patternLlama3)
	case preQwen2:
		first = hfSplitOut(patternQwen2)
	default:
		panic("tokenizer: pre-tokenizer without a form in tokenizer.json")
	}
	return map[string]any{"type": "Sequence", "pretokenizers": []any{first, hfByteLevelOut(false, t.pre == preSmolLM)}}
}

func hfByteLevelOut(prefixSpace, regex bool) hfByteLevel {
	return hfByteLevel{Type: "ByteLevel", AddPrefixSpace: prefixSpace, TrimOffsets: true, UseRegex: &regex}
}

func hfSplitOut(pattern string) any {
	return map[string]any{"type": "Split", "pattern": map[string]string{"Regex": pattern}, "behavior": "Isolated", "invert": false}
}

// hfPost is the inverse of hfPostProcessor. The part for pairs of texts puts the same tokens around each.
func (t *Tokenizer) hfPost() any {
	level := hfByteLevelOut(true, true)
	level.TrimOffsets = false // offsets of words leave the space before them out; nothing else reads this
	if len(t.prefix)+len(t.suffix) == 0 {
		return level
	}
	specials := map[string]any{}
	around := func(sequence string, kind int) (parts []any) {
		token := func(id int32) any {
			text := t.tokens[id]
			specials[text] = map[string]any{"id": text, "ids": []int32{id}, "tokens": []string{text}}
			return map[string]any{"SpecialToken": map[string]any{"id": text, "type_id": kind}}
		}
		for _, id := range t.prefix {
			parts = append(parts, token(id))
		}
		parts = append(parts, map[string]any{"Sequence": map[string]any{"id": sequence, "type_id": kind}})
		for _, id := range t.suffix {
			parts = append(parts, token(id))
		}
		return parts
	}
	single := around("A", 0)
	return map[string]any{"type": "Sequence", "processors": []any{level, map[string]any{
		"type": "TemplateProcessing", "single": single, "pair": append(slices.Clone(single), around("B", 1)...), "special_tokens": specials,
	}}}
}
