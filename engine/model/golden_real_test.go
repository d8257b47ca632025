package model_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"draftlab/engine/compute/cpu/kernel"
	"draftlab/engine/enginetest"
	"draftlab/engine/model"
)

// realGolden is smollm2.golden.safetensors with its JSON half.
type realGolden struct {
	arrays
	Prompts []string // kind/name
	Greedy  []struct {
		Name      string
		PromptIDs []int32   `json:"prompt_ids"`
		TokenIDs  []int32   `json:"token_ids"`
		Margins   []float64 // of each token's logit over the second best
	}
}

func readReal(t *testing.T) *realGolden {
	t.Helper()
	g := &realGolden{arrays: readGolden(t, filepath.Join("testdata", "smollm2.golden.safetensors"))}
	data, err := os.ReadFile(filepath.Join("testdata", "smollm2.golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, g); err != nil {
		t.Fatal(err)
	}
	if len(g.Prompts) != g.sequences() {
		t.Fatalf("%d names for %d prompts", len(g.Prompts), g.sequences())
	}
	return g
}

// longest returns the number of tokens of the longest prompt.
func (g *realGolden) longest() (n int) {
	for i := range g.Prompts {
		ids, _ := g.split(i)
		n = max(n, len(ids))
	}
	return n
}

var realTaps = []int{2, 15, 27}

// TestGoldenReal compares the float32 path with transformers on the default target's dequantised weights.
func TestGoldenReal(t *testing.T) {
	path, g := enginetest.DefaultTarget(t), readReal(t)
	m := load(t, kernel.Best(), path, g.longest(), 64, true, realTaps...)
	t.Run("prompts", func(t *testing.T) { checkPrompts(t, m, g) })
	t.Run("greedy", func(t *testing.T) { checkGreedy(t, m, g) })
}

// nearTie is the margin in logits below which the order of a sum may rightly decide between two tokens: some hundred times
// the difference that the float32 path has been seen to have.
const nearTie = 1e-2

// checkPrompts wants sampled logits and the inputs of layers 2, 15 and 27 within 1e-3 relative, and the arg-max of every position.
func checkPrompts(t *testing.T, m *model.Model, g *realGolden) {
	errs, total := worst{}, tally{}
	for i, name := range g.Prompts {
		ids, first := g.split(i)
		one := tally{}
		feed(t, m, ids, 0, func(pos int, p pass) {
			one.add(g, first+pos, p, pos+1 < len(ids))
			g.compareSamples(errs, i, pos, p)
		})
		total.join(one)
		if one.agree != one.rows && one.lostMargin > nearTie {
			t.Errorf("%s: the arg-max of %d of %d positions differs, one by a margin of %.3g", name, one.rows-one.agree, one.rows, one.lostMargin)
		}
	}
	t.Log(total)
	errs.check(t, 1e-3)
}

// TestGoldenQuantised holds the path that users get (quantised weights as they lie in the file, 8-bit activations, float16 keys and values)
// to the float32 reference: the same arg-max on at least 97 % of positions, and a perplexity within 1 %.
func TestGoldenQuantised(t *testing.T) {
	path, g := enginetest.DefaultTarget(t), readReal(t)
	m := load(t, kernel.Best(), path, g.longest(), 64, false, realTaps...)
	errs, total := worst{}, tally{}
	kinds := map[string]tally{}
	for i, name := range g.Prompts {
		ids, first := g.split(i)
		one := tally{}
		feed(t, m, ids, 0, func(pos int, p pass) {
			one.add(g, first+pos, p, pos+1 < len(ids))
			g.compareSamples(errs, i, pos, p)
		})
		total.join(one)
		kind := filepath.Dir(name)
		sum := kinds[kind]
		sum.join(one)
		kinds[kind] = sum
	}
	for kind, sum := range kinds {
		t.Logf("%-12s %v", kind, sum)
	}
	t.Logf("%-12s %v", "all", total)
	for name, e := range errs {
		t.Logf("%s: relative error %.2e (no limit: this is the cost of 8-bit activations)", name, e)
	}
	if share := total.agreement(); share < 0.97 {
		t.Errorf("the arg-max agrees on %.2f %% of positions, want at least 97 %%", 100*share)
	}
	if change := total.perplexityChange(); math.Abs(change) > 0.01 {
		t.Errorf("perplexity changes by %+.2f %%, want at most 1 %%", 100*change)
	}
}

// checkGreedy generates greedily. The tokens must be those of transformers up to the first near tie, beyond which the two may part.
func checkGreedy(t *testing.T, m *model.Model, g *realGolden) {
	for _, c := range g.Greedy {
		got := generate(t, m, c.PromptIDs, len(c.TokenIDs))
		same := 0
		for same < len(got) && got[same] == c.TokenIDs[same] {
			same++
		}
		t.Logf("%s: %d of %d tokens the same", c.Name, same, len(c.TokenIDs))
		if same < len(got) && c.Margins[same] > nearTie {
			t.Errorf("%s: token %d is %d, want %d (margin %.3g)", c.Name, same, got[same], c.TokenIDs[same], c.Margins[same])
		}
	}
}

// generate returns n greedy tokens after prompt.
func generate(t *testing.T, m *model.Model, prompt []int32, n int) (out []int32) {
	t.Helper()
	next := prompt
	for at := 0; len(out) < n; {
		var best int32
		feed(t, m, next, at, func(_ int, p pass) { best = p.best })
		at += len(next)
		out = append(out, best)
		next = out[len(out)-1:]
	}
	return out
}

// compareSamples compares the logits and taps that the golden file keeps of position pos of prompt i, if it keeps any.
func (g *realGolden) compareSamples(errs worst, i, pos int, p pass) {
	s := g.arrays["sampled.starts"].whole()
	j, ok := slices.BinarySearch(g.arrays["sampled.at"].whole()[s[i]:s[i+1]], int32(pos))
	if !ok {
		return
	}
	j += int(s[i])
	logits := pick(p.logits, g.arrays["sampled.ids"])
	errs.add("logits", logits, g.arrays["sampled.logits"].row(j), float64(g.arrays["sampled.max"].v[j]))
	errs.add("largest logit", []float32{float32(largest(p.logits))}, g.arrays["sampled.max"].row(j), float64(g.arrays["sampled.max"].v[j]))
	for k, layer := range realTaps {
		name := fmt.Sprintf("sampled.tap.%d", layer)
		scale := g.arrays[name+".rms"].row(j)
		errs.add(fmt.Sprintf("tap %d", layer), pick(p.taps[k], g.arrays["sampled.dims"]), g.arrays[name].row(j), float64(scale[0]))
		errs.add(fmt.Sprintf("rms of tap %d", layer), []float32{float32(rms(p.taps[k]))}, scale, float64(scale[0]))
	}
}

// pick returns row at the given indices.
func pick(row []float32, at array) []float32 {
	out := make([]float32, 0, len(at.v))
	for _, i := range at.whole() {
		out = append(out, row[i])
	}
	return out
}

// tally sums what positions have in common with the reference.
type tally struct {
	rows, agree int
	lostMargin  float64 // largest margin of the reference where the arg-max differs
	tokens      int     // positions with a next token
	nll, want   float64 // negative log-likelihood of those next tokens: measured, and the reference's
}

// add notes row r of the golden file. The next token counts if the prompt has one.
func (s *tally) add(g *realGolden, r int, p pass, hasNext bool) {
	a := g.arrays
	s.rows++
	if p.best == int32(a["argmax"].v[r]) {
		s.agree++
	} else {
		s.lostMargin = max(s.lostMargin, float64(a["best"].v[r])-float64(a["second"].v[r]))
	}
	if hasNext {
		s.tokens++
		s.nll += logSumExp(p.logits) - float64(p.logits[int32(a["tokens"].v[r+1])])
		s.want += float64(a["logsumexp"].v[r]) - float64(a["next"].v[r])
	}
}

func (s *tally) join(o tally) {
	s.rows += o.rows
	s.agree += o.agree
	s.lostMargin = max(s.lostMargin, o.lostMargin)
	s.tokens += o.tokens
	s.nll += o.nll
	s.want += o.want
}

func (s tally) agreement() float64 { return float64(s.agree) / float64(s.rows) }

// perplexityChange returns measured over reference perplexity, minus one.
func (s tally) perplexityChange() float64 { return math.Exp((s.nll-s.want)/float64(s.tokens)) - 1 }

// String reports agreement and perplexity.
func (s tally) String() string {
	n := float64(s.tokens)
	return fmt.Sprintf("arg-max agrees on %d of %d positions (%.2f %%, largest margin lost %.3g); perplexity %.4f, reference %.4f (%+.3f %%)",
		s.agree, s.rows, 100*s.agreement(), s.lostMargin, math.Exp(s.nll/n), math.Exp(s.want/n), 100*s.perplexityChange())
}

// logSumExp returns log Σ exp(x) in float64.
func logSumExp(x []float32) float64 {
	top := float64(slices.Max(x))
	var s float64
	for _, v := range x {
		s += math.Exp(float64(v) - top)
	}
	return top + math.Log(s)
}
