// Package microbench measures what the passes of a loaded model cost on its device: [Run] returns
// decode and prefill speed, the price of each further verified row, the share of the memory's own
// speed that they reach, and where the time goes. The ceiling (all weights read once, nothing else)
// is probed between the passes, since bandwidth swings on a shared machine.
//
// It knows nothing of text, requests or speculation.
package microbench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"draftlab/engine/compute"
	"draftlab/engine/model"
)

// Context is the number of positions before the measured rows.
const Context = 512

// MaxRows is the most rows of a measured pass; a model to be measured needs that many output rows.
const MaxRows = 16

// Rows are the widths whose passes are timed.
var Rows = []int{1, 2, 3, 4, 6, 8, 16}

// Positions is the context that a model to be measured must have, in whole blocks.
const Positions = Blocks * compute.BlockSlots

// Blocks is the number of key/value blocks that a measurement needs.
const Blocks = (Context + decodeTokens + MaxRows + compute.BlockSlots - 1) / compute.BlockSlots

// decodeTokens is the length of one timed run of decode steps: some 40 ms on the default target.
const decodeTokens = 16

// Result is one measurement. Times are medians over Rounds, ratios medians of the ratios within a round.
type Result struct {
	Rounds            int                           `json:"rounds"`
	Context           int                           `json:"context"`
	Threads           int                           `json:"threads"`
	ISA               string                        `json:"isa"`
	WeightBytes       int64                         `json:"weight_bytes"`        // read by one pass
	ReadBandwidth     float64                       `json:"read_bandwidth_gb_s"` // all threads
	ReadBandwidthOne  float64                       `json:"read_bandwidth_1_thread_gb_s"`
	BandwidthSpread   [2]float64                    `json:"read_bandwidth_p10_p90_gb_s"`
	DecodeTokS        float64                       `json:"decode_tok_s"`
	DecodeSpread      [2]float64                    `json:"decode_p10_p90_tok_s"`
	DecodeCeilingTokS float64                       `json:"decode_ceiling_tok_s"` // bandwidth / weight bytes
	BandwidthFraction float64                       `json:"bandwidth_fraction"`
	PrefillTokS       float64                       `json:"prefill_tok_s"`
	PrefillSpread     [2]float64                    `json:"prefill_p10_p90_tok_s"`
	PrefillGMACs      float64                       `json:"prefill_gmac_s"`
	PassMS            map[string]float64            `json:"pass_ms"`
	VerifyCost        map[string]float64            `json:"verify_cost"`
	FloorRatio        map[string]float64            `json:"floor_ratio"`
	OperationMS       map[string]map[string]float64 `json:"operation_ms"` // rows → kind → time
}

// bench is a measurement in progress.
type bench struct {
	ctx context.Context
	dev compute.Device
	m   *model.Model
	rng *rand.Rand // order of the widths
	// samples by name, one a round
	samples map[string][]float64
}

// Run measures a model loaded with at least [Blocks] blocks, [MaxRows] rows and outputs. It calls
// progress, if not nil, after each round. A cancelled context ends it with the context's error.
func Run(ctx context.Context, dev compute.Device, m *model.Model, rounds int, progress func(done, total int)) (*Result, error) {
	b := &bench{ctx: ctx, dev: dev, m: m, rng: rand.New(rand.NewPCG(1, 1)), samples: map[string][]float64{}}
	for i := range rounds + 1 { // the first round only warms up
		if err := b.round(); err != nil {
			return nil, err
		}
		if i == 0 {
			clear(b.samples)
		} else if progress != nil {
			progress(i, rounds)
		}
	}
	r := b.result(rounds)
	if err := b.operations(r); err != nil {
		return nil, err
	}
	return r, nil
}

// round takes one sample of everything.
func (b *bench) round() error {
	d, err := b.prefill()
	if err != nil {
		return err
	}
	b.add("prefill", Context/d.Seconds())
	b.probe("bandwidth1", 1)
	for _, i := range b.rng.Perm(len(Rows)) { // a drift within a round must not favour a width
		rows := Rows[i]
		floor := b.probe("bandwidth", b.dev.Info().Threads)
		// A pass of the same width comes first, as in a running engine: the caches then hold what such
		// a pass leaves behind, not what the probe or a wider pass does.
		if _, err := b.verify(rows); err != nil {
			return err
		}
		d, err := b.verify(rows)
		if err != nil {
			return err
		}
		b.add(key("pass", rows), 1e3*d.Seconds())
		b.add(key("floor", rows), d.Seconds()/floor)
	}
	if d, err = b.decode(); err != nil {
		return err
	}
	bw := b.last("bandwidth")
	b.add("decode", decodeTokens/d.Seconds())
	b.add("fraction", float64(b.m.WeightBytesPerToken())*decodeTokens/d.Seconds()/(bw*1e9))
	return nil
}

// probe reads all weights and returns the seconds that the bytes of one pass take at that speed.
func (b *bench) probe(name string, threads int) float64 {
	n, d := b.dev.ReadWeights(threads)
	rate := float64(n) / d.Seconds()
	b.add(name, rate/1e9)
	return float64(b.m.WeightBytesPerToken()) / rate
}

// prefill fills the context with a prompt of arbitrary tokens, in chunks, with logits of the last row.
func (b *bench) prefill() (time.Duration, error) {
	start := time.Now()
	for at := 0; at < Context; {
		n := min(b.m.Options().MaxRows, Context-at)
		if err := b.pass(at, n, at+n == Context, 0); err != nil {
			return 0, err
		}
		at += n
	}
	return time.Since(start), nil
}

// verify times one pass of rows rows behind the context, with logits of all.
func (b *bench) verify(rows int) (time.Duration, error) {
	start := time.Now()
	err := b.pass(Context, rows, true, rows)
	return time.Since(start), err
}

// decode times decodeTokens steps behind the context.
func (b *bench) decode() (time.Duration, error) {
	start := time.Now()
	for i := range decodeTokens {
		if err := b.pass(Context+i, 1, true, 1); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// pass runs n rows from slot at, unless the context has ended: a round takes seconds on a slow machine. If logits, the last row's logits are computed, or all rows' if outs is n.
func (b *bench) pass(at, n int, logits bool, outs int) error {
	if err := b.ctx.Err(); err != nil {
		return err
	}
	batch := b.m.Batch()
	batch.Reset()
	vocab := b.m.Config().Vocab
	if batch.Blocks[0] == nil {
		table := make([]int32, Blocks)
		for i := range table {
			table[i] = int32(i)
		}
		batch.Blocks[0] = table
	}
	for i := range n {
		r := batch.Append(0, int32((at+i)*7919%vocab), int32(at+i))
		if logits && (outs == n || i == n-1) {
			batch.WantLogits(r)
		}
	}
	return b.m.Forward()
}

// operations times the kinds of operation at a few widths, in passes of their own since the clock is
// read between operations there.
func (b *bench) operations(r *Result) error {
	const passes = 10
	for _, rows := range []int{1, 4, 8} {
		b.dev.Profile(true)
		for range passes {
			if _, err := b.verify(rows); err != nil {
				b.dev.Profile(false)
				return err
			}
		}
		byKind := map[string]float64{}
		for k, d := range b.dev.Profile(false) {
			byKind[compute.Kind(k).String()] = 1e3 * d.Seconds() / passes
		}
		r.OperationMS[strconv.Itoa(rows)] = byKind
	}
	return nil
}

// result condenses the samples.
func (b *bench) result(rounds int) *Result {
	info := b.dev.Info()
	r := &Result{
		Rounds: rounds, Context: Context, Threads: info.Threads, ISA: info.ISA, WeightBytes: b.m.WeightBytesPerToken(),
		ReadBandwidth: b.quantile("bandwidth", 0.5), ReadBandwidthOne: b.quantile("bandwidth1", 0.5),
		DecodeTokS: b.quantile("decode", 0.5), BandwidthFraction: b.quantile("fraction", 0.5),
		PrefillTokS:     b.quantile("prefill", 0.5),
		BandwidthSpread: b.spread("bandwidth"), DecodeSpread: b.spread("decode"), PrefillSpread: b.spread("prefill"),
		PassMS: map[string]float64{}, VerifyCost: map[string]float64{}, FloorRatio: map[string]float64{}, OperationMS: map[string]map[string]float64{},
	}
	r.DecodeCeilingTokS = r.ReadBandwidth * 1e9 / float64(r.WeightBytes)
	cfg := b.m.Config()
	r.PrefillGMACs = r.PrefillTokS * float64(cfg.FLOPsPerRow(Context/2)) / 2e9
	one := b.samples[key("pass", 1)]
	for _, rows := range Rows {
		k := strconv.Itoa(rows)
		r.PassMS[k] = b.quantile(key("pass", rows), 0.5)
		r.FloorRatio[k] = b.quantile(key("floor", rows), 0.5)
		if rows == 1 {
			continue
		}
		for i, d := range b.samples[key("pass", rows)] {
			b.add(key("cost", rows), d/one[i])
		}
		r.VerifyCost[k] = b.quantile(key("cost", rows), 0.5)
	}
	return r
}

func key(name string, rows int) string { return fmt.Sprintf("%s/%d", name, rows) }

func (b *bench) add(name string, v float64) { b.samples[name] = append(b.samples[name], v) }

func (b *bench) last(name string) float64 {
	s := b.samples[name]
	return s[len(s)-1]
}

// quantile returns the q-quantile of a series by linear interpolation.
func (b *bench) quantile(name string, q float64) float64 {
	s := slices.Sorted(slices.Values(b.samples[name]))
	at := q * float64(len(s)-1)
	lo := int(at)
	hi := min(lo+1, len(s)-1)
	return s[lo] + (at-math.Floor(at))*(s[hi]-s[lo])
}

func (b *bench) spread(name string) [2]float64 {
	return [2]float64{b.quantile(name, 0.1), b.quantile(name, 0.9)}
}
