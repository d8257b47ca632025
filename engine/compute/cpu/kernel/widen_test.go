package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestWiden holds widened weights to the weights that they were made from, value by value and product by product.
func TestWiden(t *testing.T) {
	const blocks, groups = 16, 3
	for _, s := range Sets() {
		for f := range NumFormats {
			if s.Widen[f] == nil {
				continue
			}
			r := rand.New(rand.NewPCG(uint64(f), 1))
			p := randomProduct(r, f, TileRows, blocks, groups, false)
			wide := *p
			wide.f = f.Wide()
			size := GroupBytes(wide.f, blocks*BlockCols)
			var intact func() bool
			wide.w, intact = guarded(groups * size)
			s.Widen[f](&wide.w[0], &p.w[0], blocks*groups)
			if !intact() {
				t.Fatalf("%s: wrote outside %d groups of %v", s.Name, groups, wide.f)
			}
			want, got := make([]float32, blocks*BlockCols), make([]float32, blocks*BlockCols)
			for lane := range GroupRows {
				DecodeRow(want, f, p.w[len(p.w)/groups:], lane, len(want))
				DecodeRow(got, wide.f, wide.w[size:], lane, len(got))
				if !sameBits(got, want) {
					t.Fatalf("%s: row %d of %v differs from %v", s.Name, lane, wide.f, f)
				}
			}
			a, b := p.run(t, s, groups*GroupRows, false, nil), wide.run(t, s, groups*GroupRows, false, nil)
			for i := range a {
				if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
					t.Fatalf("%s: product %d with %v is %g, with %v %g", s.Name, i, f, a[i], wide.f, b[i])
				}
			}
		}
	}
}
