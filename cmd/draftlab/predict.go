package main

import (
	"github.com/spf13/cobra"

	"draftlab/internal/ui"
	"draftlab/lab/costmodel"
	"draftlab/lab/explain"
)

// predictFlags are the flags of predict.
type predictFlags struct {
	steps       []int
	topK        int
	draftTokens int
	concurrency float64
	verifyScale float64
}

// predictions is the JSON document of predict.
type predictions struct {
	Predictions []explain.Prediction `json:"predictions"`
	Warnings    []costmodel.Doubt    `json:"warnings"`
}

func newPredict(env *Env) *cobra.Command {
	var f predictFlags
	cmd := &cobra.Command{
		Use:   "predict FILE|DIR --steps N[,N…]",
		Short: "Predict configurations that were not measured",
		Long: `Predict fits the cost model of draftlab explain to the same file of measurements and predicts other
configurations: time of a cycle, accept length, tokens a second and speed-up, with intervals, and says
where it extrapolates. Chains (--topk 1) verify steps + 1 tokens; trees name their --draft-tokens, and their
intervals are wider, as only a run of the tree shows what its siblings catch. It runs nothing.
` + caseHelp + `

The JSON document is {"predictions": [{"steps", "topk", "draft_tokens", "batch", "cycle_ms", "accept_length",
"break_even_accept_length", "tok_s", "speedup", …, "warnings"}], "warnings"}, each figure with an interval beside it.` + exitHelp,
		Example: `  draftlab predict case.yaml --steps 1,2,3,4
  draftlab predict case.yaml --steps 3 --topk 4 --draft-tokens 8 --json`,
		Args: exactlyOne("a file of measurements"),
		RunE: func(cmd *cobra.Command, args []string) error { return runPredict(env, cmd, args[0], f) },
	}
	cmd.Flags().IntSliceVar(&f.steps, "steps", nil, "depths of the drafts, separated by commas")
	cmd.Flags().IntVar(&f.topK, "topk", 1, "candidates at each position; 1 is a chain")
	cmd.Flags().IntVar(&f.draftTokens, "draft-tokens", 0, "rows of a verification for each sequence (default steps + 1 in a chain)")
	cmd.Flags().Float64Var(&f.concurrency, "max-concurrency", 0, "sequences at once (default the file's batch)")
	cmd.Flags().Float64Var(&f.verifyScale, "verify-scale", 1, "hypothesis: verify takes this many times its time")
	return cmd
}

// runPredict predicts each depth. Only what the command line itself gets wrong is a usage error.
func runPredict(env *Env, cmd *cobra.Command, path string, f predictFlags) error {
	if len(f.steps) == 0 {
		return usage(cmd, "%s needs --steps", cmd.CommandPath())
	}
	if !(f.verifyScale > 0 && f.verifyScale <= 100) {
		return usage(cmd, "--verify-scale must be above 0 and at most 100, not %g", f.verifyScale)
	}
	c, err := readCase(env, path)
	if err != nil {
		return err
	}
	m, err := c.Model()
	if err != nil {
		return err
	}
	doc := predictions{Predictions: []explain.Prediction{}, Warnings: c.Doubts(m)}
	for _, steps := range f.steps {
		s := f.shape(cmd, steps, m)
		if err := s.Check(); err != nil {
			return usage(cmd, "%v", err)
		}
		p, err := c.Predict(m, s, costmodel.Change{Verify: f.verifyScale})
		if err != nil {
			return err
		}
		doc.Predictions = append(doc.Predictions, p)
	}
	if wantsJSON(cmd) {
		return ui.JSON(env.Stdout, doc)
	}
	if err := printPredictions(env.Stdout, env.width(env.Stdout), "PREDICTED", doc.Predictions); err != nil {
		return err
	}
	return printDoubts(env.Stdout, env.width(env.Stdout), doc.all())
}

// shape is what the flags and a depth ask for. A tree without draft tokens is refused by its check.
func (f *predictFlags) shape(cmd *cobra.Command, steps int, m *costmodel.Model) costmodel.Shape {
	s := costmodel.Shape{Steps: steps, TopK: f.topK, DraftTokens: f.draftTokens, Batch: m.Batch()}
	if !cmd.Flags().Changed("draft-tokens") && f.topK == 1 {
		s.DraftTokens = steps + 1
	}
	if cmd.Flags().Changed("max-concurrency") {
		s.Batch = f.concurrency
	}
	return s
}

// all are the doubts of the fit and of the predictions, each once.
func (d *predictions) all() []costmodel.Doubt {
	all := append([]costmodel.Doubt{}, d.Warnings...)
	seen := map[costmodel.Doubt]bool{}
	for _, p := range d.Predictions {
		for _, w := range p.Warnings {
			if !seen[w] {
				seen[w] = true
				all = append(all, w)
			}
		}
	}
	return all
}
