package engine

import (
	"fmt"
	"strings"
	"sync"

	"draftlab/engine/compute"
	"draftlab/engine/compute/cpu"
	"draftlab/engine/compute/cpu/kernel"
	"draftlab/engine/draft"
	"draftlab/engine/draft/eagle3"
	"draftlab/engine/kvcache"
	"draftlab/engine/model"
	"draftlab/engine/sample"
	"draftlab/engine/sched"
	"draftlab/engine/tokenizer"
	"draftlab/engine/trace"
	"draftlab/engine/weights"
)

const (
	// prefillRows is the number of prompt rows in one step. Weights are reused from the first-level cache over all
	// tiles of a pass, so that more rows bring little beyond a few hundred, while buffers grow with them, and with them the
	// time for which running sequences wait on a step.
	prefillRows = 256
	// decodeRows bounds the rows of a verify pass: each has a row of logits (200 kB on the default target), and
	// beyond some dozens a pass is bound by arithmetic, where a draft token costs what a token of another sequence does.
	decodeRows = 128
)

// Options say what to load and how to run it.
type Options struct {
	Model   string // path of a GGUF file or a Hugging Face checkpoint, or random:SHAPE
	Seed    uint64 // of random weights
	Threads int    // worker threads, at least 1
	Context int    // longest sequence in tokens; 0 is the model's own limit
	Float32 bool   // decode weights to float32 and keep keys and values so (the path that checks the others)
	Generic bool   // run the generic Go kernels (the oracle)

	MaxRunning int // sequences in one step; 0 is 1
	MaxWaiting int // requests that wait for a place; 0 is 1
	Blocks     int // key/value blocks of all sequences; 0 is enough for MaxRunning sequences of full length
	Outs       int // most rows of a pass with logits; 0 is what MaxRunning sequences within Limit need
	Rows       int // most rows of a pass, for those who run passes of the model themselves; 0 is what serving needs
	// Taps are the hidden states to keep of a pass, for those likewise; a Drafter keeps its own. See model.Options.TapLayers.
	Taps []int

	// Drafter is the directory of an EAGLE-3 checkpoint, or RandomDrafter, or "" for none. LayerIDs says how its
	// configuration counts layers.
	Drafter  string
	LayerIDs eagle3.LayerIDs
	// DrafterFormat is how the drafter's weights lie on the device.
	DrafterFormat eagle3.Format

	Spec  Spec        // how requests speculate that do not say; the zero Spec is plain decoding
	Limit draft.Shape // the largest draft that a request may ask for; at least Spec.Shape

	// SimulateAcceptLength, if not 0, is for studies of cost alone: requests that speculate with DraftModel accept drafts by
	// the dice, so that the mean accept length is this one (draft.Simulation), whatever the target thinks of them. Their text means
	// nothing, no token ends it, and Result.Simulated says so. It takes rule A, no look-up and no PMin.
	SimulateAcceptLength float64

	Progress func(done, total int64) // told while weights load; may be nil
}

// RandomDrafter as Options.Drafter is a head of the target's shape with seeded random weights, for studies of cost.
const RandomDrafter = "random"

// Engine is a loaded model and the sequences that it runs. Submit, Stats and the methods of handles may be called by any
// goroutine; steps run on one at a time.
type Engine struct {
	dev     *cpu.Device
	model   *model.Model
	tok     *tokenizer.Tokenizer
	opt     Options
	sampler *sample.Sampler
	logits  []float32 // one row, for sampling
	ranked  []Logprob // scratch of the most probable tokens

	ledger *kvcache.Ledger
	sched  *sched.Scheduler
	seqs   []*sequence // by sched.Seq
	count  counters
	trace  *trace.Trace // nil where none is recorded
	served int64        // requests that the loop has taken

	drafter     *eagle3.Drafter // nil for none
	candidates  candidates
	proposer    proposer
	simulation  *draft.Simulation // nil where acceptance is real
	featureRows []int32           // scratch: the target's rows whose states the drafter takes
	drafts      []drafting        // scratch: sequences that get new candidates

	driver sync.Mutex // held by whoever runs steps
	inbox  inbox
	moves  struct{ from, to []int32 }
	fresh  []Token // of the sequence at hand
	path   []int32 // likewise
	looked []int32 // tokens found by look-up
}

// Open loads a model and its tokenizer. Close frees it.
func Open(o Options) (*Engine, error) {
	if err := o.resolve(); err != nil {
		return nil, err
	}
	set := kernel.Best()
	if o.Generic {
		set = kernel.Sets()[0]
	}
	dev, err := cpu.New(o.Threads, set)
	if err != nil {
		return nil, err
	}
	e := &Engine{dev: dev, opt: o}
	if o.SimulateAcceptLength != 0 {
		e.simulation, _ = draft.NewSimulation(o.SimulateAcceptLength, o.Spec.Shape.Steps) // resolve has looked at it
	}
	if err := e.load(); err != nil {
		_ = dev.Close()
		return nil, err
	}
	return e, nil
}

// SpeculationPays reports whether this machine's kernels serve several rows of a pass at little more than the cost of one.
func SpeculationPays() bool { return kernel.Best().Amortises }

// resolve fills in what is 0 and refuses what contradicts itself.
func (o *Options) resolve() error {
	o.MaxRunning, o.MaxWaiting = max(o.MaxRunning, 1), max(o.MaxWaiting, 1)
	if err := o.Spec.resolve(); err != nil {
		return err
	}
	if o.Limit == (draft.Shape{}) {
		o.Limit = o.Spec.Shape
	}
	if err := o.Limit.Validate(); err != nil {
		return err
	}
	if o.Spec.Drafter == DraftModel && o.Drafter == "" {
		return errNoDrafter
	}
	if err := o.CheckSimulation(); err != nil {
		return err
	}
	return o.Spec.Shape.Within(o.Limit)
}

// resolve gives the zero Spec its meaning and checks the others.
func (s *Spec) resolve() error {
	if s.Drafter == "" || s.Shape.Steps == 0 {
		s.Drafter, s.Shape = DraftNone, draft.Shape{}
	}
	if s.Rule == "" {
		s.Rule = RuleA
	}
	switch {
	case s.Drafter != DraftNone && s.Drafter != DraftNgram && s.Drafter != DraftModel:
		return fmt.Errorf("drafter %q: want %s, %s or %s", s.Drafter, DraftNone, DraftNgram, DraftModel)
	case s.Rule != RuleA && s.Rule != RuleB:
		return fmt.Errorf("rule %q: want %s or %s", s.Rule, RuleA, RuleB)
	case s.Rule == RuleB && s.Drafter != DraftModel:
		return fmt.Errorf("rule %s with drafter %s: it draws drafts from the distribution of drafter %s; use rule %s", RuleB, s.Drafter, DraftModel, RuleA)
	case s.PMin < 0 || s.PMin > 1 || s.PMin != s.PMin:
		return fmt.Errorf("p-min = %g: want 0 to 1", s.PMin)
	}
	return s.Shape.Validate()
}

// load reads configuration, tokenizer and weights, and makes the books.
func (e *Engine) load() error {
	o := &e.opt
	cfg, err := e.describe(o.Model)
	if err != nil {
		return err
	}
	if o.Context == 0 {
		o.Context = cfg.MaxContext
	}
	rows := max(o.MaxRunning, min(decodeRows, o.MaxRunning*o.Limit.Rows()))
	opt := model.Options{
		Context: o.Context, MaxRows: max(prefillRows, rows, o.Rows), MaxSeqs: o.MaxRunning, MaxOut: max(rows, o.Outs), TapLayers: o.Taps,
		Float32: o.Float32, Progress: o.Progress, Blocks: o.Blocks,
	}
	if opt.Blocks == 0 {
		opt.Blocks = o.MaxRunning * kvcache.BlocksFor(o.Context+spareSlots)
	}
	if o.Drafter != "" {
		opt.TapLayers, err = e.taps(cfg.Layers, func() (eagle3.Config, error) { return eagle3.RandomConfig(cfg, 0) })
		if err != nil {
			return err
		}
	}
	if name, ok := strings.CutPrefix(o.Model, model.RandomPrefix); ok {
		e.model, err = model.LoadRandom(e.dev, name, o.Seed, opt)
	} else {
		e.model, err = model.Load(e.dev, o.Model, opt)
	}
	if err != nil {
		return err
	}
	if o.Drafter != "" {
		if err := e.loadDrafter(); err != nil {
			return err
		}
	}
	e.sampler, e.logits = sample.New(cfg.Vocab), make([]float32, cfg.Vocab)
	e.ledger = kvcache.New(opt.Blocks)
	e.sched, err = sched.New(sched.Config{
		Context: o.Context, MaxRunning: o.MaxRunning, MaxWaiting: o.MaxWaiting, PrefillRows: prefillRows, DecodeRows: rows, Spare: spareSlots,
	}, memory{e})
	if err != nil {
		return err
	}
	e.reserve(rows)
	e.seqs = make([]*sequence, e.sched.Handles())
	e.inbox.wake = make(chan struct{}, 1)
	e.count.open(e.dev.Clock())
	e.count.stats.Blocks = opt.Blocks
	return nil
}

// reserve makes the scratch as large as it can get, so that no cycle grows it (invariant 6); rows is the most that a verify pass has.
func (e *Engine) reserve(rows int) {
	deep := e.opt.Limit.Steps + 1
	e.path, e.fresh, e.looked = make([]int32, 0, deep), make([]Token, 0, deep), make([]int32, 0, deep)
	e.moves.from, e.moves.to = make([]int32, 0, deep), make([]int32, 0, deep)
	e.featureRows, e.drafts = make([]int32, 0, max(prefillRows, rows)), make([]drafting, 0, e.opt.MaxRunning)
}

// describe reads a model's configuration, and its tokenizer unless it is a random one, which has none.
func (e *Engine) describe(name string) (model.Config, error) {
	if strings.HasPrefix(name, model.RandomPrefix) {
		cfg, _, err := model.ParseRandom(name)
		return cfg, err
	}
	f, err := weights.Open(name)
	if err != nil {
		return model.Config{}, err
	}
	defer f.Close()
	cfg, err := model.ReadConfig(f)
	if err != nil {
		return cfg, err
	}
	e.tok, err = loadTokenizer(f)
	if err != nil {
		return cfg, fmt.Errorf("%s: %w", name, err)
	}
	if n := e.tok.Vocab(); n > cfg.Vocab {
		return cfg, fmt.Errorf("%s: the tokenizer has %d tokens, the model's vocabulary %d", name, n, cfg.Vocab)
	}
	return cfg, nil
}

// Close ends the device's workers and frees all memory of the model. No step may be running.
func (e *Engine) Close() error { return e.dev.Close() }

// Tokenizer returns the model's tokenizer, nil for a random model.
func (e *Engine) Tokenizer() *tokenizer.Tokenizer { return e.tok }

// Model returns the loaded model.
func (e *Engine) Model() *model.Model { return e.model }

// Drafter returns the loaded EAGLE-3 head, nil for none.
func (e *Engine) Drafter() *eagle3.Drafter { return e.drafter }

// Device returns the device that the model runs on.
func (e *Engine) Device() compute.Device { return e.dev }

// Context returns the longest sequence, prompt and output together, in tokens.
func (e *Engine) Context() int { return e.model.Options().Context }

// Options returns the options with every default resolved.
func (e *Engine) Options() Options { return e.opt }
