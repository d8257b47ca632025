package drafters

import (
	"os"
	"path/filepath"
	"testing"
)

func TestUnpack(t *testing.T) {
	dir := t.TempDir()
	const name = "smollm2-135m-instruct-eagle3"
	for range 2 {
		got, err := Unpack(name, dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"config.json", "model.safetensors"} {
			want, err := os.ReadFile(filepath.Join(name, file))
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(filepath.Join(got, file))
			if err != nil || string(data) != string(want) {
				t.Errorf("%s: %d bytes unpacked, %d expected, %v", file, len(data), len(want), err)
			}
		}
		// A damaged copy is mended.
		if err := os.WriteFile(filepath.Join(got, "config.json"), []byte("{"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, name, ".unpack-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := Unpack("nosuch", dir); err == nil {
		t.Error("an unknown drafter was unpacked")
	}
}
