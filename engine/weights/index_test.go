package weights

import (
	"testing"
)

const oneFloat = `{"dtype":"F32","shape":[1],"data_offsets":[0,4]}`

func TestIndex(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "b.safetensors", st(`{"y":`+oneFloat+`}`, 4))
	writeFile(t, dir, "a.safetensors", st(`{"x":{"dtype":"F16","shape":[1],"data_offsets":[4,6]},"z":`+oneFloat+`}`, 6))
	path := writeFile(t, dir, "model.safetensors.index.json", []byte(
		`{"metadata":{"total_size":10,"nested":[{"a":null}]},"weight_map":{"y":"b.safetensors","z":"a.safetensors","x":"a.safetensors"}}`))
	f := mustOpen(t, path)
	var names string
	for _, tensor := range f.Tensors() {
		names += tensor.Name
		if got, ok := f.Tensor(tensor.Name); !ok || got.Offset != tensor.Offset {
			t.Errorf("Tensor(%s) is another one", tensor.Name)
		}
		f.Release(tensor)
	}
	if names != "zxy" {
		t.Errorf("order %s, want shard after shard and each in the order of its data", names)
	}
	if f.Format() != "safetensors" || f.Dir() != dir || len(f.Meta().Keys()) != 0 {
		t.Errorf("format %s, dir %s", f.Format(), f.Dir())
	}
}

func TestIndexHostile(t *testing.T) {
	for name, c := range map[string]struct {
		index string
		want  []string
	}{
		"no map":           {`{"metadata":{}}`, []string{"no weight_map"}},
		"empty map":        {`{"weight_map":{}}`, []string{"no weight_map, or an empty one"}},
		"not an object":    {`[]`, []string{"want {"}},
		"map is an array":  {`{"weight_map":[]}`, []string{"want {"}},
		"map twice":        {`{"weight_map":{"x":"a.safetensors"},"weight_map":{}}`, []string{`"weight_map" occurs twice`}},
		"tensor twice":     {`{"weight_map":{"x":"a.safetensors","x":"a.safetensors"}}`, []string{`"x" occurs twice`}},
		"shard is null":    {`{"weight_map":{"x":null}}`, []string{"want a string"}},
		"parent":           {`{"weight_map":{"x":"../a.safetensors"}}`, []string{"not the name of a .safetensors file beside the index"}},
		"absolute":         {`{"weight_map":{"x":"/a.safetensors"}}`, []string{"not the name"}},
		"folder":           {`{"weight_map":{"x":"sub/a.safetensors"}}`, []string{"not the name"}},
		"backslash":        {`{"weight_map":{"x":"..\\a.safetensors"}}`, []string{"not the name"}},
		"drive":            {`{"weight_map":{"x":"c:a.safetensors"}}`, []string{"not the name"}},
		"NUL":              {`{"weight_map":{"x":"a\u0000.safetensors"}}`, []string{"not the name"}},
		"another kind":     {`{"weight_map":{"x":"passwd"}}`, []string{"not the name"}},
		"shard absent":     {`{"weight_map":{"x":"absent.safetensors"}}`, []string{"shard", "absent.safetensors"}},
		"shard broken":     {`{"weight_map":{"x":"broken.safetensors"}}`, []string{"broken.safetensors: at byte 0"}},
		"tensor absent":    {`{"weight_map":{"x":"a.safetensors","w":"a.safetensors"}}`, []string{`tensor "w" is not in a.safetensors`}},
		"tensor unlisted":  {`{"weight_map":{"y":"a.safetensors"}}`, []string{"a.safetensors", `tensor "x"`, "does not list it"}},
		"tensor elsewhere": {`{"weight_map":{"x":"b.safetensors","y":"a.safetensors"}}`, []string{`tensor "x"`, "does not list it in this shard"}},
		"tensor in both":   {`{"weight_map":{"x":"a.safetensors","y":"b.safetensors"}}`, []string{"b.safetensors", `tensor "x"`}},
		"text behind":      {`{"weight_map":{"x":"a.safetensors"}} {}`, []string{"JSON is not valid"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, dir, "a.safetensors", st(`{"x":`+oneFloat+`}`, 4))
			writeFile(t, dir, "b.safetensors", st(`{"x":`+oneFloat+`}`, 4))
			writeFile(t, dir, "broken.safetensors", []byte("short"))
			f, err := Open(writeFile(t, dir, "model.safetensors.index.json", []byte(c.index)))
			if f != nil {
				t.Error("a file was opened")
			}
			wantError(t, err, c.want...)
		})
	}
}
