package ngram

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// naive drafts by scanning.
func naive(o Options, tokens []int32, k int) (draft []int32) {
	for n := min(o.Max, len(tokens)-1); n >= o.Min; n-- {
		suffix := tokens[len(tokens)-n:]
		for end := len(tokens) - 1; end >= n; end-- {
			if !slices.Equal(tokens[end-n:end], suffix) {
				continue
			}
			text := slices.Clone(tokens)
			for i := range k {
				text = append(text, text[end+i])
			}
			return text[len(tokens):]
		}
	}
	return nil
}

// TestIndex lets a sequence grow and roll back at random, beside the scan.
func TestIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{Min: rapid.IntRange(1, 3).Draw(t, "min")}
		o.Max = o.Min + rapid.IntRange(0, 3).Draw(t, "more")
		x := New(o, rapid.Uint64().Draw(t, "seed"))
		var tokens []int32
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				more := rapid.SliceOfN(rapid.Int32Range(0, 2), 1, 90).Draw(t, "tokens")
				tokens = append(tokens, more...)
				x.Append(more...)
			},
			"truncate": func(t *rapid.T) {
				n := rapid.IntRange(max(0, len(tokens)-20), len(tokens)).Draw(t, "length")
				tokens = tokens[:n]
				x.Truncate(n)
			},
			"reset": func(t *rapid.T) {
				tokens = nil
				x.Reset()
			},
			"reserve": func(t *rapid.T) { x.Reserve(rapid.IntRange(0, 500).Draw(t, "reserve")) },
			"": func(t *rapid.T) {
				if x.Len() != len(tokens) {
					t.Fatalf("Len = %d of %d", x.Len(), len(tokens))
				}
				k := rapid.IntRange(0, 8).Draw(t, "k")
				got, want := x.Draft([]int32{-5}, k), naive(o, tokens, k)
				if got[0] != -5 || !slices.Equal(got[1:], want) {
					t.Fatalf("behind %v: %v, the scan finds %v", tokens, got[1:], want)
				}
			},
		})
	})
}

// TestRollBackLeavesNoTrace compares an index that went back with one that was never there: tables are equal, so no later step can differ.
func TestRollBackLeavesNoTrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, seed := Options{Min: 1, Max: 4}, rapid.Uint64().Draw(t, "seed")
		kept := rapid.SliceOfN(rapid.Int32Range(0, 9), 0, 30).Draw(t, "kept")
		lost := rapid.SliceOfN(rapid.Int32Range(0, 9), 0, 30).Draw(t, "lost")
		x, y := New(o, seed), New(o, seed)
		x.Append(kept...)
		x.Append(lost...)
		x.Truncate(len(kept))
		y.Append(kept...)
		for i := range x.grams {
			if !slices.Equal(x.grams[i].heads, y.grams[i].heads) || !slices.Equal(x.grams[i].prev, y.grams[i].prev) {
				t.Fatalf("length %d: %v behind %v left a trace", x.grams[i].n, lost, kept)
			}
		}
	})
}

func TestDraftExamples(t *testing.T) {
	ids := func(s string) (tokens []int32) {
		for _, r := range s {
			tokens = append(tokens, r)
		}
		return tokens
	}
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"a", ""},
		{"abcd", ""},
		{"the cat. the c", "at. "},
		{"xab1 yab2 ab", "2 ab"},      // the latest occurrence
		{"zab1 yab2 zab", "1 ya"},     // a longer match wins over a later one
		{"the cat the dog t", "he d"}, // a single token
		{"aaaa", "aaaa"},              // repetition goes on beyond the end
		{"ababab", "abab"},
	} {
		x := New(Options{Min: 1, Max: 3}, 1)
		x.Append(ids(c.text)...)
		if got := x.Draft(nil, 4); !slices.Equal(got, ids(c.want)) {
			t.Errorf("%q: %q, want %q", c.text, string(got), c.want)
		}
	}
}

func TestOptionsValidate(t *testing.T) {
	for o, ok := range map[Options]bool{
		{1, 1}: true, {2, MaxN}: true, {0, 3}: false, {3, 2}: false, {1, MaxN + 1}: false, {-1, -1}: false,
	} {
		if err := o.Validate(); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "1 ≤ min ≤ max ≤ 16") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	x := New(Options{Min: 1, Max: 4}, 3)
	x.Reserve(4096)
	x.Append(make([]int32, 1000)...)
	dst := make([]int32, 0, 8)
	more := []int32{1, 2, 3, 4}
	if n := testing.AllocsPerRun(100, func() {
		x.Append(more...)
		x.Draft(dst, 8)
		x.Truncate(x.Len() - 3)
	}); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}

// BenchmarkStep is one cycle at a long context: three tokens more, one draft.
func BenchmarkStep(b *testing.B) {
	x := New(Options{Min: 1, Max: 4}, 3)
	x.Reserve(1 << 15)
	for i := range 1 << 14 {
		x.Append(int32(i * i % 977))
	}
	dst := make([]int32, 0, 8)
	for b.Loop() {
		x.Append(5, 6, 7)
		x.Draft(dst, 8)
		x.Truncate(1 << 14)
	}
}
