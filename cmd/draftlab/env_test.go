package main

import (
	"math"
	"strings"
	"testing"
)

// TestWidth: text is broken for the terminal that it goes to, and as before where there is none.
func TestWidth(t *testing.T) {
	env, _, _ := testEnv(t)
	if w := env.width(env.Stdout); w != 0 {
		t.Errorf("a buffer is a terminal of %d columns", w)
	}
	env.IsTerminal = func(any) bool { return true }
	if w := env.width(env.Stdout); w != math.MaxInt {
		t.Errorf("a terminal that does not tell its width has %d columns", w)
	}
	text := strings.Repeat("words ", 40)
	for width, want := range map[int]int{0: 95, 120: 95, 40: 35, 3: 5, math.MaxInt: 95} { // words are five wide, and not broken
		longest := 0
		for line := range strings.Lines(paragraph(text, width)) {
			longest = max(longest, len(strings.TrimSuffix(line, "\n")))
		}
		if longest != want {
			t.Errorf("%d columns: lines of up to %d, want %d", width, longest, want)
		}
	}
}
