package eagle3

import (
	"errors"
	"fmt"
	"slices"

	"draftlab/engine/compute"
	"draftlab/engine/model"
	"draftlab/engine/weights"
)

// Wiring is how a drafter is joined to its target, as far as its tensors leave that open: all that a wrong config.json, or an engine that
// reads it otherwise, can spoil while the drafter still drafts.
type Wiring struct {
	// Layers are the hidden states that the thirds of fc take, from its first columns on, by input: 0 is the embedding, the number
	// of the target's layers the last one's output. In a wiring as trained they ascend.
	Layers             [taps]int `json:"layers"`
	NormBeforeResidual bool      `json:"norm_before_residual"`
	NormBeforeFC       bool      `json:"norm_before_fc"`
	FCNorm             bool      `json:"fc_norm"`
	NormOutput         bool      `json:"norm_output"` // drafting goes on from the normed state
	// AbsoluteMap takes the elements of d2t for ids of the target in the place of offsets.
	AbsoluteMap bool    `json:"absolute_map"`
	RopeTheta   float64 `json:"rope_theta"`
}

// LoadOpen reads the drafter in dir for [Drafter.Rewire], which must be called before it runs. The configuration is the caller's, read
// from config.json with what is doubtful in it settled somehow; its layer ids are not looked at, and of its switches for the norms
// in front of fc, those are on whose tensors are there. d2t may hold anything. Everything else is checked as Load does.
func LoadOpen(dev compute.Device, dir string, cfg Config, target *model.Model, opt Options) (_ *Drafter, err error) {
	f, err := open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if m := target.Config(); cfg.TargetHidden != m.Hidden || cfg.Vocab != m.Vocab {
		return nil, fmt.Errorf("%s: the drafter is for a target of hidden size %d with %d tokens, this one has %d and %d", dir, cfg.TargetHidden, cfg.Vocab, m.Hidden, m.Vocab)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(f.Tensors(), func(t weights.Tensor) bool { return canonical(t.Name) == name })
	}
	cfg.NormBeforeFC, cfg.FCNorm = has("input_norm.weight"), has("fc_norm.0.weight")
	b := &builder{d: &Drafter{cfg: cfg, opt: opt, dev: dev, target: target}, release: f.Release, loose: true}
	if err := b.from(f); err != nil {
		return nil, err
	}
	return b.d, nil
}

// Rewire joins a drafter of LoadOpen to its target in a given way. What it has stored of texts is void. The error is for a state that the target
// does not keep, or a norm that the file has no gains for.
func (d *Drafter) Rewire(w Wiring) error {
	if d.offsets == nil {
		panic("eagle3: Rewire of a drafter that LoadOpen has not made")
	}
	var at [taps]int
	for i, layer := range w.Layers {
		if at[i] = slices.Index(d.target.Options().TapLayers, layer); at[i] < 0 {
			return fmt.Errorf("the target does not keep the input of layer %d", layer)
		}
	}
	if w.NormBeforeFC && d.fcGain == nil || w.FCNorm && d.fcNorm[0] == nil {
		return errors.New("the checkpoint has no gains for a norm in front of fc")
	}
	d.taps = at
	c := &d.cfg
	c.NormBeforeResidual, c.NormBeforeFC, c.FCNorm, c.NormOutput = w.NormBeforeResidual, w.NormBeforeFC, w.FCNorm, w.NormOutput
	c.Rope.Theta = w.RopeTheta
	d.attn.Rope = &compute.Rope{InvFreq: c.Rope.InvFreq(c.HeadDim), Scale: 1}
	d.ids = mapIDs(d.ids, d.offsets, w.AbsoluteMap, c.Vocab)
	d.record()
	return nil
}

// mapIDs resolves d2t either way into ids. What lies outside the vocabulary under a wrong reading is wrapped into it: a wrong token either way.
func mapIDs(ids []int32, offsets []int64, absolute bool, vocab int) []int32 {
	ids = ids[:0]
	for i, id := range offsets {
		if !absolute {
			id += int64(i)
		}
		if id %= int64(vocab); id < 0 {
			id += int64(vocab)
		}
		ids = append(ids, int32(id))
	}
	return ids
}
