package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"draftlab/engine/hfconfig"
)

// hfBase returns the keys of a small config.json that is accepted.
func hfBase(modelType string) map[string]any {
	m := map[string]any{
		"model_type": modelType, "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96,
		"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 128,
		"rms_norm_eps": 1e-5, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2,
	}
	if modelType == "qwen3" {
		m["head_dim"] = 32
	}
	return m
}

func baseConfig(arch Arch) Config {
	c := Config{
		Arch: arch, Layers: 2, Hidden: 64, FFN: 96, Heads: 4, KVHeads: 2, HeadDim: 16, Vocab: 50, MaxContext: 128,
		NormEps: 1e-5, Rope: RopeConfig{Theta: 1e4}, QKVBias: arch == Qwen2, QKNorm: arch == Qwen3, BOS: 1, EOS: []int32{2},
	}
	if arch == Qwen3 {
		c.HeadDim = 32
	}
	return c
}

func TestParseHF(t *testing.T) {
	llama3 := map[string]any{
		"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
	}
	withTheta := maps.Clone(llama3)
	withTheta["rope_theta"] = 5e5
	wantLlama3 := func(c *Config) {
		c.Rope.Scaling = RopeScaling{Kind: RopeLlama3, Factor: 32, LowFreq: 1, HiFreq: 4, Context: 8192}
	}
	for _, tc := range []struct {
		name, modelType string
		set             map[string]any // keys added to the base
		want            func(*Config)  // changes to the base's configuration
	}{
		{"plain", "llama", nil, nil},
		{"mistral is llama", "mistral", map[string]any{"sliding_window": nil}, nil},
		{"mistral with a window", "mistral", map[string]any{"sliding_window": 32}, func(c *Config) { c.Window = 32 }},
		{"qwen2", "qwen2", nil, nil},
		{"qwen2 with a window that is off", "qwen2", map[string]any{"sliding_window": 32, "use_sliding_window": false, "max_window_layers": 1}, nil},
		{"qwen2 with a window above its layers", "qwen2", map[string]any{"sliding_window": 32, "use_sliding_window": true, "max_window_layers": 2}, nil},
		{"qwen2 with a window", "qwen2", map[string]any{"sliding_window": 32, "use_sliding_window": true, "max_window_layers": 1}, func(c *Config) { c.Window = 32 }},
		{"layer types", "qwen3", map[string]any{"layer_types": []string{"full_attention", "full_attention"}}, nil},
		{"a sliding layer", "qwen3", map[string]any{"sliding_window": 32, "layer_types": []string{"full_attention", "sliding_attention"}}, func(c *Config) { c.Window = 32 }},
		{"qwen3", "qwen3", nil, nil},
		{"llama3 scaling", "llama", map[string]any{"rope_scaling": llama3}, wantLlama3},
		{"rope parameters", "llama", map[string]any{"rope_parameters": withTheta}, func(c *Config) { wantLlama3(c); c.Rope.Theta = 5e5 }},
		{"linear scaling by its old name", "llama", map[string]any{"rope_scaling": map[string]any{"type": "linear", "factor": 2.0}},
			func(c *Config) { c.Rope.Scaling = RopeScaling{Kind: RopeLinear, Factor: 2} }},
		{"default scaling", "llama", map[string]any{"rope_scaling": map[string]any{"rope_type": "default"}, "rope_theta": 2e4}, func(c *Config) { c.Rope.Theta = 2e4 }},
		{"tied, head dimension", "llama", map[string]any{"tie_word_embeddings": true, "head_dim": 8}, func(c *Config) { c.TiedHead = true; c.HeadDim = 8 }},
		{"several ends", "llama", map[string]any{"eos_token_id": []int{7, 9, 7}, "bos_token_id": nil}, func(c *Config) { c.EOS = []int32{7, 9}; c.BOS = -1 }},
		{"keys that cannot matter", "llama", map[string]any{
			"architectures": []string{"LlamaForCausalLM"}, "torch_dtype": "bfloat16", "_name_or_path": "x", "attention_bias": false,
			"mlp_bias": false, "is_llama_config": true, "rope_interleaved": false, "anything_null": nil,
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			keys := hfBase(tc.modelType)
			maps.Copy(keys, tc.set)
			arch := Arch(strings.Replace(tc.modelType, "mistral", "llama", 1))
			want := baseConfig(arch)
			if tc.want != nil {
				tc.want(&want)
			}
			text, _ := json.Marshal(keys)
			got, err := parseHF(text)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, want)
			}
		})
	}
}

func TestParseHFRefuses(t *testing.T) {
	for _, tc := range []struct {
		modelType, key string
		value          any
		want           string // in the error
	}{
		{"gemma", "vocab_size", 1, `model_type = "gemma"`},
		{"llama", "architectures", []string{"LlamaForSequenceClassification"}, "LlamaForSequenceClassification"},
		{"llama", "hidden_act", "gelu", `hidden_act = "gelu"`},
		{"llama", "attention_bias", true, "attention_bias = true"},
		{"qwen3", "attention_bias", true, "attention_bias = true"},
		{"llama", "mlp_bias", true, "mlp_bias = true"},
		{"llama", "rope_interleaved", true, "rope_interleaved = true"},
		{"llama", "pruned_heads", map[string]any{"0": []int{1}}, "pruned_heads"},
		{"llama", "partial_rotary_factor", 0.5, "partial_rotary_factor = 0.5"},
		{"llama", "rope_scaling", map[string]any{"rope_type": "yarn", "factor": 4}, `rope_scaling.rope_type = "yarn"`},
		{"llama", "rope_scaling", map[string]any{"rope_type": "linear"}, "factor = 0"},
		{"llama", "rope_scaling", map[string]any{"rope_type": "linear", "factor": 2, "attention_factor": 2}, "rope_scaling.attention_factor"},
		{"llama", "rope_scaling", map[string]any{"rope_type": "linear", "type": "dynamic", "factor": 2}, `type = "dynamic"`},
		{"llama", "rope_scaling", map[string]any{"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1,
			"original_max_position_embeddings": 8192}, "low_freq_factor = 4"},
		{"llama", "rope_scaling", "linear", "rope_scaling"},
		{"llama", "rope_parameters", map[string]any{"rope_type": "default", "partial_rotary_factor": 0.25}, "rope_parameters.partial_rotary_factor"},
		{"llama", "logits_scaling", 8, "logits_scaling"},
		{"llama", "final_logit_softcapping", 30.0, "final_logit_softcapping"},
		{"qwen3", "num_experts", 64, "num_experts"},
		{"llama", "quantization_config", map[string]any{"quant_method": "awq"}, "quantization_config"},
		{"llama", "layer_types", []string{"linear_attention"}, "linear_attention"},
		{"llama", "layer_types", []string{"sliding_attention"}, "sliding_window"},
		{"qwen2", "num_key_value_heads", nil, "num_key_value_heads is missing"},
		{"qwen3", "head_dim", nil, "head_dim is missing"},
		{"llama", "hidden_size", nil, "hidden_size is missing"},
		{"llama", "hidden_size", 1 << 40, "hidden_size"},
		{"llama", "hidden_size", 64.5, "hidden_size = 64.5"},
		{"llama", "hidden_size", "64", "hidden_size"},
		{"llama", "num_hidden_layers", -1, "num_hidden_layers = -1"},
		{"llama", "num_hidden_layers", 100000, "num_hidden_layers = 100000"},
		{"llama", "num_key_value_heads", 3, "multiple of 3"},
		{"llama", "head_dim", 15, "head dimension = 15"},
		{"llama", "vocab_size", 1 << 30, "vocab_size"},
		{"llama", "rms_norm_eps", 0, "norm epsilon"},
		{"llama", "rope_theta", 0, "rope theta"},
		{"llama", "eos_token_id", 50, "end-of-text id = 50"},
		{"llama", "eos_token_id", "two", "eos_token_id"},
		{"llama", "bos_token_id", 99, "begin-of-text id = 99"},
		{"llama", "sliding_window", -4, "sliding_window"},
	} {
		t.Run(fmt.Sprintf("%s %v", tc.key, tc.value), func(t *testing.T) {
			keys := hfBase(tc.modelType)
			keys[tc.key] = tc.value
			text, _ := json.Marshal(keys)
			if _, err := parseHF(text); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
	both := hfBase("llama")
	both["rope_scaling"] = map[string]any{"rope_type": "default"}
	both["rope_parameters"] = map[string]any{"rope_type": "default"}
	text, _ := json.Marshal(both)
	if _, err := parseHF(text); err == nil || !strings.Contains(err.Error(), "both present") {
		t.Errorf("error %v, want one that names both spellings", err)
	}
}

func TestReadHFAddsGenerationEnds(t *testing.T) {
	dir := t.TempDir()
	text, _ := json.Marshal(hfBase("llama"))
	write(t, filepath.Join(dir, "config.json"), text)
	c, err := readHF(dir)
	if err != nil || !reflect.DeepEqual(c.EOS, []int32{2}) {
		t.Fatalf("ends %v, %v", c.EOS, err)
	}
	gen := filepath.Join(dir, "generation_config.json")
	write(t, gen, []byte(`{"eos_token_id":[3,2],"temperature":0.6}`))
	if c, err = readHF(dir); err != nil || !reflect.DeepEqual(c.EOS, []int32{2, 3}) {
		t.Errorf("ends %v, %v; want 2 and 3", c.EOS, err)
	}
	write(t, gen, []byte(`{"eos_token_id":[50]}`))
	if _, err = readHF(dir); err == nil || !strings.Contains(err.Error(), gen) {
		t.Errorf("error %v, want one that names %s", err, gen)
	}
	write(t, gen, make([]byte, hfconfig.MaxBytes+1))
	if _, err = readHF(dir); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("error %v, want a refusal of the size", err)
	}
	if _, err = readHF(t.TempDir()); err == nil || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("error %v, want one that names config.json", err)
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
}

// FuzzParseHF: no text panics, and what is accepted is within bounds.
func FuzzParseHF(f *testing.F) {
	for _, name := range []string{"llama", "mistral", "qwen2", "qwen3"} {
		text, _ := json.Marshal(hfBase(name))
		f.Add(text)
	}
	f.Add([]byte(`{"model_type":"llama","rope_scaling":{"rope_type":"llama3"},"rope_parameters":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseHF(data)
		if err != nil {
			return
		}
		if err := c.Validate(); err != nil {
			t.Errorf("accepted %s: %v", data, err)
		}
		c.ParamCount()
	})
}

// TestInvFreq compares with values worked out by hand from the published rules.
func TestInvFreq(t *testing.T) {
	near := func(name string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-6*math.Abs(want) {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	plain := RopeConfig{Theta: 1e4}
	f := plain.InvFreq(8)
	for i, want := range []float64{1, 0.1, 0.01, 0.001} {
		near("plain frequency", f[i], want)
	}
	linear := RopeConfig{Theta: 1e4, Scaling: RopeScaling{Kind: RopeLinear, Factor: 4}}
	near("linear frequency", linear.InvFreq(8)[1], 0.025)
	divided := RopeConfig{Theta: 1e4, Scaling: RopeScaling{Divisors: []float32{1, 2, 4, 8}}}
	near("divided frequency", divided.InvFreq(8)[3], 0.000125)

	// Original context 2000π: frequency f makes 1000·f turns, so 1 is kept, 0.001 (1 turn) is on the lower edge,
	// 0.0025 is halfway up the ramp of 1…4, and 0.0001 is divided.
	s := RopeScaling{Kind: RopeLlama3, Factor: 8, LowFreq: 1, HiFreq: 4, Context: 6283}
	near("high", s.llama3(1), 1)
	near("low", s.llama3(0.0001), 0.0001/8)
	turns := 6283 * 0.0025 / (2 * math.Pi)
	ramp := (turns - 1) / 3
	near("ramp", s.llama3(0.0025), 0.0025*(ramp+(1-ramp)/8))
}
