package measure

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"slices"

	"draftlab/lab/client"
	"draftlab/lab/stats"
)

// Run is what a comparison keeps of a raw file: logarithms by prompt, and no request.
type Run struct {
	Requests, Failed int64
	begin, end       int64 // Unix nanoseconds
	mark             int64 // before the prompts
	prompts          map[string]*arm
	order            []string // of the prompts, as the file has them
}

// arm is one prompt of a run.
type arm struct {
	text uint64 // of the first request; 0 if it failed
	sums [len(compared)]logs
}

// logs is a sum of logarithms.
type logs struct {
	sum float64
	n   int64
}

// compared are the metrics of a comparison.
var compared = [...]struct {
	name string
	of   func(*Record) float64 // 0 is none
}{
	{"tpot", func(r *Record) float64 { return float64(LatencyOf(r).TPOT) }},
	{"ttft", func(r *Record) float64 { return float64(LatencyOf(r).TTFT) }},
	{"e2el", func(r *Record) float64 { return float64(LatencyOf(r).E2E) }},
	{"output_tokens", func(r *Record) float64 { return float64(r.OutputTokens) }},
	{"accept_length", func(r *Record) float64 {
		if r.Spec == nil || r.Spec.Cycles == 0 {
			return 0
		}
		return 1 + float64(r.Spec.Accepted)/float64(r.Spec.Cycles)
	}},
}

// maxRecord bounds a line of a raw file.
const maxRecord = 64 << 20

// textSeed makes hashes of one process comparable.
var textSeed = maphash.MakeSeed()

// ReadRun reads a raw file. The error names the line.
func ReadRun(r io.Reader) (*Run, error) {
	run := &Run{prompts: map[string]*arm{}}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxRecord)
	for line := 1; sc.Scan(); line++ {
		if len(bytes.TrimSpace(sc.Bytes())) == 0 {
			continue
		}
		rec := Record{Sample: &client.Sample{}}
		if err := json.Unmarshal(sc.Bytes(), &rec); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if rec.PromptID == "" || rec.Sample == nil {
			return nil, fmt.Errorf("line %d: no prompt_id: is it a file that bench --out wrote?", line)
		}
		run.add(&rec)
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	if run.Requests == 0 {
		return nil, fmt.Errorf("no request in it")
	}
	return run, nil
}

func (run *Run) add(r *Record) {
	run.Requests++
	run.mark = r.Mark
	if r.StartUnixNS > 0 && (run.begin == 0 || r.StartUnixNS < run.begin) {
		run.begin = r.StartUnixNS
	}
	run.end = max(run.end, r.StartUnixNS+r.EndNS)
	if r.Error != "" || len(r.Chunks) == 0 {
		run.Failed++
		return
	}
	a := run.prompts[r.PromptID]
	if a == nil {
		a = &arm{text: maphash.String(textSeed, r.Text) | 1}
		run.prompts[r.PromptID] = a
		run.order = append(run.order, r.PromptID)
	}
	for i, c := range compared {
		if v := c.of(r); v > 0 {
			a.sums[i].sum += math.Log(v)
			a.sums[i].n++
		}
	}
}

// Change is how a metric of B stands to that of A: the ratio of a typical pair.
type Change struct {
	Metric string   `json:"metric"`
	Pairs  int      `json:"pairs"`
	Ratio  float64  `json:"ratio"`          // B/A: Hodges–Lehmann's centre of the pairs' log ratios
	Low    *float64 `json:"low,omitempty"`  // its 95 % interval, absent where there are too few pairs
	High   *float64 `json:"high,omitempty"` //
	P      float64  `json:"p"`              // of Wilcoxon's signed-rank test, corrected for the number of metrics (Holm)
	Least  float64  `json:"smallest_detectable"`
}

// Comparison is what two runs say about the prompts that both have.
type Comparison struct {
	Pairs     int      `json:"pairs"` // prompts in common
	OnlyA     int      `json:"only_a"`
	OnlyB     int      `json:"only_b"`
	SameText  int      `json:"same_text"` // pairs whose first outputs are equal
	Changes   []Change `json:"changes"`
	Warnings  []string `json:"warnings"`
	RequestsA int64    `json:"requests_a"`
	RequestsB int64    `json:"requests_b"`
}

// maxPairs bounds the work of the estimate, which is quadratic: further pairs are averaged with others, in turn.
const maxPairs = 2000

// Compare compares two runs prompt by prompt; several requests of a prompt are averaged first. Ratios are those of geometric means.
func Compare(a, b *Run) (*Comparison, error) {
	c := &Comparison{RequestsA: a.Requests, RequestsB: b.Requests, OnlyB: len(b.prompts), Warnings: []string{}}
	var logRatios [len(compared)][]float64
	for _, id := range a.order {
		x, y := a.prompts[id], b.prompts[id]
		if y == nil {
			c.OnlyA++
			continue
		}
		c.Pairs++
		c.OnlyB--
		if x.text == y.text {
			c.SameText++
		}
		for i := range compared {
			if x.sums[i].n > 0 && y.sums[i].n > 0 {
				logRatios[i] = append(logRatios[i], y.sums[i].sum/float64(y.sums[i].n)-x.sums[i].sum/float64(x.sums[i].n))
			}
		}
	}
	if c.Pairs == 0 {
		return nil, fmt.Errorf("the runs have no prompt in common: run both with the same prompts and the same --seed")
	}
	var ps []float64
	for i, d := range logRatios {
		if len(d) > 0 {
			c.Changes = append(c.Changes, change(compared[i].name, d))
			ps = append(ps, c.Changes[len(c.Changes)-1].P)
		}
	}
	for i, p := range stats.Holm(ps) {
		c.Changes[i].P = p
	}
	c.warn(a, b)
	return c, nil
}

// change estimates one metric's change from the pairs' log ratios.
func change(name string, d []float64) Change {
	out := Change{Metric: name, Pairs: len(d)}
	d = pooled(d, maxPairs)
	iv := stats.HodgesLehmann(d, .95)
	out.Ratio, out.P = math.Exp(iv.Estimate), stats.SignedRank(d)
	if !math.IsInf(iv.Low, 0) {
		low, high := math.Exp(iv.Low), math.Exp(iv.High)
		out.Low, out.High = &low, &high
	}
	if len(d) > 1 {
		out.Least = math.Expm1(2.8 * deviation(d) / math.Sqrt(float64(len(d))))
	}
	return out
}

// pooled averages values in turn into at most n.
func pooled(d []float64, n int) []float64 {
	if len(d) <= n {
		return d
	}
	sums, counts := make([]float64, n), make([]float64, n)
	for i, x := range d {
		sums[i%n] += x
		counts[i%n]++
	}
	for i := range sums {
		sums[i] /= counts[i]
	}
	return sums
}

// deviation is the standard deviation that a sample suggests.
func deviation(d []float64) float64 {
	mean, square := 0.0, 0.0
	for _, x := range d {
		mean += x / float64(len(d))
	}
	for _, x := range d {
		square += (x - mean) * (x - mean)
	}
	return math.Sqrt(square / float64(len(d)-1))
}

// warn says what the comparison cannot tell.
func (c *Comparison) warn(a, b *Run) {
	add := func(format string, v ...any) { c.Warnings = append(c.Warnings, fmt.Sprintf(format, v...)) }
	if a.end <= b.begin || b.end <= a.begin {
		add("one run followed the other: what changed on the machine in between counts as a difference too; alternate several runs, or use draftlab tune")
	}
	if c.OnlyA+c.OnlyB > 0 {
		add("%d prompts are in A alone and %d in B alone, and left out", c.OnlyA, c.OnlyB)
	}
	if a.Failed+b.Failed > 0 {
		add("%d requests of A and %d of B failed, and are left out", a.Failed, b.Failed)
	}
	switch {
	case a.mark != b.mark:
		add("a server that cannot empty its prefix cache got marks before its prompts: texts are no match, and their lengths may differ by chance")
	case c.SameText < c.Pairs:
		add("%d of %d outputs differ: a change of latency may be one of text", c.Pairs-c.SameText, c.Pairs)
	}
	if i := slices.IndexFunc(c.Changes, func(x Change) bool { return x.Low == nil }); i >= 0 {
		add("%d pairs are too few for a 95 %% interval: 6 are the least", c.Changes[i].Pairs)
	}
}
