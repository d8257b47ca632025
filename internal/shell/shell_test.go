package shell

import (
	"strings"
	"testing"
)

// TestQuote holds the forms to what they are; lab/runner's tests hold them to a shell.
func TestQuote(t *testing.T) {
	for word, want := range map[string]string{"plain-word_1./:,=@%+": "plain-word_1./:,=@%+", "=ls": "'=ls'", "/a:=ls": "'/a:=ls'", "": "''", "it's": `'it'\''s'`} {
		if got := Quote(word); got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
	for path, want := range map[string]string{"-out": "./-out", "--my out": "'./--my out'", "/-out": "/-out", "a": "a"} {
		if got := Path(path); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
	if got := strings.Join(Assignments(map[string]string{"B": "a b", "A": "=x", "C": ""}), " "); got != "A='=x' B='a b' C=''" {
		t.Error(got)
	}
}
