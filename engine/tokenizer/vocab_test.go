package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"draftlab/engine/enginetest"
	"draftlab/engine/weights"
)

// openDefault returns the default model's tokenizer from the cache that internal/hub keeps. Its absence is a failure, since
// parity with a real vocabulary is what these tests are for; -short leaves them out.
func openDefault(t testing.TB) *Tokenizer {
	t.Helper()
	f, err := weights.Open(enginetest.DefaultTarget(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	tok, err := FromGGUF(f.Meta())
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestDefaultModel checks T1 and the chat template with the default model's vocabulary.
func TestDefaultModel(t *testing.T) {
	tok := openDefault(t)
	testParity(t, tok, "default")
	if tok.Vocab() != 49152 {
		t.Errorf("Vocab() = %d", tok.Vocab())
	}
	if got, want := tok.EOG(), []int32{0, 2}; !slices.Equal(got, want) {
		t.Errorf("EOG() = %v; want %v", got, want)
	}
	if id, ok := tok.BOS(); id != 1 || !ok {
		t.Errorf("BOS() = %d, %v", id, ok)
	}
	own, err := os.ReadFile(filepath.Join("testdata", "chat", "smollm2.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	if tok.ChatTemplate() != string(own) {
		t.Error("the model's chat template is not the one in testdata/chat/smollm2.jinja")
	}
	text, err := tok.ApplyChat([]Message{{Role: "user", Content: "Hi"}}, ChatOptions{AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode(text, EncodeOptions{ParseSpecial: true})
	if err != nil {
		t.Fatal(err)
	}
	if ids[0] != 1 || !slices.Contains(ids, 2) {
		t.Errorf("the turn's marks are no control tokens in %v", ids)
	}
}
