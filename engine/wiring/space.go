package wiring

import (
	"fmt"
	"slices"
	"strings"

	"draftlab/engine/draft/eagle3"
)

// layers3 are three hidden states; see eagle3.Wiring.
type layers3 = [3]int

// space is what may be wrong in a drafter's wiring.
type space struct {
	configured eagle3.Wiring // as config.json says, read as this engine reads it
	listed     []int         // its layer ids as they stand there; nil for none
	layers     int           // of the target
	kept       []int         // states that the target keeps, ascending
	gains      struct{ beforeFC, fc bool }
	hasMap     bool
	thetas     []float64 // that the drafter may have been trained with
}

// standard are the states that every engine takes where a configuration lists none.
func (s *space) standard() layers3 { return layers3{2, s.layers / 2, s.layers - 3} }

// has reports whether the target keeps these states, which are three.
func (s *space) has(l layers3) bool {
	return l[0] != l[1] && l[1] != l[2] && l[0] != l[2] && !slices.ContainsFunc(l[:], func(layer int) bool { return !slices.Contains(s.kept, layer) })
}

// named returns the sets of layers that a mistake may have led to, or that may be behind one, with what it would be.
func (s *space) named() (sets []layers3, names map[layers3]string) {
	names = map[layers3]string{}
	add := func(l layers3, name string) {
		for i := range l {
			if l[i] < 0 || l[i] > s.layers || i > 0 && l[i] <= l[i-1] || !slices.Contains(s.kept, l[i]) {
				return
			}
		}
		if _, known := names[l]; !known {
			sets, names[l] = append(sets, l), name
		}
	}
	shift := func(l layers3, by int) layers3 { return layers3{l[0] + by, l[1] + by, l[2] + by} }
	add(s.standard(), "every engine's default")
	bases := []struct {
		l    layers3
		name string
	}{{s.standard(), "the default"}}
	if s.listed != nil {
		l := layers3(s.listed)
		slices.Sort(l[:])
		add(l, "the listed ids as inputs")
		add(shift(l, 1), "the listed ids as outputs")
		add(shift(l, -1), "the listed ids less one, as if they had been shifted already")
		add(shift(l, 2), "the listed ids as outputs, shifted once more")
		bases = append(bases, struct {
			l    layers3
			name string
		}{l, "the listed ids"})
	}
	for _, b := range bases {
		add(shift(b.l, 1), b.name+" one layer up")
		add(shift(b.l, -1), b.name+" one layer down")
		add(layers3{0, b.l[1], b.l[2]}, b.name+" with the embedding for the first")
		add(layers3{0, b.l[0], b.l[1]}, b.name+" behind the embedding")
		add(layers3{b.l[0], b.l[1], s.layers}, b.name+" with the last layer's output for the last")
		add(layers3{b.l[1], b.l[2], s.layers}, b.name+" before the last layer's output")
	}
	add(layers3{s.layers / 4, s.layers / 2, 3 * s.layers / 4}, "the quarters of the depth")
	return sets, names
}

// dimension is one thing that may be wrong: a way of going from a wiring to others that differ in it alone.
type dimension struct {
	name string
	from func(w eagle3.Wiring) []eagle3.Wiring
}

// dimensions lists them, those first without which no other shows.
func (s *space) dimensions() []dimension {
	flip := func(name string, can bool, at func(w *eagle3.Wiring) *bool) dimension {
		return dimension{name, func(w eagle3.Wiring) []eagle3.Wiring {
			if !can {
				return nil
			}
			*at(&w) = !*at(&w)
			return []eagle3.Wiring{w}
		}}
	}
	return []dimension{
		flip("vocabulary map", s.hasMap, func(w *eagle3.Wiring) *bool { return &w.AbsoluteMap }),
		{"layers", func(w eagle3.Wiring) (list []eagle3.Wiring) {
			sets, _ := s.named()
			for _, l := range sets {
				w.Layers = l
				list = append(list, w)
				if i, j := slices.Sorted(slices.Values(s.configured.Layers[:])), s.standard(); slices.Equal(i, l[:]) || l == j {
					list = append(list, orders(w)...)
				}
			}
			return list
		}},
		{"order of layers", orders},
		flip("norm_output", true, func(w *eagle3.Wiring) *bool { return &w.NormOutput }),
		flip("norm_before_residual", true, func(w *eagle3.Wiring) *bool { return &w.NormBeforeResidual }),
		flip("norm_before_fc", s.gains.beforeFC, func(w *eagle3.Wiring) *bool { return &w.NormBeforeFC }),
		flip("fc_norm", s.gains.fc, func(w *eagle3.Wiring) *bool { return &w.FCNorm }),
		{"rope_theta", func(w eagle3.Wiring) (list []eagle3.Wiring) {
			for _, theta := range s.thetas {
				w.RopeTheta = theta
				list = append(list, w)
			}
			return list
		}},
	}
}

// orders returns the wirings with the same states in other orders.
func orders(w eagle3.Wiring) (list []eagle3.Wiring) {
	for _, p := range [][3]int{{0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		o := w
		for i, from := range p {
			o.Layers[i] = w.Layers[from]
		}
		list = append(list, o)
	}
	return list
}

// describe says a wiring in words: its states, and in what it departs from the configured one otherwise.
func (s *space) describe(w eagle3.Wiring) string {
	var parts []string
	ascending := w.Layers
	slices.Sort(ascending[:])
	what := "inputs of layers " + join(ascending[:])
	_, names := s.named()
	if name := names[ascending]; name != "" {
		what += " (" + name + ")"
	}
	if ascending != w.Layers {
		what += " in the order " + join(w.Layers[:])
	}
	parts = append(parts, what)
	c := &s.configured
	for _, f := range []struct {
		was, is bool
		on, off string
	}{
		{c.AbsoluteMap, w.AbsoluteMap, "d2t as ids", "d2t as offsets"},
		{c.NormOutput, w.NormOutput, "drafting on from the normed state", "drafting on from the state before the norm"},
		{c.NormBeforeResidual, w.NormBeforeResidual, "the residual from the normed state", "the residual from the state before the norm"},
		{c.NormBeforeFC, w.NormBeforeFC, "a norm before fc", "no norm before fc"},
		{c.FCNorm, w.FCNorm, "a norm of each state", "no norm of each state"},
	} {
		switch {
		case f.was == f.is:
		case f.is:
			parts = append(parts, f.on)
		default:
			parts = append(parts, f.off)
		}
	}
	if c.RopeTheta != w.RopeTheta {
		parts = append(parts, fmt.Sprintf("rope theta %g", w.RopeTheta))
	}
	return strings.Join(parts, ", ")
}

func join(ids []int) string {
	var s []string
	for _, id := range ids {
		s = append(s, fmt.Sprint(id))
	}
	return strings.Join(s, ", ")
}
