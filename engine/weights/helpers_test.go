package weights

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"draftlab/engine/quant"
)

// raw puts GGUF and safetensors files together byte by byte, so that tests can break any field.
type raw struct{ bytes.Buffer }

func (r *raw) u32(v uint32) *raw { r.Write(binary.LittleEndian.AppendUint32(nil, v)); return r }
func (r *raw) u64(v uint64) *raw { r.Write(binary.LittleEndian.AppendUint64(nil, v)); return r }
func (r *raw) str(s string) *raw { r.u64(uint64(len(s))).WriteString(s); return r }
func (r *raw) pad(n int) *raw {
	for r.Len()%n != 0 {
		r.WriteByte(0)
	}
	return r
}
func (r *raw) zeros(n int) *raw { r.Write(make([]byte, n)); return r }

// ggufHead starts a file of version 3.
func ggufHead(tensors, keys uint64) *raw {
	r := &raw{}
	r.WriteString("GGUF")
	return r.u32(3).u64(tensors).u64(keys)
}

// info appends a tensor's entry, dimensions in GGUF's order.
func (r *raw) info(name string, typ uint32, off uint64, dims ...uint64) *raw {
	r.str(name).u32(uint32(len(dims)))
	for _, d := range dims {
		r.u64(d)
	}
	return r.u32(typ).u64(off)
}

// st puts a safetensors file together.
func st(header string, data int) []byte {
	r := (&raw{}).str(header)
	return r.zeros(data).Bytes()
}

// wantError checks that an error is there and says all of the given words.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one that says %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// boundedAlloc checks that parse allocates no more than a small multiple of its input: a count or
// length in a file must not be believed before the file's size has been asked.
func boundedAlloc(t *testing.T, input int, parse func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	parse()
	runtime.ReadMemStats(&after)
	if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(1<<18+64*input); got > limit {
		t.Errorf("%d bytes were allocated for an input of %d, limit %d", got, input, limit)
	}
}

func writeFile(t *testing.T, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustOpen(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func floatTensor(t *testing.T, name string, typ quant.Type, values []float32, shape ...int) Tensor {
	t.Helper()
	tensor, err := FromFloats(name, typ, values, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return tensor
}

// ramp returns n values from -n/8 in steps of a quarter, which F16 and BF16 hold exactly.
func ramp(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(i)/4 - float32(n)/8
	}
	return out
}
