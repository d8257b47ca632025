package campaign

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"draftlab/lab/client"
	"draftlab/lab/store"
	"draftlab/lab/target"
	"draftlab/lab/trial"
)

// fakeEngine starts servers that write at given speeds, in the time of the test's bubble.
type fakeEngine struct {
	apart    bool               // each way of drafting needs a start of its own
	speed    map[string]float64 // tokens a second by drafter and steps, as in eagle33; 100 for what is not there
	env      map[string]float64 // factor by NAME=value
	noise    float64            // of the logarithm of each request's speed
	boot     float64            // and of each start's
	load     time.Duration
	rng      *rand.Rand
	spoil    func(n int, arm string, s *client.Sample)
	fail     func(o target.BootOptions) error // of a start
	dies     func(n int, arm string) error    // before a request
	silent   func(n int) error                // of emptying the cache, while the server lives
	findings []target.Finding

	mu      sync.Mutex
	asked   int
	running int
	started []string
}

func newFake(seed uint64, noise float64, speed map[string]float64) *fakeEngine {
	return &fakeEngine{speed: speed, noise: noise, rng: rand.New(rand.NewPCG(seed, 1)), load: time.Second}
}

func (e *fakeEngine) Name() string                        { return "fake" }
func (e *fakeEngine) Check([]trial.Arm) []target.Finding  { return e.findings }
func (e *fakeEngine) Command(trial.Knobs) (string, error) { return "fake", nil }

func (e *fakeEngine) Split(k trial.Knobs) (trial.Knobs, map[string]any) {
	if e.apart {
		return apart{}.Split(k)
	}
	return shared{}.Split(k)
}

func (e *fakeEngine) Boot(ctx context.Context, o target.BootOptions) (Server, error) {
	select {
	case <-time.After(e.load):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	e.started = append(e.started, o.Name)
	if e.fail != nil {
		if err := e.fail(o); err != nil {
			return nil, err
		}
	}
	e.running++
	return &fakeServer{e: e, knobs: o.Knobs, factor: math.Exp(e.boot * e.rng.NormFloat64())}, nil
}

type fakeServer struct {
	e      *fakeEngine
	knobs  trial.Knobs
	factor float64
	cached bool // somebody has asked since the last flush
	dead   error
	cycles int64
	ended  bool
}

func (s *fakeServer) Flush(context.Context) error {
	s.cached = false
	if s.dead == nil && s.e.silent != nil {
		return s.e.silent(s.e.asked)
	}
	return s.dead
}

func (s *fakeServer) Failure() error { return s.dead }
func (s *fakeServer) Info(context.Context) (map[string]any, error) {
	return map[string]any{"env": s.knobs.Env}, nil
}
func (s *fakeServer) Differences(map[string]any) []trial.Difference {
	return nil
}

func (s *fakeServer) Environment(context.Context) (out []trial.EnvCheck, err error) {
	for name, value := range s.knobs.Env {
		out = append(out, trial.EnvCheck{Name: name, Want: value, Process: "server", Got: value, State: "unknown"})
	}
	return out, nil
}

func (s *fakeServer) Stop(time.Duration) {
	if !s.ended {
		s.ended = true
		s.e.running--
	}
}

func (s *fakeServer) Ledger(context.Context) (*trial.Ledger, error) {
	return &trial.Ledger{Cycles: s.cycles, PhaseNS: map[string]int64{"verify": 3e6 * s.cycles}}, s.dead
}

func (s *fakeServer) Ask(ctx context.Context, r *client.Request) *client.Sample {
	s.e.mu.Lock()
	out := s.answer(r)
	s.e.mu.Unlock()
	select {
	case <-time.After(time.Duration(out.EndNS)):
	case <-ctx.Done():
		out.Error = ctx.Err().Error()
	}
	return out
}

func (s *fakeServer) answer(r *client.Request) *client.Sample {
	e := s.e
	drafter, steps := s.knobs.Drafter, s.knobs.Steps
	if !e.apart {
		drafter, steps = r.Extra["drafter"].(string), r.Extra["steps"].(int)
	}
	arm := drafter
	if steps > 0 {
		arm += fmt.Sprint(steps)
	}
	rate := 100.0
	if v, ok := e.speed[arm]; ok {
		rate = v
	}
	for k, v := range s.knobs.Env {
		if f, ok := e.env[k+"="+v]; ok {
			rate *= f
		}
	}
	rate *= s.factor * math.Exp(e.noise*e.rng.NormFloat64())
	n := r.MaxTokens
	out := &client.Sample{StartUnixNS: time.Now().UnixNano(), FirstNS: 50e6, PromptTokens: 10, OutputTokens: n, Status: 200, Finish: "length"}
	if s.cached {
		out.CachedTokens = 10
	}
	s.cached = true
	cycles := n - 1
	if steps > 0 { // half of the drafts are accepted
		cycles = (n - 1) * 2 / (steps + 2)
		out.Spec = &client.Speculation{Cycles: int64(cycles), Drafted: int64(cycles * steps), Accepted: int64(cycles * steps / 2)}
	}
	s.cycles += int64(cycles)
	out.DecodeSteps, out.LastNS = cycles, 50e6+int64(float64(n-1)/rate*1e9)
	out.EndNS, out.Chunks = out.LastNS, []client.Chunk{{AtNS: 50e6, Tokens: 1, Bytes: 1}, {AtNS: out.LastNS, Tokens: n - 1, Bytes: n - 1}}
	for i := range n {
		out.TokenIDs = append(out.TokenIDs, int32(i*len(r.Prompt)))
	}
	if e.spoil != nil {
		e.spoil(e.asked, arm, out)
	}
	if e.dies != nil {
		if err := e.dies(e.asked, arm); err != nil {
			s.dead = err
			*out = client.Sample{Error: "connection reset"}
		}
	}
	e.asked++
	return out
}

// usual is a campaign file of the arms that tune measures, on fewer prompts.
const usual = "drafter: d\nworkload: {count: 12, confirm: 12, max_tokens: 64}\narms: [{drafter: ngram, steps: 3}, {steps: 1}, {steps: 2}, {steps: 3}, {steps: 5}]\n"

// memory is a directory that is gone with the test, in memory where the system has such: thousands of trials are written to disk one by one.
func memory(t *testing.T) string {
	t.Helper()
	const shared = "/dev/shm"
	if _, err := os.Stat(shared); err != nil {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(shared, "draftlab-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// campaign is one that a test runs.
type campaign struct {
	store     *store.Store
	engine    *fakeEngine
	bandwidth func() float64
	ctx       context.Context
}

// start makes the store of a campaign. It must be called in the bubble that runs it.
func start(t *testing.T, e *fakeEngine, text string) *campaign {
	t.Helper()
	c := parsed(t, text)
	setup, err := New(c, 7, map[string]string{"host": "here"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Create(memory(t), setup)
	if err != nil {
		t.Fatal(err)
	}
	return &campaign{store: s, engine: e, bandwidth: func() float64 { return 20e9 }, ctx: context.Background()}
}

func (c *campaign) run() error {
	return Run(c.ctx, Config{Store: c.store, Engine: c.engine, Set: held(), Bandwidth: c.bandwidth, Progress: func(Progress) {}})
}

// finish runs a campaign to its result.
func finish(t *testing.T, e *fakeEngine, text string, change func(*campaign)) (r *Result, d *data) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, e, text)
		defer c.store.Close()
		if change != nil {
			change(c)
		}
		if err := c.run(); err != nil {
			t.Fatal(err)
		}
		r, d = c.result(t)
	})
	if e.running != 0 {
		t.Errorf("%d servers are left", e.running)
	}
	return r, d
}

func (c *campaign) result(t *testing.T) (*Result, *data) {
	t.Helper()
	d, err := read(c.store)
	if err != nil {
		t.Fatal(err)
	}
	return d.result(), d
}

// failure runs a campaign that fails.
func failure(t *testing.T, e *fakeEngine, text string) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, e, text)
		defer c.store.Close()
		err = c.run()
	})
	if e.running != 0 {
		t.Errorf("%d servers are left", e.running)
	}
	return err
}

func (r *Result) arm(name string) *ArmResult {
	return &r.Arms[slices.IndexFunc(r.Arms, func(a ArmResult) bool { return a.Name == name })]
}
