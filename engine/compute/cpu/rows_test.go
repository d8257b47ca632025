package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"draftlab/engine/compute"
	"draftlab/engine/compute/cpu/kernel"
)

// newTest returns a device on the machine's best kernels.
func newTest(t *testing.T, threads int) *Device {
	t.Helper()
	d, err := New(threads, kernel.Best())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// randomTensor returns a tensor whose padding is not 0.
func randomTensor(d *Device, rows, cols int) *tensor {
	x := d.NewTensor(rows, cols).(*tensor)
	rng := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	for i := range x.data {
		x.data[i] = float32(rng.NormFloat64())
	}
	return x
}

// TestNormInto: the columns written are those of RMSNorm, the others stay, and a tensor may be normed in place.
func TestNormInto(t *testing.T) {
	for threads := 1; threads <= 3; threads++ {
		d := newTest(t, threads)
		x, y, z := randomTensor(d, 7, 48), randomTensor(d, 7, 112), randomTensor(d, 7, 48)
		copy(z.data, x.data)
		before := slices.Clone(y.data)
		gain := d.NewVector(randomTensor(d, 1, 48).row(0)[:48])
		b := compute.NewBatch(7, 1, 1)
		p := d.Record(b, func(r compute.Recorder) {
			r.NormInto(y, 32, x, gain, 1e-5)
			r.NormInto(z, 0, z, gain, 1e-5)
		})
		b.Rows = 5
		d.Run(p)
		for r := range 7 {
			want := slices.Clone(before[r*y.ld : (r+1)*y.ld])
			if r < 5 {
				d.set.RMSNorm(&want[32], x.at(r, 0), &gain.(*vector).data[0], 48, 1e-5)
			}
			if !slices.Equal(y.row(r), want) {
				t.Fatalf("%d threads: row %d differs", threads, r)
			}
			if r < 5 && !slices.Equal(z.row(r)[:48], want[32:80]) {
				t.Fatalf("%d threads: row %d differs in place", threads, r)
			}
		}
	}
}

// TestGather: rows come from one tensor or the other, and columns beside them stay.
func TestGather(t *testing.T) {
	for threads := 1; threads <= 3; threads++ {
		d := newTest(t, threads)
		src, prev, dst := randomTensor(d, 9, 40), randomTensor(d, 4, 40), randomTensor(d, 6, 96)
		before := slices.Clone(dst.data)
		b := compute.NewBatch(6, 1, 1)
		p := d.Record(b, func(r compute.Recorder) { r.Gather(dst, 48, src, prev) })
		b.Rows = 5
		copy(b.From, []int32{8, ^3, 0, ^0, 8})
		d.Run(p)
		for r := range 6 {
			want := slices.Clone(before[r*dst.ld : (r+1)*dst.ld])
			switch {
			case r == 5:
			case b.From[r] < 0:
				copy(want[48:], prev.row(int(^b.From[r]))[:40])
			default:
				copy(want[48:], src.row(int(b.From[r]))[:40])
			}
			if !slices.Equal(dst.row(r), want) {
				t.Fatalf("%d threads: row %d differs", threads, r)
			}
		}
	}
}

func TestCopyRow(t *testing.T) {
	d := newTest(t, 1)
	x, y := randomTensor(d, 3, 40), randomTensor(d, 5, 40)
	d.CopyRow(y, 4, x, 1)
	if !slices.Equal(y.row(4), x.row(1)) {
		t.Error("the row differs")
	}
}

// topKOf lists the top candidates of rows of logits.
func topKOf(t *testing.T, threads int, rows [][]float32, top, room int) *compute.Batch {
	t.Helper()
	d := newTest(t, threads)
	logits := d.NewTensor(len(rows), len(rows[0])).(*tensor)
	for i := range logits.data {
		logits.data[i] = 1e30 // padding that must not count
	}
	b := compute.NewBatch(len(rows), 1, len(rows))
	b.GrowTop(room)
	b.Top, b.Rows = top, len(rows)
	for i, x := range rows {
		copy(logits.row(i), x)
		b.WantLogits(i)
		at := d.set.ArgMax(&x[0], len(x))
		b.Best[i], b.BestLogit[i] = int32(at), x[at]
	}
	d.Run(d.Record(b, func(r compute.Recorder) {
		r.SelectOut(d.NewTensor(len(rows), 16), d.NewTensor(len(rows), 16))
		r.TopK(logits)
	}))
	return b
}

// TestTopK compares with a stable sort and a soft-max in float64, with ties, infinities and NaN among the logits.
func TestTopK(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	rng := rand.New(rand.NewPCG(4, 4))
	for _, cols := range []int{1, 3, 16, 77, 1000} {
		rows := make([][]float32, 12)
		for i := range rows {
			rows[i] = make([]float32, cols)
			for j := range rows[i] {
				rows[i][j] = float32(rng.IntN(1 + 40*i)) // many ties in the first rows
				if i == 3 && rng.IntN(4) == 0 {
					rows[i][j] = nan
				}
				if i == 4 && rng.IntN(2) == 0 {
					rows[i][j] = -inf
				}
			}
		}
		rows[5] = slices.Repeat([]float32{nan}, cols)
		for threads := 1; threads <= 3; threads++ {
			for _, top := range []int{0, 1, 2, 5, 16} {
				b := topKOf(t, threads, rows, top, 16)
				for i := range rows {
					checkTopK(t, b, i, rows[i])
				}
			}
		}
	}
}

func checkTopK(t *testing.T, b *compute.Batch, i int, x []float32) {
	t.Helper()
	var order []int32
	var sum float64
	for j, v := range x {
		if v == v {
			order = append(order, int32(j))
		}
		sum += math.Exp(float64(v) - float64(b.BestLogit[i]))
	}
	slices.SortStableFunc(order, func(p, q int32) int {
		if x[p] > x[q] {
			return -1
		} else if x[p] < x[q] {
			return 1
		}
		return 0
	})
	for j := range b.Top {
		id, prob := b.TopID[i*b.MaxTop+j], b.TopProb[i*b.MaxTop+j]
		if j >= len(order) {
			if id != 0 || prob != 0 {
				t.Fatalf("row %d of %d columns, candidate %d: %d with %v, want none", i, len(x), j, id, prob)
			}
			continue
		}
		want := math.Exp(float64(x[order[j]])-float64(b.BestLogit[i])) / sum
		if id != order[j] || math.Abs(float64(prob)-want) > 1e-5 || (prob != prob) != (want != want) {
			t.Fatalf("row %d of %d columns, candidate %d: %d with %v, want %d with %v", i, len(x), j, id, prob, order[j], want)
		}
	}
}

// TestTopKAllocatesNothing, nor does any number of candidates change a probability.
func TestTopKAllocatesNothing(t *testing.T) {
	d := newTest(t, 1)
	logits := randomTensor(d, 2, 8192)
	b := compute.NewBatch(2, 1, 2)
	b.GrowTop(10)
	b.Rows = 2
	for i := range 2 {
		b.WantLogits(i)
		at := d.set.ArgMax(logits.at(i, 0), 8192)
		b.Best[i], b.BestLogit[i] = int32(at), logits.row(i)[at]
	}
	p := d.Record(b, func(r compute.Recorder) { r.TopK(logits) })
	b.Top = 10
	if n := testing.AllocsPerRun(10, func() { d.Run(p) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	probs := slices.Clone(b.TopProb)
	b.Top = 1
	d.Run(p)
	if b.TopProb[0] != probs[0] || b.TopProb[10] != probs[10] {
		t.Error("the first candidate's probability depends on how many are asked for")
	}
}

// BenchmarkTopK is over the default drafter's vocabulary; one call is one row.
func BenchmarkTopK(b *testing.B) {
	d, err := New(1, kernel.Best())
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	logits := randomTensor(d, 1, 8192)
	batch := compute.NewBatch(1, 1, 1)
	batch.GrowTop(10)
	batch.Rows = 1
	batch.WantLogits(0)
	at := d.set.ArgMax(logits.at(0, 0), 8192)
	batch.Best[0], batch.BestLogit[0] = int32(at), logits.row(0)[at]
	p := d.Record(batch, func(r compute.Recorder) { r.TopK(logits) })
	for _, top := range []int{1, 4, 10} {
		b.Run(fmt.Sprint(top), func(b *testing.B) {
			batch.Top = top
			least := time.Hour // the mean is of little use on a busy machine
			for b.Loop() {
				start := time.Now()
				d.Run(p)
				least = min(least, time.Since(start))
			}
			b.ReportMetric(float64(least), "min-ns/row")
		})
	}
}
