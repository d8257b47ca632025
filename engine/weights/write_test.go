package weights

import (
	"bytes"
	"errors"
	"io"
	"math"
	"reflect"
	"testing"

	"draftlab/engine/quant"
)

// sample returns tensors of every kind that both formats hold, in an order that is not by width.
func sample(t *testing.T) []Tensor {
	return []Tensor{
		floatTensor(t, "half", quant.F16, ramp(9), 3, 3),
		FromInts("d2t", []int64{1, -2, math.MinInt64}, 3),
		floatTensor(t, "norm", quant.F32, ramp(5), 5),
		floatTensor(t, "brain", quant.BF16, ramp(8), 2, 2, 2),
		{Name: "i32", Kind: I32, Type: NotWeights, Shape: []int{2}, Data: []byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}},
	}
}

func sameTensors(t *testing.T, f *File, want []Tensor) {
	t.Helper()
	if n := len(f.Tensors()); n != len(want) {
		t.Errorf("%d tensors, want %d", n, len(want))
	}
	for _, w := range want {
		got, ok := f.Tensor(w.Name)
		if !ok || got.Kind != w.Kind || got.Type != w.Type || !bytes.Equal(got.Data, w.Data) ||
			len(got.Shape)+len(w.Shape) > 0 && !reflect.DeepEqual(got.Shape, w.Shape) {
			t.Errorf("%s: got %v %v %v, %d bytes", w.Name, ok, got.TypeName(), got.Shape, len(got.Data))
		}
	}
}

func TestWriteGGUF(t *testing.T) {
	tensors := sample(t)
	for _, typ := range []quant.Type{quant.Q8_0, quant.Q4_0, quant.Q4_1, quant.Q5_0, quant.Q5_1, quant.Q4_K, quant.Q5_K, quant.Q6_K} {
		tensors = append(tensors, floatTensor(t, typ.String(), typ, ramp(512), 2, 256))
	}
	for _, align := range []uint32{32, 8, 4096} {
		var b bytes.Buffer
		if err := WriteGGUF(&b, []KeyValue{{"general.architecture", "llama"}, {alignmentKey, align}}, tensors); err != nil {
			t.Fatal(err)
		}
		f, err := ParseGGUF("m", b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		sameTensors(t, f, tensors)
		for i, got := range f.Tensors() {
			if got.Name != tensors[i].Name || got.Offset%int64(align) != 0 {
				t.Errorf("align %d: tensor %d is %s at %d", align, i, got.Name, got.Offset)
			}
		}
	}
}

func TestWriteSafetensors(t *testing.T) {
	tensors := append(sample(t), FromBools("t2d", []bool{true, false, true}, 3), floatTensor(t, `quo"te <ü>`, quant.F32, []float32{7}))
	var b bytes.Buffer
	if err := WriteSafetensors(&b, map[string]string{"format": "pt"}, tensors); err != nil {
		t.Fatal(err)
	}
	f, err := ParseSafetensors("m", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	sameTensors(t, f, tensors)
	for _, got := range f.Tensors() {
		if w := int64(got.elementBytes()); got.Offset%w != 0 {
			t.Errorf("%s lies at %d, not a multiple of %d", got.Name, got.Offset, w)
		}
	}
	b.Reset()
	if err := WriteSafetensors(&b, nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := ParseSafetensors("m", b.Bytes()); err != nil {
		t.Errorf("a file of nothing: %v", err)
	}
}

// TestWritersRefuse: what the parsers refuse must not be written, not even in part.
func TestWritersRefuse(t *testing.T) {
	ok := floatTensor(t, "w", quant.F32, ramp(2), 2)
	with := func(change func(*Tensor)) []Tensor {
		bad := ok
		change(&bad)
		return []Tensor{bad}
	}
	for name, c := range map[string]struct {
		meta    []KeyValue
		tensors []Tensor
		gguf    string // what the error of each writer says; empty if it must write
		st      string
	}{
		"twice":           {nil, []Tensor{ok, ok}, "occurs twice", "occurs twice"},
		"no name":         {nil, with(func(t *Tensor) { t.Name = "" }), "empty", "empty"},
		"name not UTF-8":  {nil, with(func(t *Tensor) { t.Name = "\xff" }), "not UTF-8", "not UTF-8"},
		"reserved":        {nil, with(func(t *Tensor) { t.Name = metadataKey }), "", "reserved"},
		"short data":      {nil, with(func(t *Tensor) { t.Data = t.Data[:7] }), "7 bytes of data", "7 bytes of data"},
		"dimension 0":     {nil, with(func(t *Tensor) { t.Shape = []int{2, 0} }), "dimension of 0", "dimension of 0"},
		"overflow":        {nil, with(func(t *Tensor) { t.Shape = []int{maxInt / 16, 64} }), "overflows", "overflows"},
		"unknown type":    {nil, with(func(t *Tensor) { t.Type = 99 }), "unknown tensor type", "unknown tensor type"},
		"unknown kind":    {nil, with(func(t *Tensor) { t.Kind = 99 }), "unknown kind", "unknown kind"},
		"scalar":          {nil, []Tensor{floatTensor(t, "w", quant.F32, ramp(1))}, "0 dimensions", ""},
		"five dimensions": {nil, []Tensor{floatTensor(t, "w", quant.F32, ramp(2), 1, 1, 1, 1, 2)}, "5 dimensions", ""},
		"nine dimensions": {nil, []Tensor{floatTensor(t, "w", quant.F32, ramp(2), 1, 1, 1, 1, 1, 1, 1, 1, 2)}, "9 dimensions", "9 dimensions"},
		"boolean":         {nil, []Tensor{FromBools("w", []bool{true}, 1)}, "no type for booleans", ""},
		"blocks":          {nil, []Tensor{floatTensor(t, "w", quant.Q4_0, ramp(32), 32)}, "", "no element type Q4_0"},
		"key twice":       {[]KeyValue{{"k", "a"}, {"k", "b"}}, nil, `key "k" occurs twice`, ""},
		"no key":          {[]KeyValue{{"", "a"}}, nil, "empty", ""},
		"value":           {[]KeyValue{{"k", 7}}, nil, "Go type int cannot", ""},
		"nil value":       {[]KeyValue{{"k", nil}}, nil, "Go type <nil> cannot", ""},
		"alignment":       {[]KeyValue{{alignmentKey, uint32(12)}}, nil, "multiple of 8", ""},
		"alignment type":  {[]KeyValue{{alignmentKey, "32"}}, nil, "want a uint32", ""},
		"shard":           {[]KeyValue{{splitCountKey, uint16(2)}}, nil, "split.count", ""},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(err error, b *bytes.Buffer, want string) {
				t.Helper()
				if want == "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				wantError(t, err, "write ", want)
				if b.Len() > 0 {
					t.Errorf("%d bytes were written", b.Len())
				}
			}
			var b bytes.Buffer
			check(WriteGGUF(&b, c.meta, c.tensors), &b, c.gguf)
			b.Reset()
			check(WriteSafetensors(&b, nil, c.tensors), &b, c.st)
		})
	}
	wantError(t, WriteSafetensors(&bytes.Buffer{}, map[string]string{"a": "\xff"}, nil), "not UTF-8")
}

// failingWriter takes n bytes and then fails.
type failingWriter struct{ n int }

var errFull = errors.New("disk full")

func (w *failingWriter) Write(p []byte) (int, error) {
	if len(p) > w.n {
		return 0, errFull
	}
	w.n -= len(p)
	return len(p), nil
}

func TestWritersPassErrorsOn(t *testing.T) {
	writers := map[string]func(io.Writer) error{
		"GGUF":        func(w io.Writer) error { return WriteGGUF(w, nil, sample(t)) },
		"safetensors": func(w io.Writer) error { return WriteSafetensors(w, nil, sample(t)) },
	}
	for name, write := range writers {
		var whole bytes.Buffer
		if err := write(&whole); err != nil {
			t.Fatal(err)
		}
		for n := range whole.Len() {
			if err := write(&failingWriter{n}); !errors.Is(err, errFull) {
				t.Errorf("%s, failing after %d bytes: %v", name, n, err)
			}
		}
	}
}

func TestConstructors(t *testing.T) {
	_, err := FromFloats("w", quant.F32, ramp(4), 5)
	wantError(t, err, `tensor "w"`, "shape [5] for 4 values")
	_, err = FromFloats("w", quant.Q8_0, ramp(33), 33)
	wantError(t, err, `tensor "w"`, "multiple of the 32")
	_, err = Tensor{Name: "w", Kind: Bool, Type: NotWeights, Shape: []int{1}, Data: []byte{2}}.Bools()
	wantError(t, err, "element 0 is the byte 2")
	_, err = Tensor{Name: "w", Shape: []int{2}, Data: make([]byte, 4)}.Floats()
	wantError(t, err, "4 bytes of data")
}
