// Command lossless shows invariant 1 on the default target: with the shipped drafter, in chains, trees and by prompt look-up, in
// batches of random company, with preemption and prefix hits, every output is plain decoding's, token for token.
//
//	go run ./experiments/lossless             # all prompts × all ways of drafting × batch 1 to 8
//	go run ./experiments/lossless --sample 400
//	go run ./experiments/lossless --batch 7,8 # a part of them, for machines side by side
//
// Progress goes to standard error, the tables to standard output. The exit status is 0 if all outputs are equal and
// preemptions and prefix hits were among them, and 1 otherwise, each of the first mismatches with prompt, shape and position.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"draftlab/engine"
	"draftlab/experiments/rig"
	"draftlab/internal/ui"
	"draftlab/lab/prompts"
)

func main() { rig.Main(run) }

// options are the command line.
type options struct {
	widths  []int // sequences in a batch
	tokens  int   // most output tokens of a case
	sample  int   // cases in all, chosen at random; 0 is every one
	threads int
	seed    uint64
}

func run(ctx context.Context, args []string) error {
	o := options{}
	f := flag.NewFlagSet("lossless", flag.ContinueOnError)
	f.IntVar(&o.tokens, "tokens", 48, "output `N` tokens at most")
	f.IntVar(&o.sample, "sample", 0, "run `N` cases, chosen at random; 0 is all")
	batch := f.String("batch", "1,2,3,4,5,6,7,8", "run batches of these `WIDTHS`")
	f.IntVar(&o.threads, "threads", 0, "compute on `N` threads; 0 is one a processor")
	f.Uint64Var(&o.seed, "seed", 1, "choose and order the cases by this `SEED`")
	if err := rig.Parse(f, args); err != nil {
		return err
	}
	if o.tokens < 2 || o.sample < 0 || o.threads < 0 {
		return rig.Usage("--tokens: at least 2; --sample and --threads: at least 0")
	}
	var err error
	if o.widths, err = parseWidths(*batch); err != nil {
		return rig.Usage("--batch %s: %v", *batch, err)
	}
	p, err := prove(ctx, o, os.Stderr)
	if p != nil && len(p.byWidth) > 0 {
		err = errors.Join(p.write(os.Stdout), err)
	}
	return err
}

// maxWidth bounds a batch: a typing error shall not ask for the memory of thousands of sequences.
const maxWidth = 64

// parseWidths reads widths that stand between commas, each but once.
func parseWidths(list string) (widths []int, err error) {
	for field := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || n < 1 || n > maxWidth {
			return nil, fmt.Errorf("%q is no width: want 1 to %d", field, maxWidth)
		}
		if slices.Contains(widths, n) {
			return nil, fmt.Errorf("%d comes twice", n)
		}
		widths = append(widths, n)
	}
	return widths, nil
}

// proof is what came of the cases.
type proof struct {
	byWay      []tally // by index of ways
	byWidth    []tally // by index of options.widths
	widths     []int
	mismatches []mismatch
	started    time.Time
	done, all  int
}

// tally sums cases.
type tally struct {
	greedy, sampled, tokens, cycles, accepted, preemptions, hits, wrong int
}

func (t *tally) add(c *testCase, r *engine.Result, wrong bool) {
	if c.text.params.Greedy() {
		t.greedy++
	} else {
		t.sampled++
	}
	t.tokens += len(r.Tokens)
	t.cycles += int(r.Draft.Cycles)
	t.accepted += int(r.Draft.Accepted)
	t.preemptions += r.Preempted
	if r.Cached > 0 {
		t.hits++
	}
	if wrong {
		t.wrong++
	}
}

func (t *tally) cells(name string) []string {
	length := "–"
	if t.cycles > 0 {
		length = fmt.Sprintf("%.2f", 1+float64(t.accepted)/float64(t.cycles))
	}
	cells := []string{name}
	for _, n := range []int{t.greedy, t.sampled, t.tokens} {
		cells = append(cells, strconv.Itoa(n))
	}
	cells = append(cells, length)
	for _, n := range []int{t.preemptions, t.hits, t.wrong} {
		cells = append(cells, strconv.Itoa(n))
	}
	return cells
}

// prove runs the cases. Its error wraps rig.ErrClaim if an output differs, or if the cases had no preemption or no prefix hit.
func prove(ctx context.Context, o options, log io.Writer) (*proof, error) {
	target, drafter, err := rig.Files()
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(o.seed, 1))
	groups := plan(rng, prompts.All(), o)
	p := &proof{byWay: make([]tally, len(ways)), byWidth: make([]tally, len(o.widths)), widths: o.widths}
	for _, g := range groups {
		p.all += len(g.cases)
	}
	context, err := decodePlainly(ctx, target, groups, o, log)
	if err != nil {
		return nil, err
	}
	p.started = time.Now()
	for _, g := range groups {
		opt := engine.Options{
			Model: target, Drafter: drafter, Threads: o.threads, Context: context,
			MaxRunning: o.widths[g.width], MaxWaiting: len(g.cases), Limit: limit, Blocks: g.blocks(o.tokens),
		}
		if err := p.runGroup(ctx, opt, g, log); err != nil {
			return p, err
		}
	}
	return p, p.verdict()
}

// verdict holds the sums to the claim.
func (p *proof) verdict() error {
	var all tally
	for _, t := range p.byWidth {
		all.preemptions += t.preemptions
		all.hits += t.hits
		all.wrong += t.wrong
	}
	switch {
	case all.wrong > 0:
		return fmt.Errorf("%w: %d of %d outputs differ from plain decoding's", rig.ErrClaim, all.wrong, p.all)
	case all.preemptions == 0 || all.hits == 0:
		return fmt.Errorf("%w: %d preemptions and %d prefix hits; there must be some: run more cases", rig.ErrClaim, all.preemptions, all.hits)
	}
	return nil
}

// write prints the tables and the first mismatches.
func (p *proof) write(w io.Writer) error {
	columns := func(first string) []ui.Column {
		c := []ui.Column{{Head: first}}
		for _, head := range []string{"GREEDY", "SAMPLED", "TOKENS", "ACCEPT LENGTH", "PREEMPTIONS", "PREFIX HITS", "MISMATCHES"} {
			c = append(c, ui.Column{Head: head, Right: true})
		}
		return c
	}
	var byWay, byWidth [][]string
	for i := range ways {
		byWay = append(byWay, p.byWay[i].cells(wayName(i)))
	}
	for i, n := range p.widths {
		byWidth = append(byWidth, p.byWidth[i].cells(strconv.Itoa(n)))
	}
	if err := ui.Table(w, 0, columns("DRAFT"), byWay); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := ui.Table(w, 0, columns("BATCH"), byWidth); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d of %d cases in %s\n", p.done, p.all, time.Since(p.started).Round(time.Second))
	for _, m := range p.mismatches {
		fmt.Fprintln(w, m)
	}
	return nil
}
