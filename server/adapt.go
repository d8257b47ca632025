package server

import (
	"fmt"

	"draftlab/engine"
)

// Wrap makes an engine fit the server. Its loop is the caller's to run.
func Wrap(e *engine.Engine) Engine { return adapted{e} }

type adapted struct{ *engine.Engine }

// Submit hands in a request.
func (a adapted) Submit(req engine.Request) (Stream, error) {
	h, err := a.Engine.Submit(req)
	if err != nil {
		return nil, err // not h: a nil *Handle in a Stream would not be nil
	}
	return h, nil
}

// Info describes the engine.
func (a adapted) Info() Info {
	cfg, opt, dev := a.Model().Config(), a.Options(), a.Device().Info()
	return Info{
		Vocab: cfg.Vocab, Context: a.Context(), MaxRunning: opt.MaxRunning, MaxWaiting: opt.MaxWaiting,
		Spec: opt.Spec, Limit: opt.Limit, Simulated: opt.SimulateAcceptLength, Arch: string(cfg.Arch), WeightBytes: a.Model().WeightBytesPerToken(),
		ClockOrigin: a.Device().Clock().Origin(),
		Device:      fmt.Sprintf("%s %s, %d threads", dev.Name, dev.ISA, dev.Threads),
	}
}
