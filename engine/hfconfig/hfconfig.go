// Package hfconfig reads config.json files of Hugging Face models strictly: [Parse] gives an [Object], whose methods
// read keys one by one, and [Object.Finish] refuses every key that nobody asked for and that is not one of [Ignored]
// (it may change what the model computes). It knows no architecture.
package hfconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
)

// MaxBytes bounds the files that ReadFile takes: real ones measure a few kilobytes.
const MaxBytes = 4 << 20

// Ignored lists the keys of config.json that cannot change what a forward pass of the known families
// computes: training, generation defaults, provenance, and classes that the engine does not build.
var Ignored = Set(
	"architectures", "auto_map", "attention_dropout", "attn_implementation", "bad_words_ids", "begin_suppress_tokens",
	"chunk_size_feed_forward", "decoder_start_token_id", "diversity_penalty", "do_sample", "dtype", "early_stopping",
	"encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id",
	"forced_eos_token_id", "hidden_dropout", "id2label", "initializer_range", "is_decoder", "is_llama_config", "label2id",
	"length_penalty", "max_length", "min_length", "name_or_path", "no_repeat_ngram_size", "num_beam_groups", "num_beams",
	"num_labels", "num_return_sequences", "output_attentions", "output_hidden_states", "output_scores", "pad_token_id",
	"prefix", "pretraining_tp", "problem_type", "remove_invalid_values", "repetition_penalty", "return_dict",
	"return_dict_in_generate", "sep_token_id", "suppress_tokens", "task_specific_params", "temperature", "tf_legacy_loss",
	"tie_encoder_decoder", "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript", "transformers.js_config",
	"transformers_version", "typical_p", "unsloth_fixed", "unsloth_version", "use_bfloat16", "use_cache",
)

// Set returns a set of names.
func Set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// ReadFile reads a small file whole.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err == nil && len(data) > MaxBytes {
		err = fmt.Errorf("%s: longer than %d bytes", path, MaxBytes)
	}
	return data, err
}

// Object reads the keys of one JSON object. It keeps the first error and every key that was asked for,
// so that reading is straight-line code and Finish can refuse what nobody asked for.
type Object struct {
	prefix string // "rope_scaling." inside a nested object
	keys   map[string]json.RawMessage
	seen   map[string]bool
	err    error
}

// Parse takes the text of a JSON object.
func Parse(data []byte) (*Object, error) {
	o := &Object{seen: map[string]bool{}}
	if err := json.Unmarshal(data, &o.keys); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	return o, nil
}

// Fail keeps an error, unless there is one already. The nested object that it is about comes first in its text.
func (o *Object) Fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf(o.prefix+format, args...)
	}
}

// Err returns the first error.
func (o *Object) Err() error { return o.err }

// Has reports whether the key is present and not null, and remembers that it was asked for.
func (o *Object) Has(key string) bool {
	o.seen[key] = true
	raw, ok := o.keys[key]
	return ok && !bytes.Equal(raw, []byte("null"))
}

// Read decodes the key into v and reports whether it was there.
func (o *Object) Read(key string, v any, want string) bool {
	if !o.Has(key) {
		return false
	}
	if err := json.Unmarshal(o.keys[key], v); err != nil {
		o.Fail("%s = %.60s: want %s", key, o.keys[key], want)
		return false
	}
	return true
}

// Text reads a string; missing stands for a key that is absent or null.
func (o *Object) Text(key, missing string) string {
	v := missing
	o.Read(key, &v, "a string")
	return v
}

// Texts reads a list of strings; see Text.
func (o *Object) Texts(key string) (v []string) {
	o.Read(key, &v, "a list of strings")
	return v
}

// Flag reads a truth value; see Text.
func (o *Object) Flag(key string, missing bool) bool {
	v := missing
	o.Read(key, &v, "true or false")
	return v
}

// Number reads a number; see Text.
func (o *Object) Number(key string, missing float64) float64 {
	v := missing
	o.Read(key, &v, "a number")
	return v
}

// Integer reads a whole number from 0 to 2³¹−1.
func (o *Object) Integer(key string, missing int) int {
	v := float64(missing)
	if o.Read(key, &v, "a number") && (v != math.Trunc(v) || v < 0 || v > 1<<31-1) {
		o.Fail("%s = %s: want a whole number from 0 to 2147483647", key, o.keys[key])
		return missing
	}
	return int(v)
}

// Size reads an integer from 1 to hi; if missing is 0 the key must be there.
func (o *Object) Size(key string, missing, hi int) int {
	v := o.Integer(key, missing)
	if v == 0 && missing == 0 {
		o.Fail("%s is missing or 0", key)
	}
	if v < 1 || v > hi {
		o.Fail("%s = %d: want 1 to %d", key, v, hi)
	}
	return v
}

// Tokens reads one id or a list of them.
func (o *Object) Tokens(key string) []int32 {
	if !o.Has(key) {
		return nil
	}
	var one int32
	if json.Unmarshal(o.keys[key], &one) == nil {
		return []int32{one}
	}
	var list []int32
	o.Read(key, &list, "a token id or a list of them")
	return list
}

// MustBe refuses a key that is neither absent nor want.
func (o *Object) MustBe(key string, want float64) {
	if v := o.Number(key, want); v != want {
		o.Fail("%s = %v is not supported (only %v)", key, v, want)
	}
}

// MustBeOff refuses a key that is anything but absent, null, false or empty.
func (o *Object) MustBeOff(key string) {
	if !o.Has(key) {
		return
	}
	switch raw := string(o.keys[key]); raw {
	case "false", "{}", "[]":
	default:
		o.Fail("%s = %.60s is not supported", key, raw)
	}
}

// Nested returns a nested object, nil if absent.
func (o *Object) Nested(key string) *Object {
	inner := &Object{prefix: o.prefix + key + ".", seen: map[string]bool{}}
	if !o.Read(key, &inner.keys, "an object") {
		return nil
	}
	return inner
}

// MustBeOn refuses a key that is anything but absent, null or true.
func (o *Object) MustBeOn(key string) {
	if !o.Flag(key, true) {
		o.Fail("%s = false is not supported", key)
	}
}

// Adopt ends the reading of a nested object as Finish does: its error becomes o's.
func (o *Object) Adopt(inner *Object, ignored ...map[string]bool) {
	if err := inner.Finish(ignored...); err != nil && o.err == nil {
		o.err = err
	}
}

// Finish returns the first error, or one that names a key which nobody asked for and none of the sets holds.
func (o *Object) Finish(ignored ...map[string]bool) error {
	if o.err != nil {
		return o.err
	}
	var unknown []string
	for key, raw := range o.keys {
		known := o.seen[key] || strings.HasPrefix(key, "_") || bytes.Equal(raw, []byte("null"))
		for _, set := range ignored {
			known = known || set[key]
		}
		if !known {
			unknown = append(unknown, o.prefix+key)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return fmt.Errorf("unknown key %s: it may change what the model computes, so it is refused", strings.Join(unknown, ", "))
	}
	return nil
}
