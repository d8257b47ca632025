package quant

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestF16RoundTrip(t *testing.T) {
	for h := range 1 << 16 {
		f := F16ToF32(uint16(h))
		back := F32ToF16(f)
		if f != f {
			if back&0x7fff <= 0x7c00 || back>>15 != uint16(h)>>15 {
				t.Fatalf("NaN %04x came back as %04x", h, back)
			}
		} else if back != uint16(h) {
			t.Fatalf("%04x is %v and came back as %04x", h, f, back)
		}
		if b := BF16ToF32(uint16(h)); b == b && F32ToBF16(b) != uint16(h) {
			t.Fatalf("bfloat16 %04x came back as %04x", h, F32ToBF16(b))
		}
	}
}

// TestF16Nearest checks that no neighbour is closer, and that a tie goes to the even one.
func TestF16Nearest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		// Exponents around the halves' range, so that denormals, normals and overflow all occur.
		f := math.Float32frombits(rng.Uint32()&0x807fffff | (100+rng.Uint32N(45))<<23)
		if rng.IntN(4) == 0 {
			f = math.Float32frombits(math.Float32bits(f) &^ 0xfff) // ties
		}
		h := F32ToF16(f)
		if math.Abs(float64(f)) >= 65520 {
			if h&0x7fff != 0x7c00 {
				t.Fatalf("%v became %04x, want an infinity", f, h)
			}
			continue
		}
		dist := func(h uint16) float64 {
			v := float64(F16ToF32(h))
			if math.IsInf(v, 0) {
				v = math.Copysign(65536, v) // where the next half would lie
			}
			return math.Abs(v - float64(f))
		}
		for _, other := range []uint16{h - 1, h + 1} {
			if other&0x7fff > 0x7c00 || other>>15 != h>>15 {
				continue
			}
			if dist(other) < dist(h) || dist(other) == dist(h) && h&1 == 1 {
				t.Fatalf("%v became %04x (%v), and %04x (%v) is nearer", f, h, F16ToF32(h), other, F16ToF32(other))
			}
		}
	}
}

// errorBound bounds the error of a block with the given extent and peak: half a step
// of the element's range, the rounding of the scales to an F16 over the whole range, and for the K
// formats the rounding of sub-block scales: half of a 63rd (128th) of the largest, for every step.
func errorBound(typ Type, span, peak float64) float64 {
	f16 := peak * 0x1p-10
	switch typ {
	case F32:
		return 0
	case F16:
		return peak*0x1p-11 + 0x1p-25
	case BF16:
		return peak * 0x1p-8
	case Q8_0:
		return peak/127*0.5 + f16
	case Q4_0:
		return peak/8 + f16 // the end without the extra step is cut by up to a whole step
	case Q5_0:
		return peak/16 + f16
	case Q4_1:
		return span/15*0.5 + 2*f16
	case Q5_1:
		return span/31*0.5 + 2*f16
	case Q4_K:
		return span/15*0.5 + span/126 + peak/126 + 2*f16
	case Q5_K:
		return span/31*0.5 + span/126 + peak/126 + 2*f16
	case Q6_K:
		return peak/32 + peak/256 + f16
	}
	panic("no bound for " + typ.String())
}

func TestEncodeErrorBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for typ, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			for trial := range 300 {
				x := make([]float32, 512)
				scale := math.Exp(rng.Float64()*6 - 3)
				for i := range x {
					x[i] = float32((rng.NormFloat64() + float64(trial%5-2)) * scale)
				}
				n, err := RowBytes(typ, len(x))
				if err != nil {
					t.Fatal(err)
				}
				enc, back := make([]byte, n), make([]float32, len(x))
				Encode(typ, enc, x)
				Decode(typ, back, enc)
				for b := 0; b < len(x); b += l.elems {
					checkBlock(t, typ, x[b:b+l.elems], back[b:b+l.elems])
				}
			}
		})
	}
}

func checkBlock(t *testing.T, typ Type, x, back []float32) {
	t.Helper()
	lo, hi := extent(x)
	if typ == Q4_K || typ == Q5_K {
		lo, hi = min(lo, 0), max(hi, 0)
	}
	bound := errorBound(typ, float64(hi)-float64(lo), math.Abs(float64(peak(x))))
	for i := range x {
		if e := math.Abs(float64(x[i]) - float64(back[i])); !(e <= bound) {
			t.Fatalf("%v: element %d: %v came back as %v, off by %v, bound %v", typ, i, x[i], back[i], e, bound)
		}
	}
}

// TestEncodeOwnValues encodes values that the format holds exactly; they must come back exactly.
func TestEncodeOwnValues(t *testing.T) {
	x := make([]float32, 256)
	for i := range x {
		x[i] = float32(i%16) - 8
	}
	x32 := make([]float32, 256)
	for i := range x32 {
		x32[i] = float32(i%32) - 16
	}
	for typ, values := range map[Type][]float32{Q4_0: x, Q4_1: x, Q5_0: x32, Q5_1: x32, F16: x, BF16: x, F32: x} {
		n, _ := RowBytes(typ, len(values))
		enc, back := make([]byte, n), make([]float32, len(values))
		Encode(typ, enc, values)
		Decode(typ, back, enc)
		for i := range values {
			if back[i] != values[i] {
				t.Errorf("%v: %v came back as %v", typ, values[i], back[i])
			}
		}
	}
}

// TestEncodeConstant covers blocks without a range, where a scale of zero must not divide.
func TestEncodeConstant(t *testing.T) {
	for typ, l := range layouts {
		for _, v := range []float32{0, 1, -1} {
			x := make([]float32, l.elems)
			for i := range x {
				x[i] = v
			}
			enc, back := make([]byte, l.bytes), make([]float32, l.elems)
			Encode(typ, enc, x)
			Decode(typ, back, enc)
			for i := range back {
				if math.Abs(float64(back[i]-v)) > 2e-3 {
					t.Errorf("%v: a block of %v decodes to %v", typ, v, back[i])
					break
				}
			}
		}
	}
}

// TestEncodeHostile: NaN and infinity must not fault or read stale memory.
func TestEncodeHostile(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for typ, l := range layouts {
		for _, v := range [][]float32{{nan}, {inf}, {-inf, inf}, {nan, 1, -inf}, {math.MaxFloat32, -math.MaxFloat32}, {1e-45}} {
			x := make([]float32, l.elems)
			for i := range x {
				x[i] = v[i%len(v)]
			}
			a, b := make([]byte, l.bytes), bytes.Repeat([]byte{0xff}, l.bytes)
			Encode(typ, a, x)
			Encode(typ, b, x)
			if !bytes.Equal(a, b) {
				t.Errorf("%v of %v depends on what dst held", typ, v)
			}
		}
	}
}

func TestScaleMinPacking(t *testing.T) {
	var p [12]byte
	for s := range 8 {
		putScaleMin(p[:], s, byte(s*9%64), byte(63-s*7))
	}
	for s := range 8 {
		if scale, min := scaleMin(p[:], s); scale != byte(s*9%64) || min != byte(63-s*7) {
			t.Errorf("sub-block %d: got %d and %d", s, scale, min)
		}
	}
}

func TestRowBytes(t *testing.T) {
	for _, c := range []struct {
		typ   Type
		cols  int
		bytes int
		err   string
	}{
		{F32, 3, 12, ""}, {BF16, 5, 10, ""}, {Q8_0, 64, 68, ""}, {Q4_1, 576, 360, ""}, {Q6_K, 512, 420, ""},
		{Q4_0, 33, 0, "multiple of the 32 of a Q4_0 block"},
		{Q4_K, 128, 0, "multiple of the 256"},
		{F32, 0, 0, "a row of 0"}, {F32, -4, 0, "a row of -4"},
		{F32, maxInt/4 + 1, 0, "too long"},
		{Type(4), 32, 0, "unknown tensor type 4"},
	} {
		n, err := RowBytes(c.typ, c.cols)
		if n != c.bytes || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("RowBytes(%v, %d) = %d, %v; want %d, %q", c.typ, c.cols, n, err, c.bytes, c.err)
		}
	}
}

func TestTypeNames(t *testing.T) {
	for typ, l := range layouts {
		if got, ok := byName(typ.String()); !ok || got != typ {
			t.Errorf("%v and %v have one name", typ, got)
		}
		if typ.BlockElems() != l.elems || typ.BlockBytes() != l.bytes || !typ.Known() {
			t.Errorf("%v: layout does not agree", typ)
		}
	}
	for typ, name := range foreign {
		if typ.Known() || typ.String() != name {
			t.Errorf("%d is %v, not %s", uint32(typ), typ, name)
		}
	}
	if Type(7777).Known() || Type(7777).String() != "type(7777)" {
		t.Error("an unknown type passes for a known one")
	}
}

func TestContractPanics(t *testing.T) {
	for name, call := range map[string]func(){
		"unknown type": func() { Decode(Type(99), nil, nil) },
		"short source": func() { Decode(Q8_0, make([]float32, 32), make([]byte, 33)) },
		"half a block": func() { Decode(Q8_0, make([]float32, 16), make([]byte, 17)) },
		"long target":  func() { Encode(Q4_1, make([]byte, 40), make([]float32, 32)) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if r, ok := recover().(string); !ok || !strings.HasPrefix(r, "quant: ") {
					t.Errorf("recovered %v, want a panic of this package", r)
				}
			}()
			call()
		})
	}
}

// FuzzBlocks decodes arbitrary blocks and encodes what came out: nothing may panic, the neighbours
// of the target must stay, and a second decoding must agree with the first.
func FuzzBlocks(f *testing.F) {
	for typ := range layouts {
		f.Add(uint32(typ), bytes.Repeat([]byte{0xff, 0x7c, 0x01}, 100))
	}
	f.Fuzz(func(t *testing.T, typ uint32, src []byte) {
		l, ok := layouts[Type(typ)]
		if !ok || len(src) < l.bytes {
			return
		}
		src = src[:l.bytes]
		buf := make([]float32, l.elems+2)
		buf[0], buf[l.elems+1] = 42, 43
		dst := buf[1 : l.elems+1]
		Decode(Type(typ), dst, src)
		if buf[0] != 42 || buf[l.elems+1] != 43 {
			t.Fatal("Decode wrote outside its target")
		}
		enc := bytes.Repeat([]byte{7}, l.bytes+2)
		Encode(Type(typ), enc[1:l.bytes+1], dst)
		if enc[0] != 7 || enc[l.bytes+1] != 7 {
			t.Fatal("Encode wrote outside its target")
		}
		again := make([]float32, l.elems)
		Decode(Type(typ), again, src)
		for i := range again {
			if !sameFloat(again[i], dst[i]) {
				t.Fatalf("element %d decoded to %v and then to %v", i, dst[i], again[i])
			}
		}
	})
}
