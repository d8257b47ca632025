package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"draftlab/engine/quant"
	"draftlab/engine/weights"
	"draftlab/engine/wiring"
)

// fault is a copy of the shipped drafter with something wrong, and what doctor is to say of it.
type fault struct {
	name   string
	config func(c map[string]any)                        // changes config.json; nil for nothing
	change func(name string, t weights.Tensor, b []byte) // changes a tensor's bytes in the copy; nil for nothing

	verdict wiring.Verdict
	key     string // of the fix, "" for none
	value   string // of the fix, where it has one
}

// The shipped drafter takes these states, which every engine does by default for a target of 30 layers.
const right = "[2, 15, 27]"

const layerKey = "eagle_aux_hidden_state_layer_ids"

// faults lists the copies. The first is right.
func faults() []fault {
	ids := func(a, b, c int) func(map[string]any) {
		return func(m map[string]any) { m[layerKey] = []int{a, b, c} }
	}
	set := func(key string, v any) func(map[string]any) {
		return func(m map[string]any) { m[key] = v }
	}
	both := ids(3, 16, 28)
	return []fault{
		{name: "as shipped", verdict: wiring.Confirmed},
		{name: "layer ids + 1", config: ids(3, 16, 28), verdict: wiring.Wrong, key: layerKey, value: right},
		{name: "layer ids − 1 (outputs)", config: ids(1, 14, 26), verdict: wiring.Wrong, key: layerKey, value: right},
		{name: "embedding for the first layer", config: ids(0, 15, 27), verdict: wiring.Wrong, key: layerKey, value: right},
		{name: "id −1 for the first layer", config: ids(-1, 15, 27), verdict: wiring.Wrong, key: layerKey, value: right},
		{name: "last layer wrong", config: ids(2, 15, 23), verdict: wiring.Wrong, key: layerKey, value: right},
		{name: "layer ids in another order", config: ids(15, 2, 27), verdict: wiring.Wrong, key: layerKey, value: right},
		{name: "thirds of fc in another order", change: swapThirds, verdict: wiring.Wrong, key: "fc.weight"},
		{name: "d2t holds ids", change: absoluteMap, verdict: wiring.Wrong, key: "d2t"},
		{name: "norm_output on", config: set("norm_output", true), verdict: wiring.Wrong, key: "norm_output", value: "false"},
		{name: "norm_before_residual on", config: set("norm_before_residual", true), verdict: wiring.Wrong, key: "norm_before_residual", value: "false"},
		{name: "d2t holds ids, layer ids + 1", config: both, change: absoluteMap, verdict: wiring.Wrong, key: layerKey, value: right},
		{name: "another target's", change: otherTarget, verdict: wiring.None},
		{name: "untrained", change: untrained, verdict: wiring.None},
	}
}

// swapThirds exchanges the first two thirds of fc's columns.
func swapThirds(name string, t weights.Tensor, b []byte) {
	if name != "fc.weight" {
		return
	}
	row := len(b) / t.Shape[0]
	third := row / 3
	for at := 0; at < len(b); at += row {
		first := bytes.Clone(b[at : at+third])
		copy(b[at:], b[at+third:at+2*third])
		copy(b[at+third:], first)
	}
}

// absoluteMap turns d2t's offsets into ids.
func absoluteMap(name string, _ weights.Tensor, b []byte) {
	if name != "d2t" {
		return
	}
	for i := 0; 8*i < len(b); i++ {
		binary.LittleEndian.PutUint64(b[8*i:], binary.LittleEndian.Uint64(b[8*i:])+uint64(i))
	}
}

// otherTarget shuffles the columns within each third of fc: the states of another target of these widths have the same shape and another meaning.
func otherTarget(name string, t weights.Tensor, b []byte) {
	if name != "fc.weight" {
		return
	}
	const size = 2 // bfloat16
	row := len(b) / t.Shape[0]
	third := row / size / 3
	order := rand.New(rand.NewPCG(1, 1)).Perm(third)
	for at := 0; at < len(b); at += size * third {
		old := bytes.Clone(b[at : at+size*third])
		for to, from := range order {
			copy(b[at+size*to:at+size*to+size], old[size*from:])
		}
	}
}

// untrained fills every matrix with noise of the deviation that training begins with.
func untrained(name string, t weights.Tensor, b []byte) {
	if t.Kind != weights.Weights || len(t.Shape) != 2 {
		return
	}
	rng := rand.New(rand.NewPCG(2, uint64(len(b))))
	for at := 0; at < len(b); at += 2 {
		binary.LittleEndian.PutUint16(b[at:], quant.F32ToBF16(float32(0.02*rng.NormFloat64())))
	}
}

// make writes the copy into dir.
func (f *fault) make(shipped, dir string) (err error) {
	var c map[string]any
	data, err := os.ReadFile(filepath.Join(shipped, "config.json"))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	if f.config != nil {
		f.config(c)
	}
	if data, err = json.MarshalIndent(c, "", "  "); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o666); err != nil {
		return err
	}
	tensors, err := os.ReadFile(filepath.Join(shipped, "model.safetensors"))
	if err != nil {
		return err
	}
	if f.change != nil {
		file, openErr := weights.Open(shipped)
		if openErr != nil {
			return openErr
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		for _, t := range file.Tensors() {
			f.change(t.Name, t, tensors[t.Offset:int(t.Offset)+len(t.Data)])
		}
	}
	return os.WriteFile(filepath.Join(dir, "model.safetensors"), tensors, 0o666)
}

// holds reports in what a result is not what was to be found.
func (f *fault) holds(r *wiring.Result) error {
	if r.Verdict != f.verdict {
		return fmt.Errorf("%s: the verdict is %s, want %s", f.name, r.Verdict, f.verdict)
	}
	if f.key == "" {
		if len(r.Fixes) > 0 {
			return fmt.Errorf("%s: nothing is wrong, and yet: %v", f.name, r.Fixes)
		}
		return nil
	}
	for _, fix := range r.Fixes {
		if fix.Key == f.key && fix.Value == f.value {
			return nil
		}
	}
	return fmt.Errorf("%s: no fix sets %s to %q: %v", f.name, f.key, f.value, r.Fixes)
}
