package wiring

import (
	"context"
	"runtime"
	"slices"
	"testing"

	"draftlab/engine"
	"draftlab/engine/draft"
	"draftlab/engine/draft/eagle3"
	"draftlab/engine/enginetest"
	"draftlab/engine/sample"
	"draftlab/engine/tokenizer"
)

const shipped = "../../drafters/smollm2-135m-instruct-eagle3"

// TestSameAsServed: chains from all positions at once are accepted just as a server's cycles are: walking over them gives the drafts, cycles and
// text of the engine's own greedy decoding with the same chain, count by count.
func TestSameAsServed(t *testing.T) {
	target := enginetest.DefaultTarget(t)
	threads := min(2, runtime.NumCPU())
	const tokens = 48
	serve, err := engine.Open(engine.Options{
		Model: target, Threads: threads, Context: 256, Drafter: shipped, Spec: engine.Spec{Drafter: engine.DraftModel, Shape: draft.Chain(Steps)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer serve.Close()
	var prompts [][]int32
	for _, question := range []string{
		"<|im_start|>user\nWhat is the capital of France, and what is it known for?<|im_end|>\n<|im_start|>assistant\n",
		"Once upon a time",
		"<|im_start|>user\nWrite a function that adds two numbers.<|im_end|>\n<|im_start|>assistant\nSure!",
	} {
		ids, err := serve.Tokenizer().Encode(question, tokenizer.EncodeOptions{ParseSpecial: true})
		if err != nil {
			t.Fatal(err)
		}
		prompts = append(prompts, ids)
	}

	read, err := Read(shipped)
	if err != nil {
		t.Fatal(err)
	}
	cfg := serve.Model().Config()
	s := SizesFor(read, cfg)
	e, err := engine.Open(engine.Options{Model: target, Threads: threads, Context: 256, MaxRunning: s.Seqs, Rows: s.Rows, Outs: s.Outs, Blocks: s.Blocks, Taps: s.Taps})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	d, err := eagle3.LoadOpen(e.Device(), shipped, read.Config, e.Model(), eagle3.Options{
		MaxRows: groupRows, MaxSeqs: groupTexts * (maxTokens/16 + 2), MaxOut: groupTexts * maxTokens,
	})
	if err != nil {
		t.Fatal(err)
	}
	b := bench{m: e.Model(), d: d}
	texts, err := write(context.Background(), b.m, prompts, tokens, func(int32) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	if err := b.load(texts); err != nil {
		t.Fatal(err)
	}
	traces, err := b.measure(read.wiring(cfg.Layers), Steps, false)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for i, p := range prompts {
		res, err := serve.Generate(context.Background(), engine.Request{Prompt: p, MaxTokens: tokens, Sampling: greedy()}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := texts[i].tokens[len(p):], res.IDs(); !slices.Equal(got, want) {
			t.Errorf("prompt %d: the texts differ", i)
			continue
		}
		cycles, drafts := traces[i].walk()
		if cycles != res.Steps || drafts != int(res.Draft.Accepted) {
			t.Errorf("prompt %d: %d cycles that accept %d drafts, served in %d with %d", i, cycles, drafts, res.Steps, res.Draft.Accepted)
		}
		total += drafts
	}
	if total < 20 {
		t.Errorf("%d drafts accepted: too few to show anything", total)
	}
}

func greedy() sample.Params {
	p := sample.Defaults()
	p.Temperature = 0
	return p
}
