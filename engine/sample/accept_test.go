package sample

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawRow draws logits of n tokens, some of them equal, some masked.
func drawRow(t *rapid.T, n int, name string) []float32 {
	row := make([]float32, n)
	for i := range row {
		row[i] = float32(rapid.IntRange(-40, 10).Draw(t, name)) / 4
		if row[i] < -9 && i > 0 {
			row[i] = float32(math.Inf(-1))
		}
	}
	return row
}

// shares returns a distribution over a vocabulary as floats.
func shares(d *Distribution, vocab int) []float64 {
	p := make([]float64, vocab)
	for id := range p {
		p[id] = float64(d.Weight(int32(id))) / float64(d.Total)
	}
	return p
}

// TestAccept holds one test, and the residual and proposal that a rejection leaves, to the rule in floating point, for
// filtered and whole vocabularies of several blocks.
func TestAccept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vocab := rapid.IntRange(2, 3*blockLen).Draw(t, "vocab")
		var ids []int32 // the drafter's tokens
		for id := range vocab {
			if rapid.IntRange(0, 2).Draw(t, "in draft") > 0 {
				ids = append(ids, int32(id))
			}
		}
		if len(ids) == 0 {
			ids = []int32{0}
		}
		p := Defaults()
		p.Temperature = 1
		if rapid.Bool().Draw(t, "filter") {
			p.TopK = rapid.IntRange(1, vocab).Draw(t, "k")
		}
		target, drafter := New(vocab), New(len(ids))
		d, err := target.Distribution(&p, drawRow(t, vocab, "logit"), nil)
		if err != nil {
			t.Fatal(err)
		}
		dq, err := drafter.Distribution(&p, drawRow(t, len(ids), "draft logit"), nil)
		if err != nil {
			t.Fatal(err)
		}
		var q Proposal
		q.Set(&dq, ids)
		var tokens [3]int32
		var probs [3]float32
		n := q.Draw(3, rapid.Uint64().Draw(t, "seed"), 4, tokens[:], probs[:])
		if n != min(3, len(q.IDs)) {
			t.Fatalf("%d candidates of a proposal of %d tokens", n, len(q.IDs))
		}
		whole := shares(&dq, len(ids))
		for i, id := range tokens[:n] {
			at, ok := slices.BinarySearch(ids, id)
			if !ok || slices.Contains(tokens[:i], id) || whole[at] == 0 || probs[i] != float32(whole[at]) {
				t.Fatalf("candidates %v with %v of %v", tokens[:n], probs[:n], q)
			}
			checkAccept(t, &d, &q, vocab, id, rapid.Uint64().Draw(t, "random"))
			if d.Total == 0 {
				t.Fatal("nothing is left")
			}
		}
		if token := d.Draw(rapid.Uint64().Draw(t, "last")); d.Weight(token) == 0 {
			t.Fatalf("token %d of no weight drawn", token)
		}
	})
}

// TestProposalOfMaskedTokens: a token that a filter keeps and the drafter rules out is no candidate.
func TestProposalOfMaskedTokens(t *testing.T) {
	no := float32(math.Inf(-1))
	for name, topK := range map[string]int{"whole": -1, "filtered": 3} {
		p := Defaults()
		p.Temperature, p.TopK = 1, topK
		d, err := New(4).Distribution(&p, []float32{0, no, 1, no}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var q Proposal
		q.Set(&d, []int32{3, 5, 7, 9})
		if !slices.Equal(q.IDs, []int32{3, 7}) || q.Weights[0]+q.Weights[1] != q.Total {
			t.Errorf("%s: %+v", name, q)
		}
	}
}

func checkAccept(t *rapid.T, d *Distribution, q *Proposal, vocab int, id int32, random uint64) {
	before, prop := shares(d, vocab), make([]float64, vocab)
	for i, id := range q.IDs {
		prop[id] = float64(q.Weights[i]) / float64(q.Total)
	}
	qTotal := q.Total
	chance := before[id] / prop[id]
	u := float64(random) / (1 << 64)
	if math.Abs(u-chance) < 1e-9 {
		t.Skip("too close to call in floating point")
	}
	accepted := d.accept(q, id, random)
	left := 0.0
	for i := range before {
		left += max(0, before[i]-prop[i])
	}
	if left > 1e-9 && accepted != (u < chance) {
		t.Fatalf("token %d with p %g and q %g, random %g: accepted %v", id, before[id], prop[id], u, accepted)
	}
	if accepted {
		return
	}
	if left > 1e-6 {
		for i, got := range shares(d, vocab) {
			if want := max(0, before[i]-prop[i]) / left; math.Abs(got-want) > 1e-6 {
				t.Fatalf("residual of token %d is %g, want %g", i, got, want)
			}
		}
	}
	if d.IDs == nil {
		var sums uint64
		for _, s := range d.sums {
			sums += s
		}
		if sums != d.Total {
			t.Fatalf("blocks hold %d, total %d", sums, d.Total)
		}
	}
	at, _ := slices.BinarySearch(q.IDs, id)
	if lost := uint64(math.Round(prop[id] * float64(qTotal))); q.Weights[at] != 0 || math.Abs(float64(qTotal-q.Total)-float64(lost)) > 1+1e-9*float64(lost) {
		t.Fatalf("the proposal still holds token %d, or lost %d instead of %d", id, qTotal-q.Total, lost)
	}
}

// TestAcceptItself: a candidate drawn from the target's own distribution is always accepted.
func TestAcceptItself(t *testing.T) {
	s := New(100)
	p := Defaults()
	p.Temperature = 0.7
	row := make([]float32, 100)
	ids := make([]int32, 100)
	for i := range row {
		row[i], ids[i] = float32(i%13)/3, int32(i)
	}
	var q Proposal
	var tokens [1]int32
	var probs [1]float32
	for seed := range uint64(2000) {
		d, err := s.Distribution(&p, row, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Set(&d, ids)
		q.Draw(1, seed, 3, tokens[:], probs[:])
		if token, at := d.Verify(&q, tokens[:], seed, 3); at != 0 || token != tokens[0] {
			t.Fatalf("seed %d: candidate %d was rejected", seed, tokens[0])
		}
	}
}

func TestVerifyPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a candidate outside the proposal was tested")
		}
	}()
	d := Distribution{IDs: []int32{0, 1}, Weights: []uint64{1, 1}, Total: 2}
	d.Verify(&Proposal{IDs: []int32{0}, Weights: []uint64{1}, Total: 1}, []int32{1}, 0, 0)
}

func TestVerifyAllocatesNothing(t *testing.T) {
	s := New(300)
	p := Defaults()
	p.Temperature = 1
	row, ids := make([]float32, 300), make([]int32, 300)
	for i := range ids {
		ids[i] = int32(i)
	}
	var q Proposal
	var tokens [4]int32
	var probs [4]float32
	if n := testing.AllocsPerRun(50, func() {
		d, err := s.Distribution(&p, row, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Set(&d, ids)
		q.Draw(4, 1, 2, tokens[:], probs[:])
		for i := range 100 {
			row[i]++
		}
		d, _ = s.Distribution(&p, row, nil)
		d.Verify(&q, tokens[:], 1, 2)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkVerify is what rule B adds to a draft and its test, at the default target's vocabulary and its drafter's: one candidate drawn
// and tested, without the target's own distribution, which both rules need.
func BenchmarkVerify(b *testing.B) {
	const vocab, drafted = 49152, 8192
	rng := rand.New(rand.NewPCG(1, 2))
	row, draftRow, ids := make([]float32, vocab), make([]float32, drafted), make([]int32, drafted)
	for i := range row {
		row[i] = float32(rng.NormFloat64() * 3)
	}
	for i := range draftRow {
		draftRow[i], ids[i] = float32(rng.NormFloat64()*3), int32(6*i)
	}
	row[0] = float32(math.Inf(-1))
	target, drafter := New(vocab), New(drafted)
	p := Defaults()
	p.Temperature = 1
	var q Proposal
	var tokens [1]int32
	var probs [1]float32
	for _, part := range []string{"target", "draw", "test"} {
		b.Run(part, func(b *testing.B) {
			d, err := target.Distribution(&p, row, nil)
			if err != nil {
				b.Fatal(err)
			}
			dq, err := drafter.Distribution(&p, draftRow, nil)
			if err != nil {
				b.Fatal(err)
			}
			for i := range b.N {
				switch part {
				case "target":
					d, _ = target.Distribution(&p, row, nil)
				case "draw":
					dq, _ = drafter.Distribution(&p, draftRow, nil)
					q.Set(&dq, ids)
					q.Draw(1, uint64(i), 0, tokens[:], probs[:])
				default: // a rejection, which costs the most
					b.StopTimer()
					d, _ = target.Distribution(&p, row, nil)
					q.Set(&dq, ids)
					b.StartTimer()
					if d.accept(&q, 0, 1) {
						b.Fatal("a token without probability was accepted")
					}
				}
			}
		})
	}
}
