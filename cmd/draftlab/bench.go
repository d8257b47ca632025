package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"draftlab/lab/client"
	"draftlab/lab/load"
	"draftlab/lab/measure"
	"draftlab/lab/prompts"
	"draftlab/lab/selfcheck"
)

// benchFlags are the command line of bench.
type benchFlags struct {
	url, api, model, arrivals string

	dataset, path        string
	inputLen, outputLen  int
	rate                 float64
	concurrency          int
	requests             int64
	duration, stall      time.Duration
	seed                 uint64
	temperature          float64
	ignoreEOS, repeat    bool
	warmups              int64
	goodput, headers     []string
	extra, out, benchout string
	selfCheck            bool
}

// The sets of prompts that are no files.
const (
	ownPrompts    = "draftlab"
	longPrompts   = "draftlab-long"
	randomPrompts = "random"
)

func newBench(env *Env) *cobra.Command {
	f := benchFlags{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a server's latency, throughput and acceptance",
		Long: `Bench sends requests to a server with the OpenAI or the SGLang API (draftlab, SGLang, vLLM, llama.cpp) and
reports what came of them. One request at a time by default; --max-concurrency N keeps N running (a closed
loop), --request-rate R sends on the schedule of a Poisson process whatever the server does (an open loop),
and then all latencies count from the moment a request was due.

The prompts are the project's own that no drafter was trained on (short ones, or draftlab-long with 1,000 to
2,500 tokens each), or those of a file, in an order that --seed gives, so that runs with the same flags can be
compared request by request: see bench compare. A prompt that is sent again gets a mark in front, so that no
prefix cache answers for the model, and the server's prefix cache is emptied before the measurement (where that
cannot be, every prompt gets a mark of the run). Before that the server is warmed up until its speed settles.

What the metrics mean, and what other tools call them, is in docs/metrics.md. With --out each request
becomes a line of JSON. The JSON document has the keys of vLLM's and SGLang's benchmarks and, of its own,
"failures", "late_starts", "dropped_starts", "steady_output_throughput", "acceptance", "warmup",
"environment", "server_info" (the server's own account of its settings) and "warnings".

With --self-check it measures itself instead, against a mock server in this process whose answers come at
known times: the error of its readings, its send lag, and the load at which this machine gives in.

Requests that fail are counted by kind and do not end a run; if none succeeded the exit status is 1. An
interrupted run shows what it had measured, and its status is 130.` + exitHelp,
		Example: `  draftlab bench --base-url http://127.0.0.1:30000
  draftlab bench --max-concurrency 8 --num-prompts 400 --out before.jsonl
  draftlab bench --request-rate 2.5 --duration 1m --goodput ttft:200 --goodput tpot:20
  draftlab bench --dataset-name mt-bench --dataset-path question.jsonl
  draftlab bench --self-check --request-rate 2000 --output-len 8`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return runBench(env, cmd, &f) },
	}
	f.register(cmd)
	cmd.AddCommand(newBenchCompare(env), newBenchMock(env))
	return cmd
}

// register defines the flags.
func (f *benchFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.url, "base-url", "http://127.0.0.1:30000", "the server is at `URL`")
	fl.StringVar(&f.api, "api", "chat", "ask by chat, completions or generate (SGLang's own)")
	fl.StringVar(&f.model, "model", "", "ask for the model `NAME`; the server's first one if empty")
	fl.StringVar(&f.dataset, "dataset-name", ownPrompts, "send the `SET` draftlab, draftlab-long or random, or a file in the form jsonl, sharegpt or mt-bench")
	fl.StringVar(&f.path, "dataset-path", "", "read the prompts from `FILE`")
	fl.IntVar(&f.inputLen, "random-input-len", 128, "random prompts have `N` words")
	fl.IntVar(&f.outputLen, "output-len", 128, "an output has at most `N` tokens")
	fl.Float64Var(&f.rate, "request-rate", 0, "send `R` requests a second on a Poisson schedule; 0 is a closed loop")
	fl.StringVar(&f.arrivals, "arrivals", "poisson", "with --request-rate: poisson, as of people, or even, at equal intervals")
	fl.IntVar(&f.concurrency, "max-concurrency", 0, "have at most `N` requests running; 0 is 1 in a closed loop, no limit in an open one")
	fl.Int64Var(&f.requests, "num-prompts", 0, "send `N` requests; 0 is each prompt once, or no limit with --duration")
	fl.DurationVar(&f.duration, "duration", 0, "send for a `TIME` such as 30s")
	fl.DurationVar(&f.stall, "stall", 10*time.Minute, "a request has failed when nothing came for a `TIME`")
	fl.Uint64Var(&f.seed, "seed", 0, "order of the prompts, and arrivals")
	fl.Float64Var(&f.temperature, "temperature", 0, "sample at `T`; 0 is greedy")
	fl.BoolVar(&f.ignoreEOS, "ignore-eos", false, "go on behind the end of the text, where it is repetitive and easy to draft")
	fl.BoolVar(&f.repeat, "repeat", false, "send prompts anew as they are, and leave the server's prefix cache filled")
	fl.Int64Var(&f.warmups, "num-warmups", -1, "send `N` requests first; -1 is until the speed has settled")
	fl.StringArrayVar(&f.goodput, "goodput", nil, "a good request has `METRIC:MS` at most: ttft, tpot or e2el")
	fl.StringVar(&f.extra, "extra-request-body", "", "add the fields of the `JSON` object to each request")
	fl.StringArrayVar(&f.headers, "header", nil, "send the header `NAME:VALUE` with each request")
	fl.StringVar(&f.out, "out", "", "write a line of JSON for each request to `FILE`")
	fl.StringVar(&f.benchout, "benchstat", "", "append the result to `FILE` in the format that benchstat reads")
	fl.BoolVar(&f.selfCheck, "self-check", false, "measure the client itself against a mock server")
}

// fineTime readies the process for timing: with as many processors for Go as the machine has, goroutines that wake would wait for those
// that run, where the system would have shared the processor; and a collector that runs for a few megabytes takes a quarter of it.
func fineTime(env *Env) {
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), env.Procs+2))
	debug.SetGCPercent(400)
}

func runBench(env *Env, cmd *cobra.Command, f *benchFlags) error {
	fineTime(env)
	plan, err := f.plan(cmd)
	if err != nil {
		return err
	}
	if f.selfCheck {
		if flag := changed(cmd, "base-url", "api", "model", "dataset-name", "dataset-path", "out", "benchstat", "goodput", "extra-request-body", "header"); flag != "" {
			return usage(cmd, "%s is for a server: --self-check measures the client against a mock server of its own", flag)
		}
		return selfCheck(env, cmd, plan, f.outputLen)
	}
	set, err := f.prompts(env, cmd)
	if err != nil {
		return err
	}
	if plan.Requests == 0 && plan.Duration == 0 {
		plan.Requests = int64(len(set))
	}
	return measureServer(env, cmd, f, plan, set)
}

// plan returns the load, which has no end if the flags give none.
func (f *benchFlags) plan(cmd *cobra.Command) (load.Plan, error) {
	if f.arrivals != "poisson" && f.arrivals != "even" {
		return load.Plan{}, usage(cmd, "--arrivals %q: want poisson or even", f.arrivals)
	}
	p := load.Plan{Rate: f.rate, Even: f.arrivals == "even", Concurrency: f.concurrency, Requests: f.requests, Duration: f.duration, Seed: f.seed}
	if p.Rate == 0 && p.Concurrency == 0 {
		p.Concurrency = 1
	}
	ended := p
	if ended.Requests == 0 && ended.Duration == 0 {
		ended.Requests = 1
	}
	if err := ended.Check(); err != nil {
		return p, usage(cmd, "%v", err)
	}
	if f.outputLen < 1 || f.inputLen < 1 {
		return p, usage(cmd, "--output-len %d, --random-input-len %d: want at least 1", f.outputLen, f.inputLen)
	}
	if f.stall <= 0 {
		return p, usage(cmd, "--stall %v: want a positive time", f.stall)
	}
	return p, nil
}

// prompts returns the prompts in the order in which they are sent.
func (f *benchFlags) prompts(env *Env, cmd *cobra.Command) (prompts.Set, error) {
	format := prompts.Format(f.dataset)
	isFile := slices.Contains(prompts.Formats(), format)
	switch {
	case isFile && f.path == "":
		return nil, usage(cmd, "--dataset-name %s needs --dataset-path", f.dataset)
	case !isFile && f.path != "":
		return nil, usage(cmd, "--dataset-path: the form of a file is named by --dataset-name: %q", prompts.Formats())
	case isFile:
		data, err := os.ReadFile(f.path)
		if err != nil {
			return nil, err
		}
		set, err := prompts.ParseFile(format, data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
		return set.Shuffled(f.seed), nil
	case f.dataset == ownPrompts:
		return prompts.All().Of(prompts.HeldOut).Shuffled(f.seed), nil
	case f.dataset == longPrompts:
		return prompts.Long().Of(prompts.HeldOut).Shuffled(f.seed), nil
	case f.dataset == randomPrompts:
		env.progress().Note("random words misstate acceptance: drafters do better or worse on what follows nonsense than on text")
		n := int64(1000) // of which a longer run sends marked copies
		if f.requests > 0 {
			n = min(n, f.requests)
		}
		return prompts.Random(int(n), f.inputLen, f.seed), nil
	}
	return nil, usage(cmd, "--dataset-name %q: want %s, %s, %s or one of %q", f.dataset, ownPrompts, longPrompts, randomPrompts, prompts.Formats())
}

// door returns the API of a flag.
func (f *benchFlags) door(cmd *cobra.Command) (client.API, error) {
	switch f.api {
	case "chat":
		return client.Chat, nil
	case "completions":
		return client.Completion, nil
	case "generate":
		return client.Generate, nil
	}
	return "", usage(cmd, "--api %q: want chat, completions or generate", f.api)
}

// slo returns the limits of good requests.
func (f *benchFlags) slo(cmd *cobra.Command) (slo measure.SLO, err error) {
	for _, text := range f.goodput {
		name, value, _ := strings.Cut(text, ":")
		ms, err := time.ParseDuration(value + "ms")
		if err != nil || ms <= 0 {
			return slo, usage(cmd, "--goodput %q: want METRIC:MS, such as ttft:200", text)
		}
		switch name {
		case "ttft":
			slo.TTFT = ms
		case "tpot":
			slo.TPOT = ms
		case "e2el", "e2e":
			slo.E2E = ms
		default:
			return slo, usage(cmd, "--goodput %q: want ttft, tpot or e2el", text)
		}
	}
	return slo, nil
}

// headerName matches what may stand before the colon (RFC 9110, 5.6.2).
var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// header returns the headers that each request carries.
func (f *benchFlags) header(cmd *cobra.Command) (http.Header, error) {
	h := http.Header{}
	for _, text := range f.headers {
		name, value, ok := strings.Cut(text, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || !headerName.MatchString(name) || strings.ContainsFunc(value, unicode.IsControl) {
			return nil, usage(cmd, "--header %q: want NAME:VALUE, such as X-Team:speech", text)
		}
		h.Add(name, value)
	}
	return h, nil
}

// fields returns what is added to each request.
func (f *benchFlags) fields(cmd *cobra.Command) (map[string]any, error) {
	extra := map[string]any{"temperature": f.temperature}
	if f.extra == "" {
		return extra, nil
	}
	if err := json.Unmarshal([]byte(f.extra), &extra); err != nil {
		return nil, usage(cmd, "--extra-request-body: want a JSON object: %v", err)
	}
	return extra, nil
}

// selfCheck measures the client.
func selfCheck(env *Env, cmd *cobra.Command, plan load.Plan, tokens int) error {
	if plan.Requests == 0 && plan.Duration == 0 {
		plan.Duration = 3 * time.Second
	}
	p := env.progress()
	r, err := selfcheck.Run(cmd.Context(), plan, mockTiming(tokens), p.Note)
	if err != nil {
		return err
	}
	return printSelfCheck(env, wantsJSON(cmd), r)
}

// mockTiming has each stream give 50 tokens a second, as a reader would see from a server under load.
func mockTiming(tokens int) selfcheck.Timing {
	return selfcheck.Timing{First: 50 * time.Millisecond, Gap: 20 * time.Millisecond, Tokens: tokens}
}
