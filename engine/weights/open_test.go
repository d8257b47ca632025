package weights

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"draftlab/engine/quant"
)

// TestOpenGGUFOfReference reads what the gguf package wrote (testdata/tiny.py).
func TestOpenGGUFOfReference(t *testing.T) {
	f := mustOpen(t, filepath.Join("testdata", "tiny.gguf"))
	if f.Format() != "gguf" || f.Dir() != "testdata" || f.Path() != filepath.Join("testdata", "tiny.gguf") || f.Size() != 1088 {
		t.Errorf("format %q, dir %q, path %q, size %d", f.Format(), f.Dir(), f.Path(), f.Size())
	}
	m := f.Meta()
	for key, want := range map[string]any{
		"general.architecture": "llama", "llama.block_count": uint32(7), "llama.rope.freq_base": float32(1e4),
		"tokenizer.ggml.add_bos_token": true, "tokenizer.ggml.tokens": []string{"a", "", "né", "Ġthe"},
		"tokenizer.ggml.scores": []float32{0.5, -1}, "tokenizer.ggml.token_type": []int32{1, 3, -2},
		"test.big": ^uint64(0), "test.small": int8(-5),
	} {
		if got, _ := m.Value(key); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %T %v, want %T %v", key, got, got, want, want)
		}
	}
	checkFloats(t, f, "matrix", quant.Q8_0, ramp(128), 0.07, 2, 64)
	checkFloats(t, f, "vector", quant.F32, []float32{1, 2, 3}, 0, 3)
	checkFloats(t, f, "half", quant.F16, ramp(128), 0, 2, 64)
	index, _ := f.Tensor("index")
	if ints, err := index.Int64s(); err != nil || !reflect.DeepEqual(ints, []int64{5, -6}) || index.Type != NotWeights {
		t.Errorf("index: %v, %v, type %v", ints, err, index.Type)
	}
}

// TestOpenSafetensorsOfReference reads what the safetensors package wrote.
func TestOpenSafetensorsOfReference(t *testing.T) {
	f := mustOpen(t, "testdata/tiny.safetensors")
	checkFloats(t, f, "fc.weight", quant.F16, ramp(128), 0, 2, 64)
	checkFloats(t, f, "norm.weight", quant.F32, []float32{1, 2, 3}, 0, 3)
	checkFloats(t, f, "scalar", quant.F32, []float32{2.5}, 0)
	d2t, _ := f.Tensor("d2t")
	if ints, err := d2t.Int64s(); err != nil || !reflect.DeepEqual(ints, []int64{0, 3, -7}) {
		t.Errorf("d2t: %v, %v", ints, err)
	}
	t2d, _ := f.Tensor("t2d")
	if bools, err := t2d.Bools(); err != nil || !reflect.DeepEqual(bools, []bool{true, false, true, true}) {
		t.Errorf("t2d: %v, %v", bools, err)
	}
	if d2t.Type.Known() || d2t.TypeName() != "I64" || t2d.TypeName() != "BOOL" {
		t.Errorf("types %v, %v", d2t.TypeName(), t2d.TypeName())
	}
	if _, err := d2t.Floats(); err == nil {
		t.Error("Floats takes integers for weights")
	}
	if _, err := t2d.Int64s(); err == nil {
		t.Error("Int64s takes booleans for integers")
	}
	if _, err := d2t.Bools(); err == nil {
		t.Error("Bools takes integers for booleans")
	}
}

func checkFloats(t *testing.T, f *File, name string, typ quant.Type, want []float32, tolerance float32, shape ...int) {
	t.Helper()
	tensor, ok := f.Tensor(name)
	if !ok || tensor.Type != typ || fmt.Sprint(tensor.Shape) != fmt.Sprint(shape) {
		t.Errorf("%s: found %v, type %v, shape %v; want %v, %v", name, ok, tensor.Type, tensor.Shape, typ, shape)
		return
	}
	got, err := tensor.Floats()
	if err != nil || len(got) != len(want) {
		t.Errorf("%s: %d values, %v", name, len(got), err)
		return
	}
	for i := range want {
		if d := got[i] - want[i]; d > tolerance || -d > tolerance {
			t.Errorf("%s: element %d is %v, want %v", name, i, got[i], want[i])
			return
		}
	}
}

// TestReleaseKeepsData: a released tensor, and its neighbours on the same page, read as before.
func TestReleaseKeepsData(t *testing.T) {
	f := mustOpen(t, filepath.Join("testdata", "tiny.gguf"))
	matrix, _ := f.Tensor("matrix")
	before := bytes.Clone(matrix.Data)
	for _, tensor := range f.Tensors() {
		f.Release(tensor)
	}
	if !bytes.Equal(before, matrix.Data) {
		t.Error("the tensor's bytes changed")
	}
}

func TestCloseTwice(t *testing.T) {
	f, err := Open("testdata/tiny.gguf")
	if err != nil {
		t.Fatal(err)
	}
	vector, _ := f.Tensor("vector")
	m := f.Meta()
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	f.Release(vector) // must not touch what is unmapped
	if s, ok := m.String("general.architecture"); !ok || s != "llama" {
		t.Error("metadata does not outlive the mapping")
	}
}

func TestOpenChoosesInDirectory(t *testing.T) {
	gguf, tensors := goodGGUF(), st(`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4)
	index := []byte(`{"metadata":{"total_size":4},"weight_map":{"w":"a.safetensors"}}`)
	for name, c := range map[string]struct {
		files map[string][]byte
		path  string // of the model chosen
		err   []string
	}{
		"gguf":              {map[string][]byte{"x.gguf": gguf, "config.json": nil}, "x.gguf", nil},
		"safetensors":       {map[string][]byte{"model.safetensors": tensors}, "model.safetensors", nil},
		"index":             {map[string][]byte{"m.safetensors.index.json": index, "a.safetensors": tensors}, "m.safetensors.index.json", nil},
		"index and another": {map[string][]byte{"m.safetensors.index.json": index, "a.safetensors": tensors, "consolidated.safetensors": tensors}, "m.safetensors.index.json", nil},
		"nothing":           {map[string][]byte{"config.json": nil}, "", []string{"no .gguf"}},
		"two":               {map[string][]byte{"a.gguf": gguf, "b.gguf": gguf}, "", []string{"several models", "a.gguf, b.gguf"}},
		"two formats":       {map[string][]byte{"a.gguf": gguf, "model.safetensors": tensors}, "", []string{"several models"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, data := range c.files {
				writeFile(t, dir, file, data)
			}
			f, err := Open(dir)
			if c.err != nil {
				wantError(t, err, c.err...)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if f.Path() != filepath.Join(dir, c.path) || f.Dir() != dir {
				t.Errorf("path %q, dir %q", f.Path(), f.Dir())
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		path string
		want []string
	}{
		"absent":           {filepath.Join(dir, "absent.gguf"), []string{"absent.gguf"}},
		"empty":            {writeFile(t, dir, "empty.gguf", nil), []string{"empty.gguf: the file is empty"}},
		"text":             {writeFile(t, dir, "note.txt", []byte("hello world")), []string{"neither GGUF nor safetensors", "68 65 6c"}},
		"wrong extension":  {writeFile(t, dir, "x.gguf", st(`{}`, 0)), []string{"not a GGUF file"}},
		"JSON that is not": {writeFile(t, dir, "config.json", []byte(`{"a":[1,{"b":null}]}`)), []string{"no weight_map"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(c.path)
			wantError(t, err, c.want...)
		})
	}
}

// TestOpenByContent: a file in a cache has a hash for a name and no extension.
func TestOpenByContent(t *testing.T) {
	dir := t.TempDir()
	for format, data := range map[string][]byte{"gguf": goodGGUF(), "safetensors": st(`{}`, 0)} {
		if f := mustOpen(t, writeFile(t, dir, "blob-"+format, data)); f.Format() != format {
			t.Errorf("%s was opened as %s", format, f.Format())
		}
	}
}

// TestDirOfLink: the configuration lies beside the link, not beside the blob that it points to.
func TestDirOfLink(t *testing.T) {
	dir := t.TempDir()
	blob := writeFile(t, dir, "blob", goodGGUF())
	snapshot := filepath.Join(dir, "snapshot")
	if err := os.Mkdir(snapshot, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(blob, filepath.Join(snapshot, "m.gguf")); err != nil {
		t.Skip("this system makes no symbolic links: ", err)
	}
	if f := mustOpen(t, snapshot); f.Dir() != snapshot {
		t.Errorf("dir %q, want %q", f.Dir(), snapshot)
	}
}
