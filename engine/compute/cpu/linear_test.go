package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"draftlab/engine/compute"
	"draftlab/engine/compute/cpu/kernel"
	"draftlab/engine/quant"
)

// product is one recorded matrix product over random weights and rows.
type product struct {
	y    *tensor
	x    *tensor
	w    [][]float32 // decoded weights
	b    *compute.Batch
	prog compute.Program
	d    *Device
}

func newProduct(t *testing.T, set *kernel.Set, threads, rows, n, k int, in compute.Input, ep compute.Epilogue) *product {
	t.Helper()
	d, err := New(threads, set)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	rng := rand.New(rand.NewPCG(uint64(n), uint64(k)))
	rowBytes, err := quant.RowBytes(quant.Q4_1, k)
	if err != nil {
		t.Fatal(err)
	}
	p := &product{d: d, b: compute.NewBatch(rows, 1, 1)}
	data := make([]byte, n*rowBytes)
	for r := range n {
		row := make([]float32, k)
		for i := range row {
			row[i] = float32(rng.NormFloat64())
		}
		quant.Encode(quant.Q4_1, data[r*rowBytes:(r+1)*rowBytes], row)
		quant.Decode(quant.Q4_1, row, data[r*rowBytes:(r+1)*rowBytes])
		p.w = append(p.w, row)
	}
	m, err := d.NewMatrix(compute.Part{Name: "w", Type: uint32(quant.Q4_1), Rows: n, Cols: k, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	p.x, p.y = d.NewTensor(rows, k).(*tensor), d.NewTensor(rows, n).(*tensor)
	for i := range p.x.data {
		p.x.data[i] = float32(rng.NormFloat64() * math.Exp(rng.NormFloat64())) // with outliers
	}
	op := d.NewOperand(rows, k, in)
	p.prog = d.Record(p.b, func(r compute.Recorder) {
		r.Convert(op, p.x)
		r.MatMul(p.y, m, op, ep)
	})
	return p
}

func (p *product) run(rows int) {
	p.b.Rows = rows
	p.d.Run(p.prog)
}

// rms is the root mean square error of the first rows rows against float64, over that of the result.
func (p *product) rms(rows int) float64 {
	var e, s float64
	for r := range rows {
		for i, w := range p.w {
			want := 0.0
			for k, v := range w {
				want += float64(v) * float64(p.x.row(r)[k])
			}
			d := float64(p.y.row(r)[i]) - want
			e, s = e+d*d, s+want*want
		}
	}
	return math.Sqrt(e / s)
}

// TestTermsBuyPrecision compares one term, two terms and float weights with the exact product.
func TestTermsBuyPrecision(t *testing.T) {
	one := newProduct(t, kernel.Best(), 1, 9, 80, 192, compute.Int8, compute.Store)
	two := newProduct(t, kernel.Best(), 1, 9, 80, 192, compute.Int16, compute.Store)
	one.run(9)
	two.run(9)
	e1, e2 := one.rms(9), two.rms(9)
	t.Logf("relative error: one term %.1e, two terms %.1e", e1, e2)
	if e1 > 2e-2 || e2 > e1/60 {
		t.Errorf("relative error %g with one term and %g with two; want below 2e-2 and a sixtieth", e1, e2)
	}
}

// TestRowsStandAlone computes rows alone, in every tile width and in several tiles (invariant 2), on
// every kernel set and several threads, with both epilogues.
func TestRowsStandAlone(t *testing.T) {
	for _, in := range []compute.Input{compute.Int8, compute.Int16} {
		for _, ep := range []compute.Epilogue{compute.Store, compute.Add} {
			var want []float32
			for _, set := range kernel.Sets()[min(1, len(kernel.Sets())-1):] { // assembly agrees to the bit
				for _, threads := range []int{1, 3} {
					t.Run(fmt.Sprintf("%d/%d/%s/%d", in, ep, set.Name, threads), func(t *testing.T) {
						p := newProduct(t, set, threads, 37, 600, 96, in, ep)
						for rows := 1; rows <= 37; rows++ {
							if rows == 22 {
								rows = wideTiles*kernel.TileRows + 1 // from here on with widened weights
							}
							for i := range p.y.data {
								p.y.data[i] = float32(i % 7)
							}
							p.run(rows)
							if want == nil && rows == 1 {
								want = slices.Clone(p.y.row(0))
							}
							if !slices.Equal(p.y.row(0), want) {
								t.Fatalf("row 0 of %d differs from row 0 alone", rows)
							}
							alone := slices.Clone(p.y.row(rows - 1))
							// The last row again, as the first of a batch of one.
							keep := slices.Clone(p.x.row(0))
							copy(p.x.row(0), p.x.row(rows-1))
							for i := range p.y.row(0) {
								p.y.row(0)[i] = float32(((rows-1)*p.y.ld + i) % 7)
							}
							p.run(1)
							if !slices.Equal(p.y.row(0), alone) {
								t.Fatalf("row %d of %d differs from the same row alone", rows-1, rows)
							}
							copy(p.x.row(0), keep)
						}
					})
				}
			}
		}
	}
}

// TestSwiGLUWidened compares rows alone with the same rows in a batch that widens its weights, through a second
// matrix since operands cannot be read. The weights are two parts, so that chunks meet both.
func TestSwiGLUWidened(t *testing.T) {
	const rows, n, k = wideTiles*kernel.TileRows + 3, 352, 96
	for _, set := range kernel.Sets() {
		d, err := New(2, set)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		rng := rand.New(rand.NewPCG(1, 2))
		part := func(typ quant.Type, rows, cols int) compute.Part {
			size, err := quant.RowBytes(typ, cols)
			if err != nil {
				t.Fatal(err)
			}
			p := compute.Part{Name: "w", Type: uint32(typ), Rows: rows, Cols: cols, Data: make([]byte, rows*size)}
			row := make([]float32, cols)
			for r := range rows {
				for i := range row {
					row[i] = float32(rng.NormFloat64())
				}
				quant.Encode(typ, p.Data[r*size:(r+1)*size], row)
			}
			return p
		}
		matrix := func(parts ...compute.Part) compute.Matrix {
			m, err := d.NewMatrix(parts...)
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		gate := matrix(part(quant.Q4_1, 160, k), part(quant.Q8_0, n-160, k))
		up, down := matrix(part(quant.Q4_0, n, k)), matrix(part(quant.Q4_1, 64, n))
		x, y := d.NewTensor(rows, k).(*tensor), d.NewTensor(rows, 64).(*tensor)
		in, mid := d.NewOperand(rows, k, compute.Int8), d.NewOperand(rows, n, compute.Int8)
		for i := range x.data {
			x.data[i] = float32(rng.NormFloat64())
		}
		b := compute.NewBatch(rows, 1, 1)
		p := d.Record(b, func(r compute.Recorder) {
			r.Convert(in, x)
			r.SwiGLU(mid, gate, up, in)
			r.MatMul(y, down, mid, compute.Store)
		})
		b.Rows = rows
		d.Run(p)
		for r, want := range [][]float32{0: slices.Clone(y.row(0)), rows - 1: slices.Clone(y.row(rows - 1))} {
			if want == nil {
				continue
			}
			b.Rows = 1
			copy(x.row(0), x.row(r))
			d.Run(p)
			if !slices.Equal(y.row(0), want) {
				t.Errorf("%s: row %d of %d differs from the same row alone", set.Name, r, rows)
			}
		}
	}
}

func TestMatrixRefuses(t *testing.T) {
	d, err := New(1, kernel.Best())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	part := func(typ quant.Type, rows, cols int) compute.Part {
		n, err := quant.RowBytes(typ, cols)
		if err != nil {
			n = 1
		}
		return compute.Part{Name: "w", Type: uint32(typ), Rows: rows, Cols: cols, Data: make([]byte, rows*n)}
	}
	short := part(quant.Q8_0, 32, 64)
	short.Data = short.Data[1:]
	for name, parts := range map[string][]compute.Part{
		"odd columns":    {part(quant.F32, 16, 40)},
		"short data":     {short},
		"ragged fusion":  {part(quant.Q8_0, 24, 64), part(quant.Q8_0, 16, 64)},
		"mixed input":    {part(quant.Q8_0, 16, 64), part(quant.F16, 16, 64)},
		"mixed columns":  {part(quant.Q8_0, 16, 64), part(quant.Q8_0, 16, 96)},
		"partial blocks": {part(quant.Q4_K, 16, 96)},
	} {
		if _, err := d.NewMatrix(parts...); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
