package wiring

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"draftlab/engine/draft/eagle3"
)

// planted is a drafter that was trained with a wiring: what it gets accepted falls with each thing that is otherwise, and a neighbouring layer
// is nearly as good.
type planted struct {
	truth eagle3.Wiring
	tried int
}

func (p *planted) try(w eagle3.Wiring, steps int) (s score, err error) {
	p.tried++
	level := 0.7
	for i, layer := range w.Layers {
		far := math.Abs(float64(layer - p.truth.Layers[i]))
		level *= math.Exp(-far * far / 20 * float64(i+1) / 3)
	}
	if w.AbsoluteMap != p.truth.AbsoluteMap {
		level = 0
	}
	if w.NormBeforeResidual != p.truth.NormBeforeResidual {
		level *= 0.1
	}
	if w.NormOutput != p.truth.NormOutput && steps > 1 {
		level *= 0.7
	}
	rng := rand.New(rand.NewPCG(5, 5)) // the same positions for each wiring
	for range 8 {
		const n = 60
		own := level * (0.8 + 0.4*rng.Float64())
		s.positions = append(s.positions, n)
		s.accepted = append(s.accepted, math.Round(n*own))
	}
	return s, nil
}

func newSpace(configured eagle3.Wiring, listed []int) *space {
	s := &space{configured: configured, listed: listed, layers: 30, hasMap: true, thetas: []float64{configured.RopeTheta, 10000}}
	for i := range 31 {
		s.kept = append(s.kept, i)
	}
	return s
}

func trained() eagle3.Wiring {
	return eagle3.Wiring{Layers: layers3{2, 15, 27}, RopeTheta: 1e5}
}

// TestSearchFindsPlanted: whatever one or two things are configured otherwise than trained, the search comes back to the truth.
func TestSearchFindsPlanted(t *testing.T) {
	for name, change := range map[string]func(w *eagle3.Wiring){
		"nothing":           func(*eagle3.Wiring) {},
		"up":                func(w *eagle3.Wiring) { w.Layers = layers3{3, 16, 28} },
		"down":              func(w *eagle3.Wiring) { w.Layers = layers3{1, 14, 26} },
		"embedding":         func(w *eagle3.Wiring) { w.Layers[0] = 0 },
		"middle elsewhere":  func(w *eagle3.Wiring) { w.Layers[1] = 9 },
		"last elsewhere":    func(w *eagle3.Wiring) { w.Layers[2] = 20 },
		"order":             func(w *eagle3.Wiring) { w.Layers = layers3{15, 27, 2} },
		"map":               func(w *eagle3.Wiring) { w.AbsoluteMap = true },
		"recurrence":        func(w *eagle3.Wiring) { w.NormOutput = true },
		"residual":          func(w *eagle3.Wiring) { w.NormBeforeResidual = true },
		"map and layers":    func(w *eagle3.Wiring) { w.AbsoluteMap, w.Layers = true, layers3{3, 16, 28} },
		"residual and last": func(w *eagle3.Wiring) { w.NormBeforeResidual, w.Layers[2] = true, 21 },
	} {
		w := trained()
		change(&w)
		p := planted{truth: trained()}
		s := &search{space: newSpace(w, w.Layers[:]), try: p.try, sweep: true, progress: func(int) {}}
		got, err := s.run(context.Background())
		if err != nil || got != p.truth {
			t.Errorf("%s: found %+v, %v", name, got, err)
		}
		if p.tried > 250 {
			t.Errorf("%s: %d wirings tried", name, p.tried)
		}
	}
}

// TestSearchFindsOddLayers: states that no mistake is named for are found by trying every layer, and not without.
func TestSearchFindsOddLayers(t *testing.T) {
	truth := trained()
	truth.Layers = layers3{5, 18, 29}
	for _, sweep := range []bool{true, false} {
		p := planted{truth: truth}
		s := &search{space: newSpace(trained(), nil), try: p.try, sweep: sweep, progress: func(int) {}}
		if got, err := s.run(context.Background()); err != nil || (got == truth) != sweep {
			t.Errorf("every layer %t: found %+v, %v", sweep, got, err)
		}
	}
}

// TestSearchEnds: at its deadline, with what it has, and at an interrupt, with its cause.
func TestSearchEnds(t *testing.T) {
	w := trained()
	w.Layers[0] = 0
	p := planted{truth: trained()}
	s := &search{space: newSpace(w, w.Layers[:]), try: p.try, sweep: true, progress: func(int) {}, deadline: time.Now().Add(-time.Second)}
	if got, err := s.run(context.Background()); err != nil || got != w || !s.cut || p.tried != 1 {
		t.Errorf("past its deadline: %+v after %d, cut %t, %v", got, p.tried, s.cut, err)
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	s = &search{space: newSpace(w, nil), try: p.try, progress: func(int) {}}
	if _, err := s.run(ctx); !errors.Is(err, cause) {
		t.Errorf("interrupted: %v", err)
	}
}

// TestNamedFit: every set ascends within the target, is kept by it, and has one name.
func TestNamedFit(t *testing.T) {
	for _, layers := range []int{7, 12, 30, 61} {
		w := eagle3.Wiring{Layers: layers3{2, layers / 2, layers - 3}}
		s := &space{configured: w, listed: []int{0, 3, layers}, layers: layers}
		for i := range layers + 1 {
			if i != 4 {
				s.kept = append(s.kept, i)
			}
		}
		sets, names := s.named()
		if len(sets) != len(names) || len(sets) < 4 {
			t.Errorf("%d layers: %d sets, %d names", layers, len(sets), len(names))
		}
		for _, l := range sets {
			if !s.has(l) || l[0] >= l[1] || l[1] >= l[2] {
				t.Errorf("%d layers: %v", layers, l)
			}
		}
	}
}
