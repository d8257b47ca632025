package export

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"draftlab/engine/model"
	"draftlab/engine/quant"
	"draftlab/engine/tokenizer"
	"draftlab/engine/weights"
)

// smallFile is a file of a checkpoint beside its weights.
type smallFile struct {
	name string
	data []byte
}

// smallNames are the names that smallFiles gives.
var smallNames = map[string]bool{
	"config.json": true, "generation_config.json": true, "tokenizer.json": true, "tokenizer_config.json": true,
	"special_tokens_map.json": true, "chat_template.jinja": true,
}

// smallFiles makes all files of a checkpoint but its weights; tokenizer is false if the GGUF has no vocabulary.
func smallFiles(f *weights.File, cfg model.Config, typ quant.Type) (files []smallFile, hasTokenizer bool, err error) {
	add := func(name string, data []byte) {
		if len(data) > 0 {
			files = append(files, smallFile{name, data})
		}
	}
	config, err := cfg.CheckpointConfig(torchTypes[typ])
	if err != nil {
		return nil, false, err
	}
	add("config.json", config)
	ends := slices.Clone(cfg.EOS)
	if hasTokenizer = hasVocabulary(f); hasTokenizer {
		t, err := tokenizer.FromGGUF(f.Meta())
		if err != nil {
			return nil, false, err
		}
		for _, id := range t.EOG() {
			if !slices.Contains(ends, id) {
				ends = append(ends, id)
			}
		}
		text := t.Files(cfg.MaxContext)
		add("tokenizer.json", text.Tokenizer)
		add("tokenizer_config.json", text.Config)
		add("special_tokens_map.json", text.SpecialTokens)
		add("chat_template.jinja", []byte(text.ChatTemplate))
	}
	add("generation_config.json", generationConfig(f, cfg, ends))
	return files, hasTokenizer, nil
}

// hasVocabulary reports whether a GGUF has any key of a tokenizer; one that is incomplete is then an error.
func hasVocabulary(f *weights.File) bool {
	return slices.ContainsFunc(f.Meta().Keys(), func(key string) bool {
		return key == "tokenizer.ggml.model" || key == "tokenizer.ggml.tokens" || key == "tokenizer.ggml.pre"
	})
}

// generationConfig returns generation_config.json, where every id stands that ends a text for draftlab: the
// GGUF's own and the control tokens that are known by name to end a turn.
func generationConfig(f *weights.File, cfg model.Config, ends []int32) []byte {
	o := map[string]any{}
	if cfg.BOS >= 0 {
		o["bos_token_id"] = cfg.BOS
	}
	if len(ends) > 0 {
		o["eos_token_id"] = ends
	}
	if id, ok := f.Meta().Uint("tokenizer.ggml.padding_token_id"); ok && id < uint64(cfg.Vocab) {
		o["pad_token_id"] = id
	}
	return plainJSON(o)
}

// plainJSON writes JSON for people: indented, with <, > and & as they are.
func plainJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		panic("export: " + strings.TrimSpace(err.Error())) // plain data
	}
	return b.Bytes()
}
