package model

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"draftlab/engine/quant"
	"draftlab/engine/weights"
)

func TestParseRandom(t *testing.T) {
	c, typ, err := ParseRandom("random:llama-3.2-1b-q4_0")
	if err != nil || typ != quant.Q4_0 || c.Layers != 16 || c.Rope.Scaling.Kind != RopeLlama3 {
		t.Errorf("got %+v, %v, %v", c, typ, err)
	}
	for name, want := range map[string]string{
		"llama-3.2-1b":      "llama-3.2-1b, llama-3.2-3b", // no format: lists what there is
		"llama-3.2-2b-q4_0": "qwen3-8b",
		"tiny-q3_k":         "q4_0, q4_1, q4_k",
		"":                  "want SHAPE-FORMAT",
		"-":                 "want SHAPE-FORMAT",
		"smollm2-135m-q4_k": "576",
	} {
		if _, _, err := ParseRandom(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", name, err, want)
		}
	}
}

func TestRandomShapesAreValid(t *testing.T) {
	for _, name := range RandomShapes() {
		c := randomShapes[name]
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := ParseRandom(name + "-q8_0"); err != nil {
			t.Error(err)
		}
	}
}

// TestFillRandom decodes what fillRandom writes: mean 0, the wanted deviation, nothing infinite, no two
// tensors alike, and the same bytes again from the same key.
func TestFillRandom(t *testing.T) {
	const n, std = 1 << 17, 0.02
	for _, name := range RandomFormats() {
		typ := randomTypes[name]
		data := make([]byte, n/typ.BlockElems()*typ.BlockBytes())
		fillRandom(typ, data, 7, std)
		v := make([]float32, n)
		quant.Decode(typ, v, data)
		var sum, squares float64
		for _, x := range v {
			sum += float64(x)
			squares += float64(x) * float64(x)
		}
		mean, got := sum/n, math.Sqrt(squares/n)
		// The mean's own deviation is raised by scales that a block shares; a tenth of std is far beyond it.
		if !(math.Abs(mean) < std/10) || !(math.Abs(got/std-1) < 0.1) {
			t.Errorf("%s: mean %v, deviation %v; want 0 and %v", name, mean, got, std)
		}
		again := make([]byte, len(data))
		fillRandom(typ, again, 7, std)
		if !bytes.Equal(data, again) {
			t.Errorf("%s: two different results from one key", name)
		}
		fillRandom(typ, again, 8, std)
		if bytes.Equal(data, again) {
			t.Errorf("%s: one result from two keys", name)
		}
	}
}

func TestGeneratorReusesMemory(t *testing.T) {
	c, typ, err := ParseRandom("tiny-q4_0")
	if err != nil {
		t.Fatal(err)
	}
	g := newGenerator(&c, typ, 1)
	get := func(name string) weights.Tensor {
		x, ok := g.Tensor(name)
		if !ok {
			t.Fatalf("no tensor %s", name)
		}
		return x
	}
	const up, q = "model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.weight"
	first := get(up)
	want := slices.Clone(first.Data)
	g.Release(first)
	second := get(q) // smaller: takes the buffer
	if &second.Data[0] != &first.Data[0] {
		t.Error("a released buffer is not used again")
	}
	if !bytes.Equal(get(up).Data, want) {
		t.Error("a tensor depends on the order of asking")
	}
	if _, ok := g.Tensor("lm_head.weight"); ok {
		t.Error("a tied model has a head tensor")
	}
}

func BenchmarkFillRandom(b *testing.B) {
	for _, name := range []string{"q4_0", "q4_k", "q8_0", "bf16", "f32"} {
		typ := randomTypes[name]
		data := make([]byte, 1<<14*typ.BlockBytes()*32/max(32, typ.BlockElems()))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				fillRandom(typ, data, 1, 0.02)
			}
		})
	}
}
