package eagle3

import (
	"slices"
	"strings"
	"testing"
)

// TestRewire: a drafter wired in some way gives, to the bit, what one gives whose files say so; and each thing that a wiring names matters.
func TestRewire(t *testing.T) {
	dev, m := tinyTarget(t, 1, false)
	c := tinyConfig(t, m)
	c.NormBeforeFC, c.FCNorm = true, true
	tensors := randomTensors(&c, 3)
	open, err := LoadOpen(dev, writeDrafter(t, specForge(&c), tensors), c, m, Options{MaxTop: 8})
	if err != nil {
		t.Fatal(err)
	}
	plain := Wiring{Layers: [3]int{0, 1, 3}, NormBeforeFC: true, FCNorm: true, RopeTheta: c.Rope.Theta}
	results := func(w Wiring) [][]float32 {
		if err := open.Rewire(w); err != nil {
			t.Fatal(err)
		}
		s := benchOf(t, m, open)
		var all [][]float32
		for _, r := range s.whole() {
			all = append(all, append(slices.Clone(r.state), r.logits...))
		}
		return all
	}
	want := results(plain)
	for name, change := range map[string]func(w *Wiring, c *Config){
		"nothing":              func(*Wiring, *Config) {},
		"norm_before_residual": func(w *Wiring, c *Config) { w.NormBeforeResidual, c.NormBeforeResidual = true, true },
		"norm_output":          func(w *Wiring, c *Config) { w.NormOutput, c.NormOutput = true, true },
		"theta":                func(w *Wiring, c *Config) { w.RopeTheta, c.Rope.Theta = 500, 500 },
	} {
		w, said := plain, c
		change(&w, &said)
		d := build(t, dev, m, said, tensors, Options{MaxTop: 8})
		got, same := results(w), true
		for i, r := range benchOf(t, m, d).whole() {
			if !slices.Equal(got[i], append(slices.Clone(r.state), r.logits...)) {
				t.Errorf("%s: row %d is not that of a drafter configured so", name, i)
			}
			same = same && slices.Equal(got[i], want[i])
		}
		if same != (name == "nothing") {
			t.Errorf("%s: the same as without it: %t", name, same)
		}
	}
	for name, change := range map[string]func(w *Wiring){
		"other layers": func(w *Wiring) { w.Layers = [3]int{0, 1, 1} },
		"their order":  func(w *Wiring) { w.Layers = [3]int{1, 0, 3} },
		"no fc_norm":   func(w *Wiring) { w.FCNorm = false },
		"no norm":      func(w *Wiring) { w.NormBeforeFC = false },
	} {
		w := plain
		change(&w)
		if got := results(w); slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%s: it makes no difference", name)
		}
	}
	w := plain
	w.AbsoluteMap = true
	offsets := slices.Clone(open.TargetIDs())
	results(w)
	for i, id := range open.TargetIDs() {
		if int(offsets[i]) != i+int(id) {
			t.Errorf("draft id %d: %d as an offset, %d as an id", i, offsets[i], id)
			break
		}
	}
}

// TestRewireRefuses: states that the target does not keep, and norms without gains.
func TestRewireRefuses(t *testing.T) {
	dev, m := tinyTarget(t, 1, false)
	c := tinyConfig(t, m)
	dir := writeDrafter(t, specForge(&c), randomTensors(&c, 3))
	d, err := LoadOpen(dev, dir, c, m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	good := Wiring{Layers: [3]int{0, 1, 3}, RopeTheta: 1e4}
	for want, change := range map[string]func(w *Wiring){
		"does not keep the input of layer 2": func(w *Wiring) { w.Layers[1] = 2 },
		"no gains":                           func(w *Wiring) { w.FCNorm = true },
		"gains for a norm":                   func(w *Wiring) { w.NormBeforeFC = true },
	} {
		w := good
		change(&w)
		if err := d.Rewire(w); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	other := c
	other.Vocab++
	if _, err := LoadOpen(dev, dir, other, m, Options{}); err == nil || !strings.Contains(err.Error(), "for a target of hidden size") {
		t.Errorf("another target: %v", err)
	}
}
