package model

import "testing"

// TestCost compares with numbers worked out by hand for the default target's shape.
//
//	matrices of a layer: (576+2·192)·576 + 576·576 + 3·1536·576 = 3538944; 30 layers: 106168320
//	embedding and head:  49152·576 = 28311552
//	norms:               (2·30+1)·576 = 35136
func TestCost(t *testing.T) {
	c := randomShapes["smollm2-135m"]
	for _, tc := range []struct {
		name      string
		got, want int64
	}{
		{"parameters", c.ParamCount(), 106168320 + 28311552 + 35136}, // the model card says 135M
		{"matrix multiply-adds", c.MatMACsPerRow(), 106168320 + 28311552},
		{"attention multiply-adds at 512", c.AttentionMACsPerRow(512), 2 * 30 * 576 * 512},
		{"operations at 512", c.FLOPsPerRow(512), 2 * (134479872 + 17694720)},
		{"key/value bytes", c.KVBytesPerToken(false), 2 * 30 * 192 * 2},
		{"key/value bytes in float32", c.KVBytesPerToken(true), 2 * 30 * 192 * 4},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, tc.got, tc.want)
		}
	}
	untied := randomShapes["llama-3.1-8b"]
	if got := untied.ParamCount(); got != 8030261248 { // as published
		t.Errorf("llama-3.1-8b has %d parameters, want 8030261248", got)
	}
	biased := randomShapes["qwen2.5-0.5b"]
	if got := biased.ParamCount(); got != 494032768 { // as published
		t.Errorf("qwen2.5-0.5b has %d parameters, want 494032768", got)
	}
	normed := randomShapes["qwen3-0.6b"]
	if got := normed.ParamCount(); got != 596049920 { // as published
		t.Errorf("qwen3-0.6b has %d parameters, want 596049920", got)
	}
}

// TestWeightBytes: the fake device counts a part's bytes as they lie in the file.
func TestWeightBytes(t *testing.T) {
	m, err := LoadRandom(&fakeDevice{}, "smollm2-135m-q4_1", 1, Options{Context: 64, Blocks: 4, MaxRows: 1, MaxSeqs: 1, MaxOut: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := int64((106168320+28311552)/32*20 + 35136*4)
	if got := m.WeightBytesPerToken(); got != want {
		t.Errorf("%d bytes a pass, want %d", got, want)
	}
	if m.WeightBytes() != want {
		t.Error("a tied model weighs more than a pass reads")
	}
}
