package main

import (
	"runtime"
	"strings"
	"testing"

	"draftlab/engine/compute/cpu/kernel"
	"draftlab/engine/enginetest"
)

// TestShippedAndFaults: the quick examination names the shipped drafter's wiring, a single wrong layer and two faults at once, on the default target.
// The experiment itself tries every fault, at full length.
func TestShippedAndFaults(t *testing.T) {
	target := enginetest.DefaultTarget(t)
	if !kernel.Best().Amortises {
		t.Skip("the generic kernels take some hundred times as long")
	}
	for _, name := range []string{"as shipped", "last layer wrong", "d2t holds ids, layer ids + 1"} {
		found := false
		for _, f := range faults() {
			if f.name != name {
				continue
			}
			found = true
			r, err := examine(t.Context(), target, "../../drafters/smollm2-135m-instruct-eagle3", &f, true, min(2, runtime.NumCPU()))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := f.holds(r); err != nil {
				t.Error(err)
			}
			t.Log(strings.Join(row(&f, r, 0), " | "))
		}
		if !found {
			t.Errorf("no fault is called %s", name)
		}
	}
}
