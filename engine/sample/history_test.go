package sample

import (
	"math/rand/v2"
	"testing"
)

// TestHistoryAgainstMap walks a random stack of tokens beside a plain map, with few enough distinct
// ids that tokens repeat and enough that the table grows.
func TestHistoryAgainstMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	prompt := []int32{5, 9, 5, 700}
	h := NewHistory(prompt)
	inPrompt := map[int32]bool{5: true, 9: true, 700: true}
	var stack []int32
	for step := range 20000 {
		if grow := step%4000 < 2500; len(stack) == 0 || grow && rng.IntN(3) > 0 || !grow && rng.IntN(3) == 0 {
			id := int32(rng.IntN(1000))
			h.Push(id)
			stack = append(stack, id)
		} else {
			h.Pop()
			stack = stack[:len(stack)-1]
		}
		if step%97 != 0 {
			continue
		}
		want := map[int32]int32{}
		for _, id := range stack {
			want[id]++
		}
		if h.Len() != len(stack) {
			t.Fatalf("step %d: Len %d, want %d", step, h.Len(), len(stack))
		}
		for id := range int32(1000) {
			i := h.table[h.slot(id)]
			if i == 0 {
				if want[id] != 0 || inPrompt[id] {
					t.Fatalf("step %d: token %d is missing", step, id)
				}
				continue
			}
			e := h.entries[i-1]
			if e.id != id || e.output != want[id] || e.prompt != inPrompt[id] || e.output == 0 && !e.prompt {
				t.Fatalf("step %d: token %d has %+v, want output %d prompt %v", step, id, e, want[id], inPrompt[id])
			}
		}
	}
}

func TestHistoryReserve(t *testing.T) {
	h := NewHistory([]int32{1, 2, 3})
	h.Push(4)
	h.Reserve(1000)
	next := int32(10)
	if n := testing.AllocsPerRun(900, func() { h.Push(next); next++ }); n != 0 {
		t.Errorf("a reserved Push allocates %v times", n)
	}
	for h.Len() > 1 {
		h.Pop()
	}
	if len(h.entries) != 4 {
		t.Errorf("%d entries after popping, want 4", len(h.entries))
	}
}

func TestHistoryPopOfNothingPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	NewHistory([]int32{1}).Pop()
}
