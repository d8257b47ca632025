package tokenizer

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// vocabularies are the small ones of testdata; testdata/golden.py made them and every expected value.
var vocabularies = []string{"gpt2", "prefix", "smollm", "llama3", "qwen2"}

// golden is what golden.py wrote for one vocabulary.
type golden struct {
	Encode [][]int32       `json:"encode"` // differences between neighbouring ids
	Plain  map[int][]int32 `json:"plain"`
	Lossy  map[int]string  `json:"lossy"`
	Decode []decodeGolden  `json:"decode"`
	Blocks map[rune]string `json:"blocks"`
}

type decodeGolden struct {
	ids           []int32
	text, skipped string
}

func (d *decodeGolden) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&d.ids, &d.text, &d.skipped})
}

func readGzip(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func readJSON(t testing.TB, name string, v any) {
	t.Helper()
	if err := json.Unmarshal(readGzip(t, name), v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func load(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tok, err := FromJSON(readGzip(t, name+".tokenizer.json.gz"), nil, "")
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestParity checks T1: every golden string, both ways, under every small vocabulary.
func TestParity(t *testing.T) {
	for _, name := range vocabularies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testParity(t, load(t, name), name)
		})
	}
}

func testParity(t *testing.T, tok *Tokenizer, name string) {
	var texts []string
	readJSON(t, "strings.json.gz", &texts)
	var g golden
	readJSON(t, name+".golden.json.gz", &g)
	if len(texts) < 3000 || len(g.Encode) != len(texts) || len(g.Decode) < 400 {
		t.Fatalf("goldens hold %d strings, %d encodings, %d decodings", len(texts), len(g.Encode), len(g.Decode))
	}
	bad := 0
	check := func(what, text string, got, want any, equal bool) {
		if !equal {
			if bad++; bad <= 10 {
				t.Errorf("%s of %.200q\n got %s\nwant %s", what, text, brief(got), brief(want))
			}
		}
	}
	for i, text := range texts {
		want := g.Encode[i]
		for j := 1; j < len(want); j++ {
			want[j] += want[j-1]
		}
		got, err := tok.Encode(text, EncodeOptions{ParseSpecial: true, AddSpecial: true})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		check("Encode", text, got, want, slices.Equal(got, want))
		plain, ok := g.Plain[i]
		if !ok {
			plain = want
		}
		if got, err = tok.Encode(text, EncodeOptions{}); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		check("Encode as plain text", text, got, plain, slices.Equal(got, plain))
		back, ok := g.Lossy[i]
		if !ok {
			back = text
		}
		checkDecode(t, tok, want, false, back)
	}
	for _, d := range g.Decode {
		checkDecode(t, tok, d.ids, false, d.text)
		checkDecode(t, tok, d.ids, true, d.skipped)
	}
	if len(g.Blocks) < 50 {
		t.Fatalf("goldens hold %d blocks of code points", len(g.Blocks))
	}
	for lo, want := range g.Blocks {
		got := blockHash(t, tok, lo)
		check("Encode", fmt.Sprintf("the block of code points from %U", lo), got, want, got == want)
	}
	if bad > 10 {
		t.Errorf("%d differences in all", bad)
	}
}

// blockHash hashes the ids of 4096 code points in the contexts that golden.py puts them in.
func blockHash(t *testing.T, tok *Tokenizer, lo rune) string {
	var text, ids strings.Builder
	for c := lo; c < lo+0x1000; c++ {
		if c < 0xD800 || c >= 0xE000 {
			text.WriteString("x" + string(c) + "1" + string(c) + " " + string(c))
		}
	}
	got, err := tok.Encode(text.String(), EncodeOptions{ParseSpecial: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range got {
		if i > 0 {
			ids.WriteByte(' ')
		}
		ids.WriteString(strconv.Itoa(int(id)))
	}
	sum := sha256.Sum256([]byte(ids.String()))
	return hex.EncodeToString(sum[:8])
}

// checkDecode checks Decode and that a Stream says the same piecemeal (T3).
func checkDecode(t *testing.T, tok *Tokenizer, ids []int32, skip bool, want string) {
	t.Helper()
	got := tok.Decode(ids, skip)
	if got != want {
		t.Fatalf("Decode(%s, %v) = %.300q; want %.300q", brief(ids), skip, got, want)
	}
	if got := streamed(t, tok, ids, skip); got != want {
		t.Fatalf("Stream of %s, %v = %.300q; want %.300q", brief(ids), skip, got, want)
	}
}

// brief writes v in at most 300 bytes.
func brief(v any) string {
	s := fmt.Sprint(v)
	return s[:min(len(s), 300)]
}
