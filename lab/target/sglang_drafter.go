package target

import (
	"context"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"draftlab/lab/trial"
)

// checkpoint is what of a config.json tells whether a drafter and a target belong together. 0 is what it does not say.
type checkpoint struct {
	Architectures []string    `json:"architectures"`
	Hidden        int         `json:"hidden_size"`
	TargetHidden  int         `json:"target_hidden_size"` // of a drafter whose own width is another
	Vocabulary    int         `json:"vocab_size"`
	Draft         int         `json:"draft_vocab_size"`
	Context       int         `json:"max_position_embeddings"`
	Text          *checkpoint `json:"text_config"` // of a model that reads more than text

	Quantization any `json:"quantization_config"` // nil where weights are as they were trained
}

// readCheckpoint reads a config.json; one that it cannot read says nothing here, since draftlab doctor says more.
func readCheckpoint(text []byte) (c checkpoint, ok bool) {
	if json.Unmarshal(text, &c) != nil {
		return checkpoint{}, false
	}
	if c.Text != nil {
		c.Hidden, c.Vocabulary, c.Context = c.Text.Hidden, c.Text.Vocabulary, c.Text.Context
	}
	return c, true
}

// three reports an EAGLE-3 head.
func (c *checkpoint) three() bool {
	return slices.ContainsFunc(c.Architectures, func(s string) bool { return strings.Contains(strings.ToLower(s), "eagle3") })
}

// directory is a model's name if that is a path, and "" if it is a name on the hub.
func directory(name string) string {
	if strings.Contains(name, "/") && (strings.HasPrefix(name, "/") || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "~/")) {
		return name
	}
	return ""
}

// drafters looks at the drafter's own configuration, if it is a directory.
func (c *sglangCheck) drafters(e *engine) {
	needed := func(a trial.Arm) bool { return spec(a) && algorithms[algorithm(a.Drafter)].drafter }
	if c.c.Drafter == "" {
		c.add("no_drafter", true, needed, "there is no drafter: SGLang would end, or load the target in its place and end then")
		return
	}
	if e.drafter(c.c) == "" {
		return // a name on the hub
	}
	text, err := e.drafterConfig()
	if err != nil {
		c.add("missing_drafter", true, spec, "the drafter's %s cannot be read: %v", configName, err)
		return
	}
	draft, ok := readCheckpoint(text)
	if !ok {
		return
	}
	c.add("wrong_algorithm", true, func(a trial.Arm) bool {
		return draft.three() && spec(a) && slices.Contains([]string{"EAGLE", nextn}, algorithm(a.Drafter))
	},
		"%s is an EAGLE-3 head: as another drafter it runs without an error, at an accept length of exactly 1", path.Base(c.c.Drafter))
	c.add("wrong_algorithm", true, func(a trial.Arm) bool {
		return draft.three() && spec(a) && algorithms[algorithm(a.Drafter)].block
	}, "%s is an EAGLE-3 head, which drafts token by token, and no block drafter", path.Base(c.c.Drafter))
	c.add("impossible_flags", true, func(a trial.Arm) bool {
		_, rejection := c.flag(a, "speculative-use-rejection-sampling")
		return spec(a) && rejection && draft.Draft > 0 && draft.Draft < draft.Vocabulary
	}, "rejection sampling needs a drafter with the target's whole vocabulary; this one has %d of %d", draft.Draft, draft.Vocabulary)
	c.pair(&draft, e.targetCheckpoint())
}

// targetCheckpoint is the target's, with nothing in it if that is a name on the hub or cannot be read.
func (e *engine) targetCheckpoint() *checkpoint {
	dir := directory(e.c.Model)
	if dir == "" {
		return &checkpoint{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	text, err := e.host.ReadFile(ctx, join(dir, configName))
	if err != nil {
		return &checkpoint{} // the start will say why
	}
	c, _ := readCheckpoint(text)
	return &c
}

// pair compares a drafter with the target, as far as both are known.
func (c *sglangCheck) pair(draft, target *checkpoint) {
	drafts := func(a trial.Arm) bool { return spec(a) && algorithm(a.Drafter) != ngram }
	if draft.Context > 0 { // whatever the target is, a flag may say how long its texts get
		limit := func(a trial.Arm) float64 { return c.number(a, "context-length", float64(target.Context)) }
		c.add("short_context", false, func(a trial.Arm) bool { return drafts(a) && limit(a) > float64(draft.Context) },
			"the drafter was made for texts of up to %d tokens (max_position_embeddings), and these servers take longer ones: since August 2025 SGLang refuses to start so, unless SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1, and then drafts of longer texts are accepted less and less; set context-length to %[1]d for all arms, or measure with prompts as long as yours", draft.Context)
	}
	c.add("drafter_quantized", false, func(a trial.Arm) bool {
		_, own := c.flag(a, "speculative-draft-model-quantization")
		_, given := c.flag(a, "quantization")
		return drafts(a) && given && !own && draft.Quantization == nil
	}, "SGLang takes the target's --quantization for the drafter, whose weights are not quantized: it does not start (awq, gptq), or the drafter is quantized, too, and accepted less; set speculative-draft-model-quantization=unquant for these arms")
	width := draft.Hidden
	if draft.TargetHidden > 0 {
		width = draft.TargetHidden
	}
	c.add("hidden_size", true, func(a trial.Arm) bool {
		return drafts(a) && draft.three() && width > 0 && target.Hidden > 0 && width != target.Hidden
	}, "the drafter takes states %d wide, and the target's are %d: it was made for another target, which SGLang says only when both have loaded", width, target.Hidden)
	c.add("vocab_size", false, func(a trial.Arm) bool {
		return drafts(a) && draft.Vocabulary > 0 && target.Vocabulary > 0 && draft.Vocabulary != target.Vocabulary
	}, "the drafter's vocabulary has %d tokens, the target's %d: unless they differ in unused ones at the end, ids mean other words, and SGLang may serve a text that is not the target's (its issue 24051) or none", draft.Vocabulary, target.Vocabulary)
}
