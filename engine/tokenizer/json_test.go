package tokenizer

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// smallJSON is a tokenizer.json that FromJSON accepts.
func smallJSON(t testing.TB) map[string]any {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(readGzip(t, "gpt2.tokenizer.json.gz"), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

type object = map[string]any

// TestFromJSONErrors changes one thing at a time and expects the error to name it.
func TestFromJSONErrors(t *testing.T) {
	model := func(key string, v any) func(object) {
		return func(o object) { o["model"].(object)[key] = v }
	}
	set := func(key string, v any) func(object) { return func(o object) { o[key] = v } }
	sequence := func(key string, parts ...any) object { return object{"type": "Sequence", key: parts} }
	byteLevel := func(regex bool) object {
		return object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex}
	}
	split := func(pattern, behavior string) object {
		return object{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": behavior, "invert": false}
	}
	added := func(change object) func(object) {
		return func(o object) {
			token := object{"id": 2000, "content": "<new>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}
			for k, v := range change {
				token[k] = v
			}
			o["added_tokens"] = append(o["added_tokens"].([]any), token)
		}
	}
	for _, c := range []struct {
		name, want string
		change     func(object)
	}{
		{"no model", "model is missing", func(o object) { delete(o, "model") }},
		{"WordPiece", `model.type is "WordPiece"`, model("type", "WordPiece")},
		{"unknown model field", "new_thing", model("new_thing", true)},
		{"dropout", "model.dropout", model("dropout", 0.1)},
		{"prefix", "continuing_subword_prefix", model("continuing_subword_prefix", "##")},
		{"suffix", "end_of_word_suffix", model("end_of_word_suffix", "</w>")},
		{"byte fallback", "byte_fallback", model("byte_fallback", true)},
		{"vocab", "model", model("vocab", []any{1})},
		{"id", "has the id 1000000000", func(o object) { o["model"].(object)["vocab"].(object)["zz"] = 1000000000 }},
		{"negative id", "has the id -1", func(o object) { o["model"].(object)["vocab"].(object)["zz"] = -1 }},
		{"id twice", "both have the id 300", func(o object) { o["model"].(object)["vocab"].(object)["zz"] = 300 }},
		{"empty token", "is empty", func(o object) { o["model"].(object)["vocab"].(object)[""] = 1500 }},
		{"merge", "model.merges[0]", model("merges", []any{"a b c"})},
		{"merge pair", "model.merges[0]", model("merges", []any{[]any{"a"}})},
		{"merge number", "model.merges[1]", model("merges", []any{"Ġ t", 7})},
		{"merge missing", "no token", model("merges", []any{[]any{"nosuchtoken", "b"}})},
		{"normalizer", `normalizer "Lowercase"`, set("normalizer", object{"type": "Lowercase"})},
		{"normalizer sequence", `normalizer "NFKC"`, set("normalizer", sequence("normalizers", object{"type": "NFC"}, object{"type": "NFKC"}))},
		{"no pre-tokenizer", "pre_tokenizer has 0 parts", set("pre_tokenizer", nil)},
		{"pre-tokenizer", `unknown type "Whitespace"`, set("pre_tokenizer", object{"type": "Whitespace"})},
		{"pre-tokenizer field", "frob", set("pre_tokenizer", object{"type": "ByteLevel", "frob": 1})},
		{"bare bytes", "use_regex false", set("pre_tokenizer", byteLevel(false))},
		{"three parts", "has 3 parts", set("pre_tokenizer", sequence("pretokenizers", byteLevel(true), byteLevel(true), byteLevel(true)))},
		{"digits", "individual_digits", set("pre_tokenizer", sequence("pretokenizers", object{"type": "Digits", "individual_digits": false}, byteLevel(true)))},
		{"pattern", `unknown pattern "\\s+"`, set("pre_tokenizer", sequence("pretokenizers", split(`\s+`, "Isolated"), byteLevel(false)))},
		{"behavior", "behavior Isolated", set("pre_tokenizer", sequence("pretokenizers", split(patternQwen2, "Removed"), byteLevel(false)))},
		{"split and regex", "without use_regex", set("pre_tokenizer", sequence("pretokenizers", split(patternQwen2, "Isolated"), byteLevel(true)))},
		{"first part", `unknown type "Metaspace"`, set("pre_tokenizer", sequence("pretokenizers", object{"type": "Metaspace"}, byteLevel(false)))},
		{"no decoder", "decoder has 0 parts", set("decoder", nil)},
		{"decoder", `decoder: unknown type "WordPiece"`, set("decoder", object{"type": "WordPiece"})},
		{"post-processor", "BertProcessing", set("post_processor", object{"type": "BertProcessing"})},
		{"template ids", "no ids", set("post_processor", object{"type": "TemplateProcessing", "single": []any{object{"SpecialToken": object{"id": "x"}}, object{"Sequence": object{"id": "A"}}}})},
		{"template sequence", "no Sequence A", set("post_processor", object{"type": "TemplateProcessing", "single": []any{}})},
		{"template twice", "single[1]", set("post_processor", object{"type": "TemplateProcessing", "single": []any{object{"Sequence": object{"id": "A"}}, object{"Sequence": object{"id": "A"}}}})},
		{"single word", "single_word", added(object{"single_word": true})},
		{"added id", "has the id -5", added(object{"id": -5})},
		{"added id taken", "already belongs", added(object{"id": 300})},
		{"added twice", "listed twice", func(o object) { added(nil)(o); added(nil)(o) }},
		{"added elsewhere", "here and 300 elsewhere", func(o object) { added(nil)(o); o["model"].(object)["vocab"].(object)["<new>"] = 300.0; dropID(o, 300) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := smallJSON(t)
			c.change(o)
			b, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := FromJSON(b, nil, ""); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want an error with %q", err, c.want)
			}
		})
	}
}

// dropID removes the token that holds an id beside "<new>".
func dropID(o object, id float64) {
	vocab := o["model"].(object)["vocab"].(object)
	for token, v := range vocab {
		if v == id && token != "<new>" {
			delete(vocab, token)
		}
	}
}

// TestJSONConfig checks what tokenizer_config.json and chat_template.jinja add.
func TestJSONConfig(t *testing.T) {
	data := readGzip(t, "gpt2.tokenizer.json.gz")
	for _, c := range []struct{ config, jinja, template, err string }{
		{`{}`, "", "", ""},
		{`{"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|im_start|>", "pad_token": null, "chat_template": "one"}`, "", "one", ""},
		{`{"chat_template": [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]}`, "", "b", ""},
		{`{"chat_template": "one"}`, "two", "two", ""},
		{`{"eos_token": "<nosuch>"}`, "", "", `eos_token: the vocabulary has no token "<nosuch>"`},
		{`{"eos_token": 7}`, "", "", "eos_token"},
		{`{"chat_template": [{"name": "rag", "template": "a"}]}`, "", "", "none of the 1 templates"},
		{`{"chat_template": 7}`, "", "", "chat_template"},
		{`[]`, "", "", "tokenizer_config.json"},
	} {
		tok, err := FromJSON(data, []byte(c.config), c.jinja)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got %v; want an error with %q", c.config, err, c.err)
			}
			continue
		}
		if err != nil || tok.ChatTemplate() != c.template {
			t.Errorf("%s: got %v; want the template %q", c.config, err, c.template)
		}
	}
	tok, err := FromJSON(data, []byte(`{"eos_token": "<|im_end|>"}`), "")
	if err != nil {
		t.Fatal(err)
	}
	eos, ok := tok.EOS()
	if want, _ := tok.ID("<|im_end|>"); !ok || eos != want || !slices.Contains(tok.EOG(), want) {
		t.Errorf("EOS() = %d, %v", eos, ok)
	}
}

// fakeMeta is metadata by key.
type fakeMeta map[string]any

func get[T any](m fakeMeta, key string) (T, bool)      { v, ok := m[key].(T); return v, ok }
func (m fakeMeta) String(key string) (string, bool)    { return get[string](m, key) }
func (m fakeMeta) Uint(key string) (uint64, bool)      { return get[uint64](m, key) }
func (m fakeMeta) Bool(key string) (value, ok bool)    { return get[bool](m, key) }
func (m fakeMeta) Strings(key string) ([]string, bool) { return get[[]string](m, key) }
func (m fakeMeta) Ints(key string) ([]int64, bool)     { return get[[]int64](m, key) }

func TestFromGGUF(t *testing.T) {
	base := func() fakeMeta {
		return fakeMeta{
			ggml + "model": "gpt2", ggml + "pre": "llama-bpe", ggml + "tokens": byteVocabulary("ab", "<|bos|>"),
			ggml + "merges": []string{"a b"}, ggml + "token_type": append(slices.Repeat([]int64{1}, 257), 3),
			ggml + "bos_token_id": uint64(257), ggml + "eos_token_id": uint64(257),
		}
	}
	tok, err := FromGGUF(base())
	if err != nil {
		t.Fatal(err)
	}
	got, err := tok.Encode("ab", EncodeOptions{AddSpecial: true})
	if want := []int32{257, 256}; err != nil || !slices.Equal(got, want) {
		t.Errorf("llama-bpe without add_bos_token: %v, %v; want %v", got, err, want)
	}
	for _, c := range []struct {
		key   string
		value any
		want  string
	}{
		{"model", nil, "tokenizer.ggml.model is missing"}, {"model", "llama", `tokenizer.ggml.model is "llama"`},
		{"pre", nil, "tokenizer.ggml.pre is missing"}, {"pre", "tekken", `tokenizer.ggml.pre: unknown pre-tokenizer "tekken"`},
		{"tokens", nil, "tokenizer.ggml.tokens is missing"}, {"merges", nil, "tokenizer.ggml.merges is missing"},
		{"merges", []string{"a q"}, "tokenizer.ggml.merges[0]"}, {"token_type", []int64{1}, "tokenizer.ggml.token_type has 1"},
		{"token_type", slices.Repeat([]int64{1 << 40}, 258), "tokenizer.ggml.token_type[0]"},
		{"eos_token_id", uint64(1 << 40), "tokenizer.ggml.eos_token_id is 1099511627776"}, {"add_space_prefix", true, "space prefix"},
	} {
		m := base()
		if m[ggml+c.key] = c.value; c.value == nil {
			delete(m, ggml+c.key)
		}
		if _, err := FromGGUF(m); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s = %.60v: got %v; want an error with %q", c.key, c.value, err, c.want)
		}
	}
}
