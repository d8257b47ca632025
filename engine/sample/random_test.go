package sample

import "testing"

// Known answers of Philox4x32-10 from Random123's kat_vectors.
func TestPhiloxKnownAnswers(t *testing.T) {
	const f = 0xffffffff
	for _, c := range []struct {
		ctr  [4]uint32
		key  [2]uint32
		want [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{f, f, f, f}, [2]uint32{f, f}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	} {
		if got := philox(c.ctr, c.key); got != c.want {
			t.Errorf("philox(%x, %x) = %x, want %x", c.ctr, c.key, got, c.want)
		}
	}
}

// Uniform's words and their order are part of what a seed means, so they are pinned too.
func TestUniformKnownAnswers(t *testing.T) {
	if got, want := Uniform(0, 0), uint64(0xe169c58d6627e8d5); got != want {
		t.Errorf("Uniform(0, 0) = %#x, want %#x", got, want)
	}
	if a, b := Uniform(1<<32, 0), Uniform(1, 0); a == b {
		t.Error("the seed's high word does not count")
	}
	if a, b := Uniform(7, 1<<32), Uniform(7, 0); a == b {
		t.Error("the position's high word does not count")
	}
}

// Neighbouring positions and neighbouring seeds must give unrelated numbers: the top byte is tested
// by chi-square against uniform (255 degrees of freedom; 341 is the 0.9998 quantile).
func TestUniformIsUniform(t *testing.T) {
	const n = 1 << 16
	for name, draw := range map[string]func(int) uint64{
		"positions": func(i int) uint64 { return Uniform(42, i) },
		"seeds":     func(i int) uint64 { return Uniform(uint64(i), 3) },
	} {
		var bins [256]float64
		for i := range n {
			bins[draw(i)>>56]++
		}
		chi := 0.0
		for _, b := range bins {
			chi += (b - n/256) * (b - n/256) / (n / 256)
		}
		if chi > 341 {
			t.Errorf("%s: chi-square %.0f of 255 degrees of freedom", name, chi)
		}
	}
}

func TestChance(t *testing.T) {
	n := 0
	for position := range 10000 {
		if Chance(3, position, 0.3) {
			n++
		}
		if Chance(3, position, 0) || !Chance(3, position, 1) {
			t.Fatal("probability 0 happened, or 1 did not")
		}
	}
	if n < 2800 || n > 3200 { // over four standard deviations
		t.Errorf("%d of 10000 at probability 0.3", n)
	}
}
