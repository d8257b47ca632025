package ui

import (
	"bytes"
	"errors"
	"testing"
)

func TestLiveOverwrites(t *testing.T) {
	var b bytes.Buffer
	l := NewLive(&b, 80)
	for _, text := range []string{"a\nb\n", "c", "", "d\n"} {
		if err := l.Show(text); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := b.String(), "a\nb\n\x1b[2A\r\x1b[Jc\n\x1b[1A\r\x1b[Jd\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLiveCountsWrappedLines: what goes on in the terminal's next line is overwritten, too.
func TestLiveCountsWrappedLines(t *testing.T) {
	for text, lines := range map[string]string{"1234": "1", "12345": "2", "12345678": "2", "größe 模": "2", "123456789\n\n1": "5"} {
		var b bytes.Buffer
		l := NewLive(&b, 4)
		if err := errors.Join(l.Show(text), l.Show("")); err != nil {
			t.Fatal(err)
		}
		if got, want := b.String(), text+"\n\x1b["+lines+"A\r\x1b[J"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestBar(t *testing.T) {
	for _, c := range []struct {
		share      float64
		term, pipe string
	}{
		{0, "", ""}, {1, "████", "####"}, {.5, "██", "##"}, {2, "████", "####"}, {-1, "", ""}, {.53125, "██▏", "##"}, {.71875, "██▉", "###"},
	} {
		if term, pipe := Bar(c.share, 4, true), Bar(c.share, 4, false); term != c.term || pipe != c.pipe {
			t.Errorf("Bar(%v): %q and %q, want %q and %q", c.share, term, pipe, c.term, c.pipe)
		}
	}
}
