// Package doctor looks at an EAGLE-3 drafter beside its target and says what cannot work and what engines would read differently.
// [Check] reads files and configurations only: it knows no device and runs nothing, so it cannot tell how good a drafter is.
package doctor

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"draftlab/engine/draft/eagle3"
	"draftlab/engine/model"
	"draftlab/engine/quant"
	"draftlab/engine/weights"
)

// Level is how bad a finding is.
type Level string

// The levels.
const (
	OK      Level = "ok"      // looked at, and right
	Note    Level = "note"    // worth knowing
	Warning Level = "warning" // works, and may be wrong
	Fault   Level = "fault"   // cannot draft, or drafts noise
)

// Finding is a sentence or two about a drafter. Codes are listed in docs/doctor.md.
type Finding struct {
	Level Level  `json:"level"`
	Code  string `json:"code"`
	Text  string `json:"text"`
}

// checker collects findings.
type checker struct {
	findings []Finding
	target   model.Config
}

func (c *checker) add(level Level, code, format string, a ...any) {
	c.findings = append(c.findings, Finding{level, code, fmt.Sprintf(format, a...)})
}

// Check looks at the drafter in dir, config.json and safetensors, beside a target. What is wrong with the drafter's files is a
// finding; the error is for files that could be read before and cannot any longer.
func Check(dir string, target model.Config) (_ []Finding, err error) {
	c := &checker{target: target}
	cp, err := eagle3.OpenCheckpoint(dir)
	if err != nil {
		c.add(Fault, "unusable", "The checkpoint cannot be used: %v.", err)
		return c.findings, c.diagnose(dir)
	}
	defer func() { err = errors.Join(err, cp.Close()) }()
	c.add(OK, "complete", "Every key of config.json is understood, and every tensor is there in its shape.")
	c.sizes(&cp.Config)
	c.layers(&cp.Config)
	c.vocabulary(cp.TargetIDs)
	c.rope(&cp.Config)
	c.context(&cp.Config)
	c.flags(&cp.Config)
	err = cp.File().Guard(func() error { return c.weights(cp) })
	return c.findings, err
}

// diagnose looks for a known cause in a checkpoint that cannot be used.
func (c *checker) diagnose(dir string) (err error) {
	f, err := weights.Open(dir)
	if err != nil {
		return nil // the finding says it
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return f.Guard(func() error {
		for _, t := range f.Tensors() {
			if strings.TrimPrefix(t.Name, "model.") != "d2t" || t.Kind != weights.I64 {
				continue
			}
			ids, err := t.Int64s()
			if err != nil {
				return nil // of an impossible shape, as the finding says
			}
			if absolute(ids, c.target.Vocab) {
				c.add(Fault, "absolute_map", "d2t holds ids of the target's vocabulary (up to %d), as GGUF files do, where a checkpoint holds offsets: subtract its own index from each element.", ids[len(ids)-1])
			}
		}
		return nil
	})
}

// absolute reports whether a map reads as ascending ids of a vocabulary and not as offsets: offsets never rise without a break, since
// vocabularies of use have neighbours among their frequent tokens.
func absolute(ids []int64, vocab int) bool {
	if len(ids) < 2 || ids[0] < 0 || ids[len(ids)-1] >= int64(vocab) {
		return false
	}
	for i := range ids[1:] {
		if ids[i+1] <= ids[i] {
			return false
		}
	}
	return true
}

func (c *checker) sizes(d *eagle3.Config) {
	if d.TargetHidden != c.target.Hidden {
		c.add(Fault, "hidden_size", "The drafter takes states %d wide, the target's are %d: it was made for another target.", d.TargetHidden, c.target.Hidden)
	}
	if d.Vocab != c.target.Vocab {
		c.add(Fault, "vocab_size", "The drafter is for a vocabulary of %d tokens, the target has %d: it was made for another target.", d.Vocab, c.target.Vocab)
	}
}

// layers says which states the drafter's layer ids mean, under each convention.
func (c *checker) layers(d *eagle3.Config) {
	n := c.target.Layers
	standard, err := (&eagle3.Config{}).TapLayers(n, eagle3.InputIDs)
	if d.Layers == nil {
		if err != nil {
			c.add(Fault, "layer_ids", "config.json lists no layers, and %v.", err)
			return
		}
		c.add(OK, "layer_ids", "config.json lists no layers: every engine then takes the inputs of layers %s.", list(standard))
		return
	}
	inputs, inErr := d.TapLayers(n, eagle3.InputIDs)
	outputs, outErr := d.TapLayers(n, eagle3.OutputIDs)
	if inErr != nil {
		c.add(Fault, "layer_ids", "Layer ids %s do not fit a target of %d layers.", list(d.Layers), n)
		return
	}
	other := "inputs of layers " + list(outputs)
	if outErr != nil {
		other = "layers that the target does not have"
	}
	switch {
	case d.Layers[0] == 0:
		c.add(Warning, "embedding_layer", "Layer id 0 is the embedding under the numbering by inputs, which no published drafter was trained on; under that by outputs the ids mean the %s.", other)
	case slices.Equal(inputs, standard):
		c.add(Note, "layer_ids_input", "Layer ids %s are the usual states if they number inputs (vLLM, SafeAI). An engine that numbers outputs takes the %s: leave the key out, and all agree.", list(d.Layers), other)
	case outErr == nil && slices.Equal(outputs, standard):
		c.add(Warning, "layer_ids_output", "Layer ids %s are the usual states only if they number outputs (SpecForge, older SGLang): read as inputs they are one layer off. Load it with layer ids by output, or leave the key out.", list(d.Layers))
	default:
		c.add(Warning, "layer_ids_unusual", "Layer ids %s are not the usual states under either numbering: the inputs of layers %s, or the %s. Measure acceptance under both.", list(d.Layers), list(inputs), other)
	}
}

func list(ids []int) string { return strings.Trim(fmt.Sprint(ids), "[]") }

// vocabulary looks at which tokens can be drafted.
func (c *checker) vocabulary(ids []int32) {
	if len(ids) < 2 || len(ids) == c.target.Vocab {
		return
	}
	offsets := make([]int64, len(ids))
	for i, id := range ids {
		offsets[i] = int64(id) - int64(i)
	}
	if absolute(offsets, c.target.Vocab) {
		c.add(Warning, "absolute_map", "No two neighbours of the target's vocabulary are in the draft vocabulary, which is how ids look that are taken for offsets: check d2t.")
	}
	var missing []string
	for _, eos := range c.target.EOS {
		if _, found := slices.BinarySearch(ids, eos); !found {
			missing = append(missing, fmt.Sprint(eos))
		}
	}
	if len(missing) > 0 {
		c.add(Warning, "eos_not_drafted", "The draft vocabulary lacks tokens that end a text (%s): the end of every answer costs a draft.", strings.Join(missing, ", "))
	}
	c.add(Note, "draft_vocabulary", "%d of the target's %d tokens can be drafted (%.1f %%).", len(ids), c.target.Vocab, 100*float64(len(ids))/float64(c.target.Vocab))
}

func (c *checker) rope(d *eagle3.Config) {
	if d.Rope.Theta != c.target.Rope.Theta {
		c.add(Note, "rope_theta", "The drafter's rotary embedding has theta %g, the target's %g. The drafter's own must be used; see that it is the one it was trained with (10000 is what a config.json without the key means).", d.Rope.Theta, c.target.Rope.Theta)
	}
}

// context compares the lengths of text that drafter and target were made for. Acceptance beyond the drafter's own falls towards nothing (SGLang
// issue 6783, vLLM issues 52258 and 58080), while each cycle goes on paying for its drafts.
func (c *checker) context(d *eagle3.Config) {
	if d.MaxContext > 0 && d.MaxContext < c.target.MaxContext {
		c.add(Warning, "short_context", "The drafter was made for texts of up to %d tokens (max_position_embeddings), the target for %d: beyond that drafts are accepted less and less, so that speculation can be slower than plain decoding. SGLang may refuse to start with such a pair, and vLLM stops drafting for all requests while one is longer. Serve texts of up to %d tokens (SGLang: --context-length, vLLM: --max-model-len), measure acceptance at your own lengths, or train the drafter on longer texts.", d.MaxContext, c.target.MaxContext, d.MaxContext)
	}
}

// flags names settings that engines without them ignore.
func (c *checker) flags(d *eagle3.Config) {
	var on []string
	for _, f := range []struct {
		name string
		on   bool
	}{{"norm_before_residual", d.NormBeforeResidual}, {"norm_before_fc", d.NormBeforeFC}, {"fc_norm", d.FCNorm}, {"norm_output", d.NormOutput}} {
		if f.on {
			on = append(on, f.name)
		}
	}
	if len(on) > 0 {
		c.add(Note, "variant", "The drafter is a variant (%s): an engine that does not know these keys ignores them and drafts worse.", strings.Join(on, ", "))
	}
}

// weights looks for tensors that hold no numbers or nothing.
func (c *checker) weights(cp *eagle3.Checkpoint) error {
	types := map[string]bool{}
	for _, t := range cp.File().Tensors() {
		if t.Kind != weights.Weights {
			continue
		}
		types[t.TypeName()] = true
		switch bad, zero := scan(t); {
		case bad > 0:
			c.add(Fault, "not_finite", "Tensor %s has %d values that are not finite.", t.Name, bad)
		case zero:
			c.add(Fault, "all_zero", "Tensor %s is all zeros: it was never trained or not written.", t.Name)
		}
		cp.File().Release(t)
	}
	if len(types) > 1 {
		var names []string
		for name := range types {
			names = append(names, name)
		}
		slices.Sort(names)
		c.add(Note, "types", "Weights are stored in several types: %s.", strings.Join(names, ", "))
	}
	return nil
}

// scan counts values that are not finite, and reports whether all are zero. It decodes a row at a time.
func scan(t weights.Tensor) (bad int, zero bool) {
	cols := t.Shape[len(t.Shape)-1]
	rowBytes, err := quant.RowBytes(t.Type, cols)
	if err != nil || rowBytes == 0 {
		return 0, false // OpenCheckpoint has checked that it is whole
	}
	zero = true
	row := make([]float32, cols)
	for at := 0; at+rowBytes <= len(t.Data); at += rowBytes {
		quant.Decode(t.Type, row, t.Data[at:at+rowBytes])
		for _, x := range row {
			if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
				bad++
			}
			zero = zero && x == 0
		}
	}
	return bad, zero
}
