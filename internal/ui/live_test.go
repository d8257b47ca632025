package ui

import (
	"bytes"
	"testing"
)

func TestLiveOverwrites(t *testing.T) {
	var b bytes.Buffer
	l := NewLive(&b)
	for _, text := range []string{"a\nb\n", "c", "", "d\n"} {
		if err := l.Show(text); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := b.String(), "a\nb\n\x1b[2A\r\x1b[Jc\n\x1b[1A\r\x1b[Jd\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
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
