package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"draftlab/engine"
	"draftlab/engine/ledger"
)

// shares are the parts of the loop's time in which the target's pass of a cycle ran: as the ledger has it and as the profile.
type shares struct {
	ledger, profile float64
	samples         int // of the loop
}

// shares runs requests for a time under the profiler.
func (m *measurement) shares(ctx context.Context, length time.Duration) (s shares, err error) {
	var profiled bytes.Buffer
	before := m.e.Ledger().Totals()
	if err := pprof.StartCPUProfile(&profiled); err != nil {
		return s, err
	}
	end := time.Now().Add(length)
	for err == nil && time.Now().Before(end) {
		fmt.Fprintf(m.log, "\rprofile: %.0f s to go ", time.Until(end).Seconds())
		err = m.request(ctx, func(engine.Token) error {
			if time.Now().After(end) {
				return errEnough
			}
			return nil
		})
	}
	pprof.StopCPUProfile()
	fmt.Fprintln(m.log)
	if err != nil && !errors.Is(err, errEnough) {
		return s, err
	}
	after := m.e.Ledger().Totals()
	p, err := profile.Parse(&profiled)
	if err != nil {
		return s, err
	}
	in, all := count(p)
	if all == 0 {
		return s, errors.New("the profile has no sample of the engine's loop: a longer --seconds")
	}
	// A cycle whose draft is capped to nothing is a decode pass, one a request: the stacks do not tell it apart.
	pass := func(t *ledger.Times) int64 { return t[ledger.Verify] + t[ledger.Decode] }
	s.ledger = float64(pass(&after.Phase)-pass(&before.Phase)) / float64(after.Phase.Sum()-before.Phase.Sum())
	s.profile, s.samples = float64(in)/float64(all), int(all)
	return s, nil
}

// The functions that a stack of the loop has in it: all of it, a cycle, and the target's pass.
const (
	loopFunc  = "draftlab/engine.(*Engine).step"
	cycleFunc = "draftlab/engine.(*Engine).cycle"
	passFunc  = "draftlab/engine/model.(*Model).Forward"
)

// count returns the samples of the loop that lie in the target's pass of a cycle, and all of the loop.
func count(p *profile.Profile) (in, all int64) {
	for _, s := range p.Sample {
		var loop, cycle, pass bool
		for _, at := range s.Location {
			for _, line := range at.Line {
				name := line.Function.Name
				loop = loop || strings.HasSuffix(name, loopFunc)
				cycle = cycle || strings.HasSuffix(name, cycleFunc)
				pass = pass || strings.HasSuffix(name, passFunc)
			}
		}
		if loop {
			all += s.Value[0]
			if cycle && pass {
				in += s.Value[0]
			}
		}
	}
	return in, all
}
