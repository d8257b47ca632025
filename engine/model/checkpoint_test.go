package model

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"

	"draftlab/engine/weights"
)

// TestCheckpointConfig: config.json reads back as the configuration that it was written from.
func TestCheckpointConfig(t *testing.T) {
	configs := map[string]Config{}
	for _, name := range RandomShapes() {
		configs[name] = randomShapes[name]
	}
	linear := randomShapes["tiny"]
	linear.Rope.Scaling = RopeScaling{Kind: RopeLinear, Factor: 2.5}
	linear.NormEps = math.Float32frombits(0x3727c5ac) // 1e-5, as a GGUF stores it
	linear.BOS, linear.EOS = 1, []int32{2, 0}
	configs["linear, two ends"] = linear
	window := randomShapes["tiny"]
	window.Window, window.EOS = 512, []int32{2}
	configs["mistral"] = window
	for name, c := range configs {
		text, err := c.CheckpointConfig("float32")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := parseHF(text)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		} else if !reflect.DeepEqual(got, c) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, c)
		}
	}
	text, err := randomShapes["llama-3.1-8b"].CheckpointConfig("float32")
	for _, want := range []string{`"rope_theta": 500000.0`, `"factor":8.0`, `"high_freq_factor":4.0`, `"rms_norm_eps": 1e-05`} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("want %s in\n%s\n%v", want, text, err)
		}
	}
	qwen := randomShapes["tiny-qwen2"]
	qwen.Window = 4096
	if _, err := qwen.CheckpointConfig("float32"); err == nil || !strings.Contains(err.Error(), "sliding_window = 4096") {
		t.Errorf("a Qwen 2 window: %v", err)
	}
}

// divisors makes what llama.cpp stores for a rule.
func divisors(theta float64, headDim int, s RopeScaling) []float32 {
	d := make([]float32, headDim/2)
	for i := range d {
		f := math.Pow(theta, -float64(2*i)/float64(headDim))
		d[i] = float32(f / s.llama3(f))
	}
	return d
}

// TestLlama3Of: the rule behind rope_freqs is found again, to the last bits of the frequencies.
func TestLlama3Of(t *testing.T) {
	for name, c := range map[string]struct {
		theta   float64
		headDim int
		rule    RopeScaling
		exact   bool // the rule itself is found, not only one of the same frequencies
	}{
		"3.1":            {5e5, 128, RopeScaling{Kind: RopeLlama3, Factor: 8, LowFreq: 1, HiFreq: 4, Context: 8192}, true},
		"3.2, 1B":        {5e5, 64, RopeScaling{Kind: RopeLlama3, Factor: 32, LowFreq: 1, HiFreq: 4, Context: 8192}, true},
		"other context":  {5e5, 128, RopeScaling{Kind: RopeLlama3, Factor: 8, LowFreq: 1, HiFreq: 4, Context: 4096}, true},
		"other slope":    {1e6, 128, RopeScaling{Kind: RopeLlama3, Factor: 16, LowFreq: 1, HiFreq: 32, Context: 32768}, true},
		"odd numbers":    {1e4, 96, RopeScaling{Kind: RopeLlama3, Factor: 2.5, LowFreq: 2, HiFreq: 7, Context: 3000}, false},
		"narrow, known":  {1e4, 16, RopeScaling{Kind: RopeLlama3, Factor: 8, LowFreq: 1, HiFreq: 4, Context: 8192}, false},
		"all the same":   {1e4, 64, RopeScaling{Kind: RopeLlama3, Factor: 4, LowFreq: 1e5, HiFreq: 1e6, Context: 2048}, false},
		"nothing scaled": {1e4, 64, RopeScaling{Kind: RopeLlama3, Factor: 4, LowFreq: 1e-6, HiFreq: 1e-5, Context: 1 << 20}, false},
	} {
		r := RopeConfig{c.theta, RopeScaling{Divisors: divisors(c.theta, c.headDim, c.rule)}}
		got, err := llama3Of(r, c.headDim)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if c.exact && !reflect.DeepEqual(got, c.rule) {
			t.Errorf("%s: got %+v", name, got)
		}
		want := (&RopeConfig{c.theta, c.rule}).InvFreq(c.headDim)
		for i, f := range (&RopeConfig{c.theta, got}).InvFreq(c.headDim) {
			if math.Abs(f-want[i]) > 1e-6*want[i] {
				t.Errorf("%s: frequency %d is %v, want %v (%+v)", name, i, f, want[i], got)
			}
		}
	}
}

// TestLlama3OfRefuses: divisors of another rule are refused by the tensor's name.
func TestLlama3OfRefuses(t *testing.T) {
	for name, d := range map[string][]float32{
		"rising":    {1, 1.1, 1.2, 1.3, 2, 3, 4, 5},
		"falling":   {8, 8, 4, 2, 1, 1, 1, 1},
		"below one": {0.5, 0.5, 0.5, 1, 1, 1, 1, 1},
	} {
		c := randomShapes["tiny"]
		c.HeadDim = 2 * len(d)
		c.Rope.Scaling.Divisors = d
		if _, err := c.CheckpointConfig("float32"); err == nil || !strings.Contains(err.Error(), ropeDivisors) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := randomShapes["tiny"]
	c.Rope.Scaling = RopeScaling{Kind: RopeLinear, Factor: 2, Divisors: []float32{1, 8}}
	if _, err := c.CheckpointConfig("float32"); err == nil {
		t.Error("linear scaling with divisors was written")
	}
}

// TestCheckpointTensorsRefuses: what is no GGUF, or not the model that its keys describe, has no checkpoint.
func TestCheckpointTensorsRefuses(t *testing.T) {
	var b bytes.Buffer
	if err := weights.WriteSafetensors(&b, nil, nil); err != nil {
		t.Fatal(err)
	}
	f, err := weights.ParseSafetensors("m.safetensors", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := CheckpointTensors(f, Config{}); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("safetensors: %v", err)
	}
	b.Reset()
	if err := weights.WriteGGUF(&b, nil, nil); err != nil {
		t.Fatal(err)
	}
	if f, err = weights.ParseGGUF("m.gguf", b.Bytes()); err != nil {
		t.Fatal(err)
	}
	if _, err := CheckpointTensors(f, randomShapes["tiny"]); err == nil || !strings.Contains(err.Error(), "token_embd.weight is missing") {
		t.Errorf("no tensors: %v", err)
	}
}
