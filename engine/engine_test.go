package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"draftlab/engine/compute/cpu/kernel"
	"draftlab/engine/sample"
)

const tiny = "random:tiny-q4_1"

func open(t *testing.T, o Options) *Engine {
	t.Helper()
	if o.Model == "" {
		o.Model = tiny
	}
	o.Threads = max(o.Threads, 1)
	e, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// prompt returns n ids below the tiny vocabulary.
func prompt(n int) []int32 {
	p := make([]int32, n)
	for i := range p {
		p[i] = int32(i*37+11) % 97
	}
	return p
}

func generate(t *testing.T, e *Engine, r Request) Result {
	t.Helper()
	if r.Sampling.RepetitionPenalty == 0 {
		r.Sampling = sample.Defaults()
	}
	res, err := e.Generate(context.Background(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestGenerateIsRepeatable runs the same request on engines of different widths, twice on each.
func TestGenerateIsRepeatable(t *testing.T) {
	warm := sample.Defaults()
	warm.Temperature, warm.TopP, warm.Seed, warm.PresencePenalty = 0.9, 0.95, 7, 0.5
	for _, p := range []sample.Params{sample.Defaults(), warm} {
		var want []int32
		for _, threads := range []int{1, 2} {
			e := open(t, Options{Threads: threads, Context: 512})
			for range 2 {
				res := generate(t, e, Request{Prompt: prompt(300), MaxTokens: 40, Sampling: p})
				got := res.IDs()
				if want == nil {
					want = got
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%d threads: %v, want %v", threads, got, want)
				}
			}
		}
	}
}

func TestGenerateFollowsSeedAndTemperature(t *testing.T) {
	e := open(t, Options{Context: 256})
	p := sample.Defaults()
	p.Temperature = 1
	seen := map[string]bool{}
	for seed := range uint64(8) {
		p.Seed = seed
		res := generate(t, e, Request{Prompt: prompt(5), MaxTokens: 12, Sampling: p})
		seen[fmt.Sprint(res.IDs())] = true
	}
	if len(seen) < 2 {
		t.Errorf("8 seeds gave %d different outputs", len(seen))
	}
}

func TestGenerateEnds(t *testing.T) {
	e := open(t, Options{Context: 64})
	all := generate(t, e, Request{Prompt: prompt(10), MaxTokens: 30})
	if all.Finish != FinishLength || len(all.Tokens) != 30 || all.Steps != 29 {
		t.Errorf("at MaxTokens: %s after %d tokens and %d steps, want length, 30 and 29", all.Finish, len(all.Tokens), all.Steps)
	}
	full := generate(t, e, Request{Prompt: prompt(10), MaxTokens: 1000})
	if full.Finish != FinishLength || len(full.Tokens) != 64-10+1 {
		t.Errorf("at the context's end: %s after %d tokens, want length after 55", full.Finish, len(full.Tokens))
	}
	ids := all.IDs()
	stopAt := ids[7]
	first := slices.Index(ids, stopAt)
	cut := generate(t, e, Request{Prompt: prompt(10), MaxTokens: 30, Stop: func(id int32) bool { return id == stopAt }})
	if cut.Finish != FinishStop || !slices.Equal(cut.IDs(), ids[:first]) {
		t.Errorf("at a stop token: %s with %v, want stop with %v", cut.Finish, cut.IDs(), ids[:first])
	}
	exact := generate(t, e, Request{Prompt: prompt(64), MaxTokens: 5})
	if len(exact.Tokens) != 1 || exact.Finish != FinishLength {
		t.Errorf("a prompt that fills the context gave %d tokens, want 1", len(exact.Tokens))
	}
}

func TestGenerateRefuses(t *testing.T) {
	e := open(t, Options{Context: 64})
	bad := sample.Defaults()
	bad.TopP = 2
	for _, c := range []struct {
		name string
		req  Request
		want string
	}{
		{"no prompt", Request{MaxTokens: 1, Sampling: sample.Defaults()}, "empty"},
		{"long prompt", Request{Prompt: prompt(65), MaxTokens: 1, Sampling: sample.Defaults()}, "65 prompt tokens, context 64"},
		{"no tokens", Request{Prompt: prompt(1), Sampling: sample.Defaults()}, "max tokens"},
		{"bad sampling", Request{Prompt: prompt(1), MaxTokens: 1, Sampling: bad}, "top"},
		{"negative id", Request{Prompt: []int32{-1}, MaxTokens: 1, Sampling: sample.Defaults()}, "token id -1"},
		{"large id", Request{Prompt: []int32{1 << 30}, MaxTokens: 1, Sampling: sample.Defaults()}, "token id"},
	} {
		_, err := e.Generate(context.Background(), c.req, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
	// The engine is as good as before.
	generate(t, e, Request{Prompt: prompt(3), MaxTokens: 3})
}

func TestGenerateStopsEarly(t *testing.T) {
	e := open(t, Options{Context: 512})
	ctx, cancel := context.WithCancel(context.Background())
	res, err := e.Generate(ctx, Request{Prompt: prompt(3), MaxTokens: 500, Sampling: sample.Defaults()}, func(Token) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || len(res.Tokens) != 1 {
		t.Errorf("cancelled after one token: %d tokens, error %v", len(res.Tokens), err)
	}
	broken := errors.New("the reader has gone")
	res, err = e.Generate(context.Background(), Request{Prompt: prompt(3), MaxTokens: 500, Sampling: sample.Defaults()}, func(Token) error { return broken })
	if !errors.Is(err, broken) || len(res.Tokens) != 1 {
		t.Errorf("failed emit: %d tokens, error %v", len(res.Tokens), err)
	}
}

// TestHotPathDoesNotAllocate covers a decode step, a verify pass and a prefill chunk (invariant 6).
func TestHotPathDoesNotAllocate(t *testing.T) {
	passes := 20
	if !kernel.Best().Amortises { // the oracle's kernels take some hundred times as long
		passes = 1
	}
	for _, threads := range []int{1, 2} {
		e := open(t, Options{Threads: threads, Context: 512, Outs: 8})
		b := e.model.Batch()
		table := make([]int32, 512/16)
		for i := range table {
			table[i] = int32(i)
		}
		for _, rows := range []int{1, 8, 200} {
			run := func() {
				b.Reset()
				b.Blocks[0] = table
				for i := range rows {
					b.Append(0, int32(i%90), int32(i))
				}
				for i := max(0, rows-8); i < rows; i++ {
					b.WantLogits(i)
				}
				if err := e.model.Forward(); err != nil {
					t.Fatal(err)
				}
			}
			run()
			if n := testing.AllocsPerRun(passes, run); n != 0 {
				t.Errorf("%d threads, %d rows: %v allocations a pass", threads, rows, n)
			}
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Model: "random:nosuch-q4_0", Threads: 1}, "nosuch"},
		{Options{Model: tiny, Threads: 0}, "thread"},
		{Options{Model: tiny, Threads: 1, Context: 1 << 30}, "context"},
		{Options{Model: "testdata/absent.gguf", Threads: 1}, "absent.gguf"},
	} {
		e, err := Open(c.o)
		if err == nil {
			e.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want one with %q", c.o, err, c.want)
		}
	}
}

// TestFlush drops what a finished request left in the prefix cache, with and without someone who runs steps.
func TestFlush(t *testing.T) {
	e := open(t, Options{Context: 256})
	req := Request{Prompt: prompt(100), MaxTokens: 2}
	generate(t, e, req)
	if res := generate(t, e, req); res.Cached == 0 {
		t.Error("the same prompt again found nothing in the cache")
	}
	if n := e.Flush(); n == 0 {
		t.Error("nothing was flushed")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = e.Run(ctx)
	}()
	if res := generate(t, e, req); res.Cached != 0 {
		t.Errorf("%d cached tokens after a flush", res.Cached)
	}
	if n := e.Flush(); n == 0 {
		t.Error("nothing was flushed while steps run")
	}
	cancel()
	<-done
	e.Flush()
}

// TestCloseEndsWorkers opens and closes engines and expects no goroutine to stay.
func TestCloseEndsWorkers(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 5 {
		e, err := Open(Options{Model: tiny, Threads: 2, Context: 64})
		if err != nil {
			t.Fatal(err)
		}
		generate(t, e, Request{Prompt: prompt(3), MaxTokens: 3})
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for runtime.NumGoroutine() > before { // one that has said that it is done may not be gone yet; the test's own time limit ends the wait
		time.Sleep(time.Millisecond)
	}
}

// TestPlaceInTheQueue: a request that has begun to run counts as such while its prompt still runs, so that its place in the queue is another's.
func TestPlaceInTheQueue(t *testing.T) {
	e := open(t, Options{Context: 64, MaxRunning: 1, MaxWaiting: 2})
	type places struct{ running, waiting int }
	var seen []places
	for range 2 {
		_, err := e.Submit(Request{Prompt: prompt(10), MaxTokens: 2, Sampling: sample.Defaults(), Stop: func(int32) bool { // called in the step that ends the prompt
			s := e.Stats()
			seen = append(seen, places{s.Running, s.Waiting})
			return true
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for e.step() {
	}
	if want := []places{{1, 1}, {1, 0}}; !slices.Equal(seen, want) {
		t.Errorf("%v, want %v", seen, want)
	}
}
