package engine

import (
	"fmt"
	"strings"

	"draftlab/engine/compute"
	"draftlab/engine/compute/cpu"
	"draftlab/engine/compute/cpu/kernel"
	"draftlab/engine/model"
	"draftlab/engine/sample"
	"draftlab/engine/tokenizer"
	"draftlab/engine/weights"
)

// prefillChunk is the number of prompt rows in one pass. Weights are reused from the first-level cache
// over all tiles of a chunk, so that more rows bring little beyond a few hundred, while buffers grow with them.
const prefillChunk = 256

// Options say what to load and how to run it.
type Options struct {
	Model   string // path of a GGUF file or a Hugging Face checkpoint, or random:SHAPE
	Seed    uint64 // of random weights
	Threads int    // worker threads, at least 1
	Context int    // longest sequence in tokens; 0 is the model's own limit
	Outs    int    // most rows of a pass with logits; 0 is 1
	Float32 bool   // decode weights to float32 and keep keys and values so (the path that checks the others)
	Generic bool   // run the generic Go kernels (the oracle)

	Progress func(done, total int64) // told while weights load, in bytes; may be nil
}

// Engine is a loaded model on its device. One goroutine at a time may call it.
type Engine struct {
	dev     *cpu.Device
	model   *model.Model
	tok     *tokenizer.Tokenizer
	sampler *sample.Sampler
	logits  []float32 // one row, for sampling
	blocks  []int32   // block table of the one sequence
}

// Open loads a model and its tokenizer. Close frees it.
func Open(o Options) (*Engine, error) {
	set := kernel.Best()
	if o.Generic {
		set = kernel.Sets()[0]
	}
	dev, err := cpu.New(o.Threads, set)
	if err != nil {
		return nil, err
	}
	e := &Engine{dev: dev}
	if err := e.load(o); err != nil {
		_ = dev.Close()
		return nil, err
	}
	return e, nil
}

// load reads configuration, tokenizer and weights.
func (e *Engine) load(o Options) error {
	cfg, err := e.describe(o.Model)
	if err != nil {
		return err
	}
	opt := model.Options{
		Context: o.Context, MaxRows: prefillChunk, MaxSeqs: 1, MaxOut: max(1, o.Outs),
		Float32: o.Float32, Progress: o.Progress,
	}
	if opt.Context == 0 {
		opt.Context = cfg.MaxContext
	}
	opt.Blocks = (opt.Context + compute.BlockSlots - 1) / compute.BlockSlots
	if name, ok := strings.CutPrefix(o.Model, model.RandomPrefix); ok {
		e.model, err = model.LoadRandom(e.dev, name, o.Seed, opt)
	} else {
		e.model, err = model.Load(e.dev, o.Model, opt)
	}
	if err != nil {
		return err
	}
	e.sampler, e.logits = sample.New(cfg.Vocab), make([]float32, cfg.Vocab)
	e.blocks = make([]int32, opt.Blocks)
	for i := range e.blocks {
		e.blocks[i] = int32(i)
	}
	return nil
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

// Close ends the device's workers and frees all memory of the model.
func (e *Engine) Close() error { return e.dev.Close() }

// Tokenizer returns the model's tokenizer, nil for a random model.
func (e *Engine) Tokenizer() *tokenizer.Tokenizer { return e.tok }

// Model returns the loaded model.
func (e *Engine) Model() *model.Model { return e.model }

// Device returns the device that the model runs on.
func (e *Engine) Device() compute.Device { return e.dev }

// Context returns the longest sequence, prompt and output together, in tokens.
func (e *Engine) Context() int { return e.model.Options().Context }
