package wiring

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const plain = `{"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4,
"vocab_size": 320, "rms_norm_eps": 1e-5, "rope_theta": 10000`

const speculators = `{"speculators_model_type": "eagle3", "transformer_layer_config": {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
"num_attention_heads": 4, "vocab_size": 320, "rms_norm_eps": 1e-5, "rope_theta": 10000}`

func readText(t *testing.T, text string) (*Reading, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Read(dir)
}

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		mended []string
		layers layers3
		output bool
		fails  string
	}{
		"nothing to mend":      {text: plain + "}", layers: layers3{2, 15, 27}},
		"listed":               {text: plain + `, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [3, 16, 28]}}`, layers: layers3{3, 16, 28}},
		"beyond the target":    {text: plain + `, "eagle_aux_hidden_state_layer_ids": [3, 16, 40]}`, layers: layers3{2, 15, 27}},
		"another order":        {text: plain + `, "eagle_aux_hidden_state_layer_ids": [15, 2, 27]}`, layers: layers3{15, 2, 27}, mended: []string{layerKey}},
		"before the first":     {text: plain + `, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [-1, 15, 27]}}`, layers: layers3{0, 15, 27}, mended: []string{layerKey}},
		"ambiguous output":     {text: plain + `, "norm_output": true}`, layers: layers3{2, 15, 27}, mended: []string{"norm_output"}, output: true},
		"residual unsaid":      {text: speculators + "}", layers: layers3{2, 15, 27}, mended: []string{"norm_before_residual"}},
		"output of speculator": {text: speculators + `, "norm_before_residual": false, "norm_output": true}`, layers: layers3{2, 15, 27}, output: true},
		"two ids":              {text: plain + `, "eagle_aux_hidden_state_layer_ids": [1, 2]}`, fails: "want three layers"},
		"another fault beside": {text: plain + `, "eagle_aux_hidden_state_layer_ids": [15, 2, 27], "attention_bias": true}`, fails: "attention_bias"},
		"no JSON":              {text: "{", fails: "not a JSON object"},
	} {
		r, err := readText(t, c.text)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: %v, want %s", name, err, c.fails)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if w := r.wiring(30); w.Layers != c.layers || w.NormOutput != c.output || !slices.Equal(r.Mended, c.mended) {
			t.Errorf("%s: %+v, mended %q", name, w, r.Mended)
		}
	}
}

// FuzzMend: no text panics, and what is mended has three ids or none.
func FuzzMend(f *testing.F) {
	f.Add(plain + `, "eagle_aux_hidden_state_layer_ids": [15, 2, 27], "norm_output": true}`)
	f.Add(speculators + `, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [-1, 2, 2]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		r := &Reading{}
		r.mend([]byte(text))
		if r.Listed != nil && len(r.Listed) != 3 {
			t.Errorf("%v", r.Listed)
		}
	})
}
