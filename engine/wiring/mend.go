package wiring

import (
	"encoding/json"
	"path/filepath"
	"slices"

	"draftlab/engine/draft/eagle3"
	"draftlab/engine/hfconfig"
)

// Reading is a drafter's configuration, with what a strict reader refuses settled in one way, for measurement to judge.
type Reading struct {
	Dir    string
	Config eagle3.Config
	// Listed are the layer ids as they stand in config.json, in their order and whatever they are; nil for none.
	Listed []int
	// Mended are the keys whose values a strict reader refuses and which were left out or replaced.
	Mended []string
	// normOutput is what the key says, though it says it ambiguously.
	normOutput bool
}

const layerKey = "eagle_aux_hidden_state_layer_ids"

// Read reads the config.json of the drafter in dir. Layer ids that do not ascend or lie before the first, and norms that are
// said ambiguously, are no error; everything else is what eagle3.ReadConfig says.
func Read(dir string) (*Reading, error) {
	cfg, strict := eagle3.ReadConfig(dir)
	if strict == nil {
		return &Reading{Dir: dir, Config: cfg, Listed: cfg.Layers, normOutput: cfg.NormOutput}, nil
	}
	data, err := hfconfig.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, err
	}
	r := &Reading{Dir: dir}
	if data = r.mend(data); len(r.Mended) == 0 {
		return nil, strict
	}
	if r.Config, err = eagle3.ParseConfig(data); err != nil {
		return nil, strict
	}
	r.normOutput = r.normOutput || r.Config.NormOutput
	return r, nil
}

// mend takes out of a config.json what can be settled by measurement.
func (r *Reading) mend(data []byte) []byte {
	var top map[string]json.RawMessage
	if json.Unmarshal(data, &top) != nil {
		return data
	}
	var inner map[string]json.RawMessage
	if raw, ok := top["eagle_config"]; ok && json.Unmarshal(raw, &inner) != nil {
		return data
	}
	for _, m := range []map[string]json.RawMessage{inner, top} {
		var ids []int
		if raw, ok := m[layerKey]; !ok || json.Unmarshal(raw, &ids) != nil || len(ids) != 3 {
			continue
		}
		delete(m, layerKey)
		r.Listed = ids
		if !slices.Contains(r.Mended, layerKey) && (!slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) < 3 || ids[0] < 0) {
			r.Mended = append(r.Mended, layerKey)
		}
	}
	if inner != nil {
		top["eagle_config"] = encode(inner)
	}
	_, speculators := top["speculators_model_type"]
	off := encode(false)
	if string(top["norm_output"]) == "true" && string(top["fc_norm"]) != "true" && !speculators {
		top["norm_output"], r.normOutput = off, true
		r.Mended = append(r.Mended, "norm_output")
	}
	if _, said := top["norm_before_residual"]; speculators && !said {
		top["norm_before_residual"] = off
		r.Mended = append(r.Mended, "norm_before_residual")
	}
	return encode(top)
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("wiring: " + err.Error()) // of what was decoded a moment ago
	}
	return data
}

// wiring is the reading as a wiring for a target of n layers whose rotary embedding has the given theta: layer ids count inputs, and one before
// the first layer is the embedding. Ids that the target does not have become the default.
func (r *Reading) wiring(n int) eagle3.Wiring {
	c := &r.Config
	w := eagle3.Wiring{
		Layers:             layers3{2, n / 2, n - 3},
		NormBeforeResidual: c.NormBeforeResidual, NormBeforeFC: c.NormBeforeFC, FCNorm: c.FCNorm, NormOutput: r.normOutput,
		RopeTheta: c.Rope.Theta,
	}
	if r.Listed != nil && slices.Max(r.Listed) <= n {
		for i, id := range r.Listed {
			w.Layers[i] = max(id, 0)
		}
	}
	return w
}
