// Command acceptance measures the shipped drafter's accept length in the engine and holds it to what the trainer simulated:
// held-out prompts, greedy, batch 1, chains of 3 and 5, beside the model card's row of the same prompts.
//
//	go run ./experiments/acceptance
//
// The conversations are the trainer's as far as this repository can make them again: the held-out half of lab/prompts in the default
// template, answers of at most 384 tokens with the token that ends them, loops and answers of fewer than 4 tokens left out
// (train/eagle3/synth.py). The trainer's target computed in float16 where the engine rounds activations to 8 bits, so some answers differ.
//
// Progress goes to standard error, the tables to standard output. The exit status is 0 if every accept length is within
// 5 % of the card's and the outputs are plain decoding's, and 1 otherwise.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"draftlab/engine"
	"draftlab/engine/draft"
	"draftlab/engine/sample"
	"draftlab/experiments/rig"
	"draftlab/internal/ui"
	"draftlab/lab/prompts"
)

const (
	maxAnswer = 384 // tokens: Limits.answer of the trainer
	minAnswer = 4   // likewise, of collect
	// tolerance is how far an accept length may be from the card's, relative.
	tolerance = 0.05
)

// depths are the chains that are measured.
var depths = []int{3, 5}

func main() { rig.Main(run) }

func run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("acceptance", flag.ContinueOnError)
	card := f.String("card", "drafters/smollm2-135m-instruct-eagle3/README.md", "compare with the simulated figures in this `FILE`")
	threads := f.Int("threads", 0, "compute on `N` threads; 0 is one a processor")
	format := rig.DrafterFormat(f)
	if err := rig.Parse(f, args); err != nil {
		return err
	}
	drafterFormat, err := format()
	if err != nil {
		return err
	}
	want, err := readCard(*card)
	if err != nil {
		return err
	}
	target, drafter, err := rig.Files()
	if err != nil {
		return err
	}
	e, err := rig.Load(engine.Options{
		Model: target, Drafter: drafter, DrafterFormat: drafterFormat, Threads: *threads, Limit: draft.Chain(slices.Max(depths)),
	})
	if err != nil {
		return err
	}
	defer e.Close()
	m := measurement{e: e, log: os.Stderr, set: prompts.All().Of(prompts.HeldOut), stats: map[key]*draft.Stats{}}
	if err := m.answers(ctx); err != nil {
		return err
	}
	if err := m.draft(ctx); err != nil {
		return err
	}
	return m.write(os.Stdout, want)
}

// key names a sum: a depth, over one category or ("") all.
type key struct {
	depth    int
	category prompts.Category
}

// measurement is a run.
type measurement struct {
	e   *engine.Engine
	log io.Writer

	set      prompts.Set
	kept     []conversation
	tokens   int // of all answers kept
	loops    int // conversations left out
	tooShort int
	stats    map[key]*draft.Stats
}

// conversation is a prompt with plain decoding's answer, the token that ends it included.
type conversation struct {
	prompts.Prompt
	ids, answer []int32
}

// answers writes the plain answers and keeps those that the trainer would.
func (m *measurement) answers(ctx context.Context) error {
	ids, err := rig.Encode(m.e.Tokenizer(), m.set)
	if err != nil {
		return err
	}
	for i, p := range m.set {
		m.progress("plain decoding", i, len(m.set))
		ended := false
		stop := func(id int32) bool { // ends the text behind this token, not before it
			was := ended
			ended = ended || m.e.Tokenizer().IsEOG(id)
			return was
		}
		res, err := m.e.Generate(ctx, engine.Request{
			Prompt: ids[i], MaxTokens: maxAnswer, Sampling: sample.Defaults(), Stop: stop, NoCache: true, Spec: &engine.Spec{},
		}, nil)
		if err != nil {
			return fmt.Errorf("prompt %s: %w", p.ID, err)
		}
		switch answer := res.IDs(); {
		case len(answer) < minAnswer:
			m.tooShort++
		case loops(answer):
			m.loops++
		default:
			m.kept = append(m.kept, conversation{p, ids[i], answer})
			m.tokens += len(answer)
		}
	}
	return nil
}

// draft writes the same answers with chains.
func (m *measurement) draft(ctx context.Context) error {
	for _, depth := range depths {
		spec := engine.Spec{Drafter: engine.DraftModel, Shape: draft.Chain(depth)}
		for i, c := range m.kept {
			m.progress(fmt.Sprintf("chain of %d", depth), i, len(m.kept))
			// The answer's length is the budget, so that the last cycles draft no further than the text goes, as in the trainer.
			res, err := m.e.Generate(ctx, engine.Request{
				Prompt: c.ids, MaxTokens: len(c.answer), Sampling: sample.Defaults(), NoCache: true, Spec: &spec,
			}, nil)
			if err != nil {
				return fmt.Errorf("prompt %s: %w", c.ID, err)
			}
			if !slices.Equal(res.IDs(), c.answer) {
				return fmt.Errorf("%w: prompt %s: a chain of %d changed the answer", rig.ErrClaim, c.ID, depth)
			}
			for _, k := range []key{{depth, ""}, {depth, c.Category}} {
				if m.stats[k] == nil {
					m.stats[k] = &draft.Stats{}
				}
				m.stats[k].Add(&res.Draft)
			}
		}
	}
	return nil
}

// every is how many conversations pass between two lines of progress.
const every = 10

func (m *measurement) progress(what string, done, all int) {
	if done%every == 0 {
		fmt.Fprintf(m.log, "%s %s: %d of %d conversations\n", time.Now().Format(time.TimeOnly), what, done, all)
	}
}

// write prints the tables and holds the accept lengths to the card's.
func (m *measurement) write(w io.Writer, want card) error {
	fmt.Fprintf(w, "%d conversations of %d held-out prompts, %d answer tokens (left out: %d loops, %d short answers); the card has %d conversations\n\n",
		len(m.kept), len(m.set), m.tokens, m.loops, m.tooShort, want[all].conversations)
	err := m.lengths(w, want)
	fmt.Fprintln(w)
	return errors.Join(m.positions(w, want), err)
}

// lengths prints accept lengths by category. Its error names the totals that are too far from the card's: a category
// has too few prompts for that.
func (m *measurement) lengths(w io.Writer, want card) (far error) {
	columns := []ui.Column{{Head: "CATEGORY"}, {Head: "DEPTH", Right: true}, {Head: "CYCLES", Right: true}, {Head: "ACCEPT LENGTH", Right: true},
		{Head: "SIMULATED", Right: true}, {Head: "DIFFERENCE", Right: true}}
	var rows [][]string
	for _, c := range append([]prompts.Category{""}, prompts.Categories()...) {
		for _, depth := range depths {
			s, name := m.stats[key{depth, c}], string(c)
			if s == nil {
				continue
			}
			if name == "" {
				name = all
			}
			simulated := want[name].length[depth]
			off := s.AcceptLength()/simulated - 1
			rows = append(rows, []string{name, fmt.Sprint(depth), fmt.Sprint(s.Cycles), fmt.Sprintf("%.3f", s.AcceptLength()),
				fmt.Sprintf("%.2f", simulated), fmt.Sprintf("%+.1f %%", 100*off)})
			if c == "" && !(max(off, -off) <= tolerance) {
				far = errors.Join(far, fmt.Errorf("%w: at depth %d the accept length is %.3f, the trainer simulated %.2f", rig.ErrClaim, depth, s.AcceptLength(), simulated))
			}
		}
	}
	return errors.Join(ui.Table(w, 0, columns, rows), far)
}

// positions prints survival (the share of all cycles that accepted so many drafts) and conditional acceptance (of those that came
// so far). The card's is over all positions of the text, the engine's over those where cycles begin.
func (m *measurement) positions(w io.Writer, want card) error {
	columns := []ui.Column{{Head: "POSITION"}}
	for _, depth := range depths {
		columns = append(columns, ui.Column{Head: fmt.Sprintf("SURVIVAL AT %d", depth), Right: true}, ui.Column{Head: fmt.Sprintf("CONDITIONAL AT %d", depth), Right: true})
	}
	columns = append(columns, ui.Column{Head: "SIMULATED", Right: true})
	var rows [][]string
	for i := 1; i <= slices.Max(depths); i++ {
		row := []string{fmt.Sprint(i)}
		for _, depth := range depths {
			if i > depth {
				row = append(row, "", "")
				continue
			}
			s := m.stats[key{depth, ""}]
			share, _ := s.Conditional(i)
			row = append(row, fmt.Sprintf("%.3f", s.Survival(i)), fmt.Sprintf("%.3f", share))
		}
		rows = append(rows, append(row, fmt.Sprintf("%.2f", want[all].conditional[i-1])))
	}
	return ui.Table(w, 0, columns, rows)
}
