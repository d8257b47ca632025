package doctor

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"draftlab/engine/model"
	"draftlab/engine/weights"
)

const shipped = "../../drafters/smollm2-135m-instruct-eagle3"

func target() model.Config {
	return model.Config{Layers: 30, Hidden: 576, Vocab: 49152, MaxContext: 8192, EOS: []int32{2}, Rope: model.RopeConfig{Theta: 100000}}
}

// copyOf returns a copy of the shipped drafter: its config.json with a replacement, its weights patched by a function.
func copyOf(t *testing.T, from, to string, patch func(data []byte, f *weights.File)) string {
	t.Helper()
	dir := t.TempDir()
	config, err := os.ReadFile(filepath.Join(shipped, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if from != "" && !strings.Contains(string(config), from) {
		t.Fatalf("config.json lacks %s", from)
	}
	data, err := os.ReadFile(filepath.Join(shipped, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	if patch != nil {
		f, err := weights.Open(shipped)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		patch(data, f)
	}
	for name, content := range map[string][]byte{"config.json": []byte(strings.Replace(string(config), from, to, 1)), "model.safetensors": data} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func tensor(t *testing.T, f *weights.File, name string) weights.Tensor {
	t.Helper()
	x, ok := f.Tensor(name)
	if !ok {
		t.Fatalf("no tensor %s", name)
	}
	return x
}

func check(t *testing.T, dir string, target model.Config) (codes []string, all []Finding) {
	t.Helper()
	all, err := Check(dir, target)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		codes = append(codes, string(f.Level)+" "+f.Code)
	}
	return codes, all
}

func TestShippedDrafterIsSound(t *testing.T) {
	codes, all := check(t, shipped, target())
	if want := []string{"ok complete", "ok layer_ids", "note draft_vocabulary"}; !slices.Equal(codes, want) {
		t.Errorf("%v, want %v", all, want)
	}
}

func TestFindsFaults(t *testing.T) {
	const key = `"vocab_size": 49152`
	ids := func(list string) string {
		return `"eagle_config": {"eagle_aux_hidden_state_layer_ids": [` + list + `]}, ` + key
	}
	poke := func(name string, value uint16, count int) func([]byte, *weights.File) {
		return func(data []byte, f *weights.File) {
			x := tensor(t, f, name)
			for i := range count {
				binary.LittleEndian.PutUint16(data[int(x.Offset)+2*i:], value)
			}
		}
	}
	wider := target()
	wider.Hidden = 960
	larger := target()
	larger.Vocab = 50000
	rotary := target()
	rotary.Rope.Theta = 10000
	longer := target()
	longer.MaxContext = 131072
	endless := target()
	endless.EOS = []int32{2, 49000}
	for _, c := range []struct {
		name, dir string
		target    model.Config
		want      string
	}{
		{"another width", shipped, wider, "fault hidden_size"},
		{"another vocabulary", shipped, larger, "fault vocab_size"},
		{"another theta", shipped, rotary, "note rope_theta"},
		{"a target of longer texts", shipped, longer, "warning short_context"},
		{"an end that cannot be drafted", shipped, endless, "warning eos_not_drafted"},
		{"ids by input", copyOf(t, key, ids("2, 15, 27"), nil), target(), "note layer_ids_input"},
		{"ids by output", copyOf(t, key, ids("1, 14, 26"), nil), target(), "warning layer_ids_output"},
		{"the embedding", copyOf(t, key, ids("0, 15, 27"), nil), target(), "warning embedding_layer"},
		{"other layers", copyOf(t, key, ids("3, 10, 20"), nil), target(), "warning layer_ids_unusual"},
		{"layers that are not there", copyOf(t, key, ids("2, 15, 31"), nil), target(), "fault layer_ids"},
		{"a variant", copyOf(t, key, `"norm_before_residual": true, `+key, nil), target(), "note variant"},
		{"not a number", copyOf(t, "", "", poke("midlayer.mlp.up_proj.weight", 0x7fc0, 3)), target(), "fault not_finite"},
		{"zeros", copyOf(t, "", "", poke("norm.weight", 0, 576)), target(), "fault all_zero"},
		{"a missing key", copyOf(t, `"hidden_size": 576,`, "", nil), target(), "fault unusable"},
		{"nothing there", t.TempDir(), target(), "fault unusable"},
	} {
		codes, all := check(t, c.dir, c.target)
		if !slices.Contains(codes, c.want) {
			t.Errorf("%s: no %s in %v", c.name, c.want, all)
		}
	}
}

func TestAbsoluteMap(t *testing.T) {
	dir := copyOf(t, "", "", func(data []byte, f *weights.File) {
		x := tensor(t, f, "d2t")
		offsets, err := x.Int64s()
		if err != nil {
			t.Fatal(err)
		}
		for i, off := range offsets {
			binary.LittleEndian.PutUint64(data[int(x.Offset)+8*i:], uint64(off)+uint64(i))
		}
	})
	codes, all := check(t, dir, target())
	if want := []string{"fault unusable", "fault absolute_map"}; !slices.Equal(codes, want) {
		t.Errorf("%v, want %v", all, want)
	}
}
