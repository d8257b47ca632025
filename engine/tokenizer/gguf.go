package tokenizer

import (
	"fmt"
	"math"
)

// Meta is the metadata of a GGUF file: each getter returns the value under a key, and false if the key is
// absent or of another type. weights.Metadata is one.
type Meta interface {
	String(key string) (string, bool)
	Uint(key string) (uint64, bool)
	Bool(key string) (value, ok bool)
	Strings(key string) ([]string, bool)
	Ints(key string) ([]int64, bool)
}

// FromGGUF builds a Tokenizer from the keys tokenizer.ggml.* and tokenizer.chat_template. Errors name the key.
//
// A GGUF has no keys for the normaliser and for merges that whole words bypass; both follow from
// tokenizer.ggml.pre. Where the key add_bos_token is absent, llama-bpe adds the token and the others do not, as
// the files' writer and its readers have it. If m has a method Err() error, as weights.Metadata does, an error it
// returns at the end (a key of a wrong type) is returned here.
func FromGGUF(m Meta) (*Tokenizer, error) {
	t, err := fromGGUF(m)
	if e, ok := m.(interface{ Err() error }); ok && e.Err() != nil {
		return nil, fmt.Errorf("tokenizer: %w", e.Err())
	}
	return t, err
}

const ggml = "tokenizer.ggml."

func fromGGUF(m Meta) (*Tokenizer, error) {
	model, ok := m.String(ggml + "model")
	if !ok {
		return nil, fmt.Errorf("tokenizer: %smodel is missing; the file has no vocabulary", ggml)
	}
	if model != "gpt2" {
		return nil, fmt.Errorf("tokenizer: %smodel is %q; only gpt2, byte-level BPE, is known", ggml, model)
	}
	var s Spec
	if s.Pre, ok = m.String(ggml + "pre"); !ok {
		return nil, fmt.Errorf("tokenizer: %spre is missing; convert the model with a newer converter, which names the pre-tokenizer", ggml)
	}
	if s.Tokens, ok = m.Strings(ggml + "tokens"); !ok {
		return nil, fmt.Errorf("tokenizer: %stokens is missing", ggml)
	}
	if s.Merges, ok = m.Strings(ggml + "merges"); !ok {
		return nil, fmt.Errorf("tokenizer: %smerges is missing", ggml)
	}
	if types, ok := m.Ints(ggml + "token_type"); ok {
		s.Types = make([]int32, len(types))
		for i, v := range types {
			s.Types[i] = int32(max(math.MinInt32, min(v, math.MaxInt32))) // fromSpec refuses both ends
		}
	}
	for _, f := range []struct {
		key string
		id  *int32
	}{{"bos", &s.BOS}, {"eos", &s.EOS}, {"eot", &s.EOT}, {"padding", &s.PAD}, {"unknown", &s.UNK}} {
		*f.id = -1
		if v, ok := m.Uint(ggml + f.key + "_token_id"); ok {
			if v >= uint64(len(s.Tokens)) {
				return nil, fmt.Errorf("tokenizer: %s%s_token_id is %d, beyond the %d tokens", ggml, f.key, v, len(s.Tokens))
			}
			*f.id = int32(v)
		}
	}
	if s.AddBOS, ok = m.Bool(ggml + "add_bos_token"); !ok {
		s.AddBOS = preNames[s.Pre] == preLlama3
	}
	s.AddEOS, _ = m.Bool(ggml + "add_eos_token")
	s.AddSpacePrefix, _ = m.Bool(ggml + "add_space_prefix")
	s.ChatTemplate, _ = m.String("tokenizer.chat_template")
	return fromSpec(s, fieldNames{ggml + "tokens", ggml + "merges", "tokenizer.chat_template"}, ggml+"token_type", ggml+"pre")
}
