package microbench

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"testing"

	"draftlab/engine/compute/cpu"
	"draftlab/engine/compute/cpu/kernel"
	"draftlab/engine/model"
)

// load makes a tiny model that is large enough for a measurement.
func load(t *testing.T) (*cpu.Device, *model.Model) {
	t.Helper()
	if testing.Short() && !kernel.Best().Amortises {
		t.Skip("nothing here depends on the kernels, and the generic ones are slow")
	}
	dev, err := cpu.New(min(2, runtime.NumCPU()), kernel.Best())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	m, err := model.LoadRandom(dev, "tiny-q4_0", 1, model.Options{Context: Blocks * 16, Blocks: Blocks, MaxRows: 256, MaxSeqs: 1, MaxOut: MaxRows})
	if err != nil {
		t.Fatal(err)
	}
	return dev, m
}

// TestRunFillsEveryFigure checks that each figure is there and that the derived ones follow from the others.
func TestRunFillsEveryFigure(t *testing.T) {
	dev, m := load(t)
	calls := 0
	r, err := Run(context.Background(), dev, m, 3, func(done, total int) { calls++ })
	if err != nil {
		t.Fatal(err)
	}
	if calls != 3 || r.Rounds != 3 {
		t.Errorf("%d progress calls for %d rounds, want 3", calls, r.Rounds)
	}
	for _, rows := range Rows {
		k := strconv.Itoa(rows)
		if r.PassMS[k] <= 0 || r.FloorRatio[k] <= 0 {
			t.Errorf("%s rows: pass %g ms, floor ratio %g", k, r.PassMS[k], r.FloorRatio[k])
		}
		if _, ok := r.VerifyCost[k]; ok != (rows > 1) {
			t.Errorf("%s rows: verify cost present: %v", k, ok)
		}
	}
	if want := r.ReadBandwidth * 1e9 / float64(r.WeightBytes); r.DecodeCeilingTokS != want {
		t.Errorf("decode ceiling %g, want %g", r.DecodeCeilingTokS, want)
	}
	for _, k := range []string{"1", "4", "8"} {
		sum := 0.0
		for _, ms := range r.OperationMS[k] {
			sum += ms
		}
		if len(r.OperationMS[k]) == 0 || sum <= 0 {
			t.Errorf("no time by operation for %s rows", k)
		}
	}
	if r.DecodeTokS <= 0 || r.PrefillTokS <= 0 || r.BandwidthFraction <= 0 || r.ReadBandwidthOne <= 0 {
		t.Errorf("missing figures: %+v", r)
	}
}

func TestRunStopsWhenCancelled(t *testing.T) {
	dev, m := load(t)
	ctx, cancel := context.WithCancel(context.Background())
	_, err := Run(ctx, dev, m, 1000, func(done, _ int) {
		if done == 2 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want cancelled", err)
	}
}
