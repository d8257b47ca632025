package weights

import (
	"errors"
	"math"
	"strings"
	"testing"

	"draftlab/engine/quant"
)

const (
	q4_0 = uint32(quant.Q4_0)
	f32  = uint32(quant.F32)
)

// TestGGUFHostile breaks one field at a time; each error must name what is wrong and where.
func TestGGUFHostile(t *testing.T) {
	for name, c := range map[string]struct {
		data []byte
		want []string
	}{
		"empty":            {nil, []string{"m.gguf: at byte 0", "the magic number needs 4 bytes"}},
		"other magic":      {[]byte("GGML0000"), []string{"not a GGUF file", "47 47 4d 4c"}},
		"only magic":       {[]byte("GGUF"), []string{"at byte 4", "version needs 4 bytes", "cut short"}},
		"version 1":        {append([]byte("GGUF"), 1, 0, 0, 0), []string{"GGUF version 1", "convert"}},
		"version 4":        {append([]byte("GGUF"), 4, 0, 0, 0), []string{"GGUF version 4", "2 and 3"}},
		"big-endian":       {append([]byte("GGUF"), 0, 0, 0, 3), []string{"big-endian"}},
		"tensor count":     {ggufHead(1<<60, 0).Bytes(), []string{"at byte 8", "1152921504606846976 tensors cannot fit"}},
		"key count":        {ggufHead(0, math.MaxUint64).Bytes(), []string{"at byte 16", "keys cannot fit"}},
		"key length":       {ggufHead(0, 1).u64(1 << 62).zeros(99).Bytes(), []string{"at byte 24", "a key of 4611686018427387904 bytes"}},
		"empty key":        {ggufHead(0, 1).str("").zeros(99).Bytes(), []string{"at byte 24", "empty or not UTF-8"}},
		"key not UTF-8":    {ggufHead(0, 1).str("a\xff").zeros(99).Bytes(), []string{"not UTF-8"}},
		"value type":       {ggufHead(0, 1).str("k").u32(13).zeros(9).Bytes(), []string{`key "k"`, "unknown value type 13", "at byte 33"}},
		"huge value type":  {ggufHead(0, 1).str("k").u32(math.MaxUint32).zeros(9).Bytes(), []string{"unknown value type 4294967295"}},
		"string length":    {ggufHead(0, 1).str("k").u32(8).u64(math.MaxUint64).Bytes(), []string{"a string needs 18446744073709551615 bytes"}},
		"array length":     {ggufHead(0, 1).str("k").u32(9).u32(0).u64(1 << 40).zeros(99).Bytes(), []string{"an array of 1099511627776 elements cannot fit"}},
		"array too long":   {ggufHead(0, 1).str("k").u32(9).u32(10).u64(13).zeros(99).Bytes(), []string{`the value of key "k" needs 104 bytes`, "99 are left"}},
		"array of arrays":  {ggufHead(0, 1).str("k").u32(9).u32(9).u64(1).zeros(99).Bytes(), []string{"array of arrays"}},
		"strings cut":      {ggufHead(0, 1).str("k").u32(9).u32(8).u64(3).str("a").str("b").Bytes(), []string{"string's length needs 8 bytes"}},
		"boolean":          {ggufHead(0, 1).str("k").u32(7).u32(2).Bytes(), []string{`key "k"`, "boolean with the byte"}},
		"key twice":        {ggufHead(0, 2).str("k").u32(0).zeros(1).str("k").u32(0).zeros(9).Bytes(), []string{`key "k" occurs twice`}},
		"alignment 0":      {ggufHead(0, 1).str(alignmentKey).u32(4).u32(0).Bytes(), []string{"general.alignment", "is 0, not a multiple of 8"}},
		"alignment 12":     {ggufHead(0, 1).str(alignmentKey).u32(4).u32(12).Bytes(), []string{"is 12, not a multiple of 8"}},
		"alignment string": {ggufHead(0, 1).str(alignmentKey).u32(8).str("32").Bytes(), []string{"general.alignment", "of type string, want an integer"}},
		"shard":            {ggufHead(0, 1).str(splitCountKey).u32(4).u32(3).Bytes(), []string{"split.count", "is 3", "join the shards"}},
		"no table":         {ggufHead(1, 0).zeros(8).Bytes(), []string{"1 tensors cannot fit into the 8 bytes"}},
		"empty name":       {ggufHead(1, 0).info("", f32, 0, 1).zeros(64).Bytes(), []string{"a tensor's name", "empty"}},
		"no dimensions":    {ggufHead(1, 0).info("w", f32, 0).zeros(64).Bytes(), []string{`tensor "w" at byte 24`, "0 dimensions"}},
		"five dimensions":  {ggufHead(1, 0).info("w", f32, 0, 1, 1, 1, 1, 1).zeros(64).Bytes(), []string{"5 dimensions, want 1 to 4"}},
		"dimension 0":      {ggufHead(1, 0).info("w", f32, 0, 4, 0).zeros(64).Bytes(), []string{`tensor "w"`, "dimension 1 is 0"}},
		"dimension 2^63":   {ggufHead(1, 0).info("w", f32, 0, 1<<63).zeros(64).Bytes(), []string{"dimension 0 is 9223372036854775808"}},
		"product":          {ggufHead(1, 0).info("w", f32, 0, 1<<32, 1<<32).zeros(64).Bytes(), []string{`tensor "w"`, "overflows"}},
		"product of rows":  {ggufHead(1, 0).info("w", f32, 0, 1, 1<<31, 1<<31, 1<<31).zeros(64).Bytes(), []string{"overflows"}},
		"long row":         {ggufHead(1, 0).info("w", f32, 0, 1<<62).zeros(64).Bytes(), []string{"too long"}},
		"unknown type":     {ggufHead(1, 0).info("w", 99, 0, 32).zeros(64).Bytes(), []string{`tensor "w"`, "its format is type(99)"}},
		"removed type":     {ggufHead(1, 0).info("w", 4, 0, 32).zeros(64).Bytes(), []string{"its format is type(4)"}},
		"not weights":      {ggufHead(1, 0).info("w", uint32(NotWeights), 0, 32).zeros(64).Bytes(), []string{"its format is type(4294967295)"}},
		"another's type":   {ggufHead(1, 0).info("w", 11, 0, 256).zeros(128).Bytes(), []string{"its format is Q3_K, which is not read; quantise the model to one of F32, F16, Q4_0,"}},
		"cut block":        {ggufHead(1, 0).info("w", q4_0, 0, 33, 2).zeros(64).Bytes(), []string{`tensor "w"`, "33 elements is not a multiple of the 32"}},
		"misaligned":       {ggufHead(1, 0).info("w", f32, 4, 1).pad(32).zeros(64).Bytes(), []string{`tensor "w" at byte 24`, "offset 4 is not a multiple of 32"}},
		"past the end":     {ggufHead(1, 0).info("w", f32, 32, 9).pad(32).zeros(64).Bytes(), []string{`tensor "w"`, "36 bytes of data at offset 32", "past the end of the file at 128"}},
		"huge offset":      {ggufHead(1, 0).info("w", f32, math.MaxUint64-31, 8).pad(32).zeros(64).Bytes(), []string{"past the end"}},
		"no data at all":   {ggufHead(1, 0).info("w", f32, 0, 1).Bytes(), []string{"past the end"}},
		"name twice":       {ggufHead(2, 0).info("w", f32, 0, 1).info("w", f32, 32, 1).pad(32).zeros(64).Bytes(), []string{`tensor "w"`, "occurs twice"}},
		"overlap":          {ggufHead(2, 0).info("b", f32, 32, 1).info("a", f32, 0, 9).pad(32).zeros(64).Bytes(), []string{`tensor "b" at byte 128`, `overlaps that of tensor "a"`}},
		"same place":       {ggufHead(2, 0).info("a", f32, 0, 1).info("b", f32, 0, 1).pad(32).zeros(64).Bytes(), []string{"overlaps"}},
	} {
		t.Run(name, func(t *testing.T) {
			var f *File
			var err error
			boundedAlloc(t, len(c.data), func() { f, err = ParseGGUF("m.gguf", c.data) })
			if f != nil && err != nil {
				t.Error("a file and an error")
			}
			wantError(t, err, append(c.want, "m.gguf: ")...)
			var fe *FormatError
			if !errors.As(err, &fe) {
				t.Errorf("%T is not a FormatError", err)
			}
		})
	}
}

// TestGGUFTruncated cuts a good file at every length: each must be refused, none may panic.
func TestGGUFTruncated(t *testing.T) {
	good := goodGGUF()
	if _, err := ParseGGUF("m", good); err != nil {
		t.Fatal(err)
	}
	for n := range good {
		if _, err := ParseGGUF("m", good[:n:n]); err == nil {
			t.Errorf("%d of %d bytes were taken for a whole file", n, len(good))
		}
	}
}

// goodGGUF is a file of two tensors and three keys that ends with its last tensor's last byte.
func goodGGUF() []byte {
	r := ggufHead(2, 3).str("general.architecture").u32(8).str("llama")
	r.str("n").u32(4).u32(7)
	r.str("tokens").u32(9).u32(8).u64(2).str("a").str("bc")
	r.info("m", q4_0, 32, 32, 2).info("v", f32, 0, 3)
	return r.pad(32).zeros(32 + 36).Bytes()
}

func TestGGUFLayout(t *testing.T) {
	f, err := ParseGGUF("m", goodGGUF())
	if err != nil {
		t.Fatal(err)
	}
	ts := f.Tensors()
	if len(ts) != 2 || ts[0].Name != "v" || ts[1].Name != "m" {
		t.Fatalf("tensors are not in the order of their data: %v", ts)
	}
	if m := ts[1]; len(m.Shape) != 2 || m.Shape[0] != 2 || m.Shape[1] != 32 || m.Elements() != 64 || len(m.Data) != 36 || cap(m.Data) != 36 {
		t.Errorf("matrix: shape %v, %d bytes of capacity %d", m.Shape, len(m.Data), cap(m.Data))
	}
	if ts[1].Offset != ts[0].Offset+32 {
		t.Errorf("offsets %d and %d", ts[0].Offset, ts[1].Offset)
	}
	if v, ok := f.Tensor("v"); !ok || v.Offset != ts[0].Offset {
		t.Error("Tensor does not find v")
	}
	if _, ok := f.Tensor("w"); ok {
		t.Error("Tensor finds what is not there")
	}
	if f.Dir() != "" || f.Format() != "gguf" || f.Size() != int64(len(goodGGUF())) {
		t.Errorf("dir %q, format %q, size %d", f.Dir(), f.Format(), f.Size())
	}
	f.Release(ts[0]) // not mapped: nothing to do
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestGGUFVersion2AndAlignment: version 2 differs from 3 only in the number, and a file may choose its alignment.
func TestGGUFVersion2AndAlignment(t *testing.T) {
	r := ggufHead(2, 1).str(alignmentKey).u32(4).u32(8)
	data := r.info("a", f32, 0, 1).info("b", f32, 8, 2).pad(8).zeros(16).Bytes()
	data[4] = 2
	f, err := ParseGGUF("m", data)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := f.Tensor("b"); b.Offset != int64(len(data)-8) {
		t.Errorf("b lies at %d of %d", b.Offset, len(data))
	}
}

// TestHostileNamesAreQuoted: a name with control characters must not reach a terminal raw, nor a long one whole.
func TestHostileNamesAreQuoted(t *testing.T) {
	name := "\x1b[2J" + strings.Repeat("x", 50_000)
	_, err := ParseGGUF("m", ggufHead(1, 0).info(name, 99, 0, 32).zeros(64).Bytes())
	wantError(t, err, `\x1b[2Jxxx`, "…")
	if len(err.Error()) > 300 {
		t.Errorf("a message of %d bytes", len(err.Error()))
	}
}
