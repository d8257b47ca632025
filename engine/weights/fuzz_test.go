package weights

import (
	"bytes"
	"os"
	"testing"

	"draftlab/engine/quant"
)

// FuzzGGUF: any bytes give a file or an error. A file's tensors lie inside it, apart from each
// other, with the sizes their shapes ask for; every key can be read; and what is written from it
// reads the same.
func FuzzGGUF(f *testing.F) {
	f.Add(goodGGUF())
	f.Add(reference(f, "testdata/tiny.gguf"))
	f.Add(ggufHead(1, 1).str(alignmentKey).u32(4).u32(8).info("w", uint32(ggufI64), 0, 1).pad(8).zeros(8).Bytes())
	var b bytes.Buffer
	if err := WriteGGUF(&b, allKinds(), nil); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := ParseGGUF("fuzz", data)
		if err != nil {
			return
		}
		checkPlaced(t, file, data)
		m := file.Meta()
		var keys []KeyValue
		for _, k := range m.Keys() {
			m.String(k)
			m.Uint(k)
			m.Int(k)
			m.Float(k)
			m.Bool(k)
			m.Strings(k)
			m.Ints(k)
			m.Floats(k)
			v, _ := m.Value(k)
			switch k {
			case splitCountKey:
				continue
			case alignmentKey: // of any integer type where it is read, of one where it is written
				if a, _ := m.Uint(k); a > 1<<16 {
					return // the padding alone would fill memory
				} else {
					v = uint32(a)
				}
			}
			keys = append(keys, KeyValue{k, v})
		}
		var b bytes.Buffer
		if err := WriteGGUF(&b, keys, file.Tensors()); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := ParseGGUF("again", b.Bytes())
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		sameTensors(t, again, file.Tensors())
		if len(again.Meta().Keys()) != len(keys) {
			t.Errorf("%d keys became %d", len(keys), len(again.Meta().Keys()))
		}
	})
}

// FuzzSafetensors checks the same for safetensors.
func FuzzSafetensors(f *testing.F) {
	f.Add(st(`{"__metadata__":{"format":"pt"},"w":{"dtype":"F16","shape":[2,1],"data_offsets":[0,4]},"b":{"dtype":"BOOL","shape":[],"data_offsets":[4,5]}}`, 5))
	f.Add(st(`{}   `, 0))
	f.Add(reference(f, "testdata/tiny.safetensors"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := ParseSafetensors("fuzz", data)
		if err != nil {
			return
		}
		checkPlaced(t, file, data)
		var b bytes.Buffer
		if err := WriteSafetensors(&b, nil, file.Tensors()); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := ParseSafetensors("again", b.Bytes())
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		sameTensors(t, again, file.Tensors())
	})
}

// FuzzIndex: any text gives an index whose shards have plain names, or an error.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"a":[1,{}]},"weight_map":{"x":"a.safetensors"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		weightMap, shards, err := parseIndex("fuzz", text)
		if err != nil {
			return
		}
		if len(weightMap) == 0 || len(shards) == 0 {
			t.Error("an index of nothing")
		}
		for _, s := range shards {
			if !plainName(s) {
				t.Errorf("shard %q", s)
			}
		}
	})
}

func reference(f *testing.F, path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	return data
}

func checkPlaced(t *testing.T, f *File, data []byte) {
	t.Helper()
	end := int64(0)
	for _, tensor := range f.Tensors() {
		n := int64(len(tensor.Data))
		if tensor.Offset < end || tensor.Offset+n > int64(len(data)) {
			t.Fatalf("%q lies at %d, %d bytes, after %d of %d", tensor.Name, tensor.Offset, n, end, len(data))
		}
		if !bytes.Equal(tensor.Data, data[tensor.Offset:tensor.Offset+n]) {
			t.Fatalf("%q holds other bytes than the file at its offset", tensor.Name)
		}
		if err := tensor.check(); err != nil {
			t.Fatal(err)
		}
		if tensor.Kind != Weights && tensor.Type != NotWeights || tensor.Kind == Weights && !tensor.Type.Known() {
			t.Fatalf("%q: kind %v, type %v", tensor.Name, tensor.Kind, quant.Type(tensor.Type))
		}
		end = tensor.Offset + n
		_, _ = tensor.Floats()
		_, _ = tensor.Int64s()
		_, _ = tensor.Bools()
	}
}
