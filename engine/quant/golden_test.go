package quant

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"math"
	"os"
	"strings"
	"testing"
)

func byName(name string) (Type, bool) {
	for typ, l := range layouts {
		if l.name == name {
			return typ, true
		}
	}
	return 0, false
}

// TestGolden compares decoding, to the bit, and encoding, byte for byte, with the gguf package's;
// testdata/golden.py made the values.
func TestGolden(t *testing.T) {
	file, err := os.Open("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	decoded, encoded := map[Type]int{}, map[Type]int{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if f[0] == "#" {
			continue
		}
		typ, ok := byName(f[1])
		if !ok {
			t.Fatalf("unknown type %q", f[1])
		}
		if f[0] == "decode" {
			decoded[typ]++
			checkDecode(t, typ, unhex(t, f[2]), floats(unhex(t, f[3])))
		} else {
			encoded[typ]++
			checkEncode(t, typ, floats(unhex(t, f[2])), unhex(t, f[3]))
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for typ := range layouts {
		if typ != F32 && decoded[typ] == 0 {
			t.Errorf("no golden decoding of %v", typ)
		}
		if typ.BlockElems() == 32 && encoded[typ] == 0 {
			t.Errorf("no golden encoding of %v", typ)
		}
	}
}

func checkDecode(t *testing.T, typ Type, src []byte, want []float32) {
	t.Helper()
	kept := bytes.Clone(src)
	got := make([]float32, len(want))
	Decode(typ, got, src)
	for i := range want {
		if !sameFloat(got[i], want[i]) {
			t.Errorf("%v %x: element %d is %v (%08x), want %v (%08x)", typ, src, i,
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
			return
		}
	}
	if !bytes.Equal(kept, src) {
		t.Errorf("%v: Decode changed its input", typ)
	}
}

func checkEncode(t *testing.T, typ Type, src []float32, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	for i := range got {
		got[i] = 0xa5 // an encoder must not rely on zeroed memory
	}
	Encode(typ, got, src)
	if typ == F16 || typ == BF16 { // element by element, because a NaN may be another NaN
		a, b := make([]float32, len(src)), make([]float32, len(src))
		Decode(typ, a, got)
		Decode(typ, b, want)
		for i := range src {
			if !sameFloat(a[i], b[i]) {
				t.Errorf("%v of %v (%08x) is %v, want %v", typ, src[i], math.Float32bits(src[i]), a[i], b[i])
			}
		}
		return
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%v of %v:\n got %x\nwant %x", typ, src, got, want)
	}
}

// sameFloat compares bits, so that -0 differs from 0, and takes all NaNs as one.
func sameFloat(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func floats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	Decode(F32, out, b)
	return out
}
