package tokenizer

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// again writes a tokenizer's files and reads them back.
func again(t *testing.T, tok *Tokenizer) *Tokenizer {
	t.Helper()
	f := tok.Files(8192)
	got, err := FromJSON(f.Tokenizer, f.Config, f.ChatTemplate)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestFilesParity: what Files writes tokenises every golden string as Hugging Face tokenizers does with the
// vocabulary that it was written from.
func TestFilesParity(t *testing.T) {
	for _, name := range vocabularies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testParity(t, again(t, load(t, name)), name)
		})
	}
	t.Run("default", func(t *testing.T) {
		t.Parallel()
		tok := again(t, openDefault(t))
		testParity(t, tok, "default")
		for _, name := range []string{"bos_token", "eos_token", "pad_token", "unk_token"} {
			if _, ok := tok.named[name]; !ok {
				t.Errorf("%s is lost", name)
			}
		}
		if tok.ChatTemplate() != openDefault(t).ChatTemplate() {
			t.Error("the chat template changed")
		}
	})
}

// TestFilesAdded: an added token stays outside the model's vocabulary only where Hugging Face would number it so.
func TestFilesAdded(t *testing.T) {
	inVocab := func(tok *Tokenizer, token string) bool {
		var f struct {
			Model struct {
				Vocab map[string]int64 `json:"vocab"`
			} `json:"model"`
		}
		if err := json.Unmarshal(tok.Files(1).Tokenizer, &f); err != nil {
			t.Fatal(err)
		}
		_, ok := f.Model.Vocab[token]
		return ok
	}
	tail := baseSpec()
	middle := baseSpec()
	middle.Tokens = append(middle.Tokens, "zz")
	middle.Types = append(middle.Types, TypeNormal)
	padded := baseSpec()
	padded.Tokens = append(padded.Tokens, "[PAD260]", "[PAD261]")
	padded.Types = append(padded.Types, TypeUnused, TypeUnused)
	holes := baseSpec()
	holes.Tokens, holes.Types = slices.Clone(holes.Tokens), slices.Clone(holes.Types)
	holes.Tokens[7] = ""
	for name, c := range map[string]struct {
		spec   Spec
		inside bool
	}{"tail": {tail, false}, "middle": {middle, true}, "padded": {padded, false}, "holes": {holes, true}} {
		tok, err := FromVocab(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		if got := inVocab(tok, "<|end|>"); got != c.inside {
			t.Errorf("%s: inside is %v", name, got)
		}
		if inVocab(tok, "[PAD260]") {
			t.Errorf("%s: padding is a token", name)
		}
		back := again(t, tok)
		text := "abc<|end|>ab [x] [PAD260] é\x00"
		want, err1 := tok.Encode(text, EncodeOptions{ParseSpecial: true, AddSpecial: true})
		got, err2 := back.Encode(text, EncodeOptions{ParseSpecial: true, AddSpecial: true})
		if err1 != nil || err2 != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v (%v, %v)", name, got, want, err1, err2)
		}
		if !back.Special(258) || back.Special(259) {
			t.Errorf("%s: control tokens changed", name)
		}
	}
}

// TestFilesAround: the tokens that go around a text survive, with whatever they are called.
func TestFilesAround(t *testing.T) {
	s := baseSpec()
	s.Tokens = append(s.Tokens, `<"b&>`)
	s.Types = append(s.Types, TypeControl)
	s.BOS, s.AddBOS, s.AddEOS, s.AddSpacePrefix = 260, true, true, true
	tok, err := FromVocab(s)
	if err != nil {
		t.Fatal(err)
	}
	back := again(t, tok)
	got, err := back.Encode("ab", EncodeOptions{AddSpecial: true})
	if want := []int32{260, 32, 256, 258}; err != nil || !slices.Equal(got, want) {
		t.Errorf("Encode = %v, %v; want %v", got, err, want)
	}
	f := tok.Files(77)
	if !bytes.Contains(f.SpecialTokens, []byte(`"bos_token": "<\"b&>"`)) || !strings.Contains(string(f.Config), `"model_max_length": 77`) {
		t.Errorf("%s\n%s", f.SpecialTokens, f.Config)
	}
}
