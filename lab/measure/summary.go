package measure

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"draftlab/lab/client"
	"draftlab/lab/load"
)

// Distribution is a metric with its values, under the short name that files and tables have for it.
type Distribution struct {
	Name  string // ttft, tpot, itl, icl, e2el or lag
	Title string // as the table heads it
	*Dist
}

// percentiles are those that summaries list.
var percentiles = []float64{50, 90, 95, 99}

// Summary is what a run came to.
type Summary struct {
	// The setting.
	Backend, Model, Dataset, API string
	ServerVersion                string         // "" if it does not say
	ServerInfo                   map[string]any // its own account of its settings; nil likewise
	Plan                         load.Plan
	Date                         time.Time
	Warmup                       Warmup
	Environment                  Environment

	// The run.
	Tally                   load.Tally
	Completed, Failed, Good int64
	Failures                map[client.Failure]int64
	Input, Output, Cached   int64 // tokens of complete requests; cached ones are among the input
	Steady                  Steady
	PeakTokS                int64
	HasSLO                  bool
	GuessedChunks           bool // the server did not say how many tokens a chunk has: ITL spreads an output over its chunks
	Distributions           []Distribution
	Acceptance              *Acceptance // nil if nothing was drafted, or nobody says so
	Speculation             string      // "none seen" or "not told" where Acceptance is nil although tokens were decoded, "" elsewhere
	Warnings                []string
}

// Warmup is what was sent before the measurement.
type Warmup struct {
	Requests int64         `json:"requests"`
	Elapsed  time.Duration `json:"elapsed_ns"`
	Settled  bool          `json:"settled"`
}

// Steady is the part of a run before its last start, in whole tenths of a second: afterwards the load falls, and the mean over
// the whole run with it.
type Steady struct {
	Tokens int64
	Span   time.Duration
}

// TokS returns the output tokens per second while the load was whole, 0 for a run that is too short to tell.
func (s Steady) TokS() float64 { return rate(s.Tokens, s.Span) }

// rate returns n per second of d, 0 for no time.
func rate(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// alarmLength is the accept length up to which speculation does nothing, a sign of a drafter that is wired wrongly: a drafter at
// random stays below, one that works at all is above 1.2.
const alarmLength = 1.05

// Summary returns what the meter has taken in. counted is what the server's own counters say of the run's drafts, nil if it has
// none; records that say so themselves go before it, since they know prompts.
func (m *Meter) Summary(tally load.Tally, counted *Acceptance) *Summary {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &Summary{
		Tally: tally, Completed: m.completed, Good: m.good, HasSLO: m.slo.some(), Failures: maps.Clone(m.failures),
		Input: m.input, Output: m.output, Cached: m.cached, PeakTokS: m.timeline.peak(), GuessedChunks: m.guessed, Acceptance: counted,
	}
	for _, n := range m.failures {
		s.Failed += n
	}
	s.Tally.Late = m.late // as sent, which is after the start: a connection may have to be waited for
	s.Steady.Tokens, s.Steady.Span = m.timeline.until(tally.LastStart)
	s.Distributions = []Distribution{
		{"ttft", "Time to First Token", &m.ttft}, {"tpot", "Time per Output Token (excl. 1st token)", &m.tpot}, {"itl", "Inter-Token Latency", &m.itl},
		{"icl", "Inter-Chunk Latency", &m.icl}, {"e2el", "End-to-End Latency", &m.e2e}, {"lag", "Send Lag", &m.lag},
	}
	if own := m.acceptance.summary(); own != nil {
		if counted != nil && own.Survival == nil && counted.sameRun(own) {
			own.positions(counted) // llama.cpp's answers do not tell them, its counters do
		}
		s.Acceptance = own
	}
	s.warn(m.examples, m.hits.one() && !m.prompts.one())
	s.warnText(m.empty, m.wordless, m.long, m.whole)
	return s
}

// warn says what a reader of the figures must know. common is that as much was cached of each prompt, whatever its length: a chat template's
// beginning, which every user's request finds in a cache.
func (s *Summary) warn(examples map[client.Failure]string, common bool) {
	add := func(format string, a ...any) { s.Warnings = append(s.Warnings, fmt.Sprintf(format, a...)) }
	for _, f := range slices.Sorted(maps.Keys(s.Failures)) {
		add("%d requests failed: %s; the first: %s", s.Failures[f], f, examples[f])
	}
	if a := s.Acceptance; a != nil && a.Cycles > 0 && a.Length.Value <= alarmLength && a.Drafted > 0 && a.Accepted*5 > a.Drafted {
		add("accept length %.3f: most cycles have no draft; %.0f %% of those there were are accepted", a.Length.Value, 100*a.Rate.Value)
	} else if a != nil && a.Cycles > 0 && a.Length.Value <= alarmLength {
		add("accept length %.3f: drafts are hardly ever accepted. Is the drafter made for this target, and are its hidden layers the right ones?", a.Length.Value)
	}
	if a := s.Acceptance; a != nil {
		if text := a.fall(); text != "" {
			add("%s", text)
		}
	}
	if s.Cached > 0 && s.Cached*20 > s.Input && !common {
		add("the prefix cache gave %d of %d prompt tokens: the time to first token is that of a warm cache", s.Cached, s.Input)
	}
	if s.Tally.Dropped > 0 {
		add("%d starts were due and never found a place: the latencies are those of the others", s.Tally.Dropped)
	}
	if s.Tally.Late*100 > s.Tally.Started {
		add("%d of %d starts were more than %v late; latencies count from the moment a request was due", s.Tally.Late, s.Tally.Started, load.LateAfter)
	}
}

// warnText says what of the answers had no times, or times that are not the server's.
func (s *Summary) warnText(empty, wordless, long, whole int64) {
	if empty > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%d of %d complete answers ended at once, without text: they are in no latency", empty, s.Completed))
	}
	if wordless > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%d of %d complete answers brought no text, although the server counts their tokens: they are in no latency (text in a field that this program does not know)", wordless, s.Completed))
	}
	if whole*2 > long {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%d of %d answers of more than %d tokens came in one piece: something in between holds the stream back (a proxy's buffer, compression), "+
			"so that the time to first token is that of the whole answer and TPOT and ITL mean nothing", whole, long, mostAtOnce))
	}
}

// CountCached takes a server's own count of the run's cached prompt tokens, which stands where no answer tells any. What of it is the
// beginning of a chat template, common to all prompts, a sum does not show: it warns where most of the input was cached.
func (s *Summary) CountCached(tokens int64) {
	if s.Cached > 0 || tokens <= 0 {
		return
	}
	s.Cached = tokens
	if s.Cached*2 > s.Input {
		s.Warnings = append(s.Warnings, fmt.Sprintf("by the server's counters the prefix cache gave %d of %d prompt tokens: the time to first token is that of a warm cache", s.Cached, s.Input))
	}
}

// PerUser returns the speed that one user sees, in tokens per second: the inverse of the mean TPOT; 0 without values.
func (s *Summary) PerUser() float64 {
	if tpot := s.dist("tpot").Mean(); tpot > 0 {
		return 1000 / tpot
	}
	return 0
}

// dist returns a distribution by its name.
func (s *Summary) dist(name string) Distribution {
	i := slices.IndexFunc(s.Distributions, func(d Distribution) bool { return d.Name == name })
	return s.Distributions[i]
}

// MarshalJSON writes the keys that the scripts around vLLM's and SGLang's benchmarks parse, and our own beside them.
func (s *Summary) MarshalJSON() ([]byte, error) {
	t, elapsed := s.Tally, s.Tally.Elapsed
	doc := map[string]any{
		"date": s.Date.UTC().Format("20060102-150405"), "backend": s.Backend, "model_id": s.Model, "server_version": s.ServerVersion, "server_info": s.ServerInfo, "dataset_name": s.Dataset, "endpoint": s.API,
		"seed": s.Plan.Seed, "num_prompts": t.Started, "max_concurrency": s.Plan.Concurrency, "request_rate": rateName(s.Plan.Rate), "even_arrivals": s.Plan.Even,
		"duration": elapsed.Seconds(), "completed": s.Completed, "failed": s.Failed, "failures": s.Failures,
		"late_starts": t.Late, "dropped_starts": t.Dropped, "max_concurrent_requests": t.Peak,
		"total_input_tokens": s.Input, "total_output_tokens": s.Output, "cached_input_tokens": s.Cached,
		"request_throughput": rate(s.Completed, elapsed), "input_throughput": rate(s.Input, elapsed), "output_throughput": rate(s.Output, elapsed),
		"total_token_throughput": rate(s.Input+s.Output, elapsed), "total_throughput": rate(s.Input+s.Output, elapsed),
		"steady_output_throughput": s.Steady.TokS(), "steady_seconds": s.Steady.Span.Seconds(), "max_output_tokens_per_s": s.PeakTokS,
		"output_tok_s_per_user": s.PerUser(), "concurrency": s.meanConcurrency(), "itl_tokens_guessed": s.GuessedChunks,
		"warmup": s.Warmup, "environment": s.Environment, "warnings": slices.Concat([]string{}, s.Warnings),
	}
	if s.HasSLO {
		doc["request_goodput"] = rate(s.Good, elapsed)
	}
	for _, d := range s.Distributions {
		flat(doc, d.Name, d.Dist)
		if d.Name == "e2el" {
			flat(doc, "e2e_latency", d.Dist) // SGLang's name
		}
	}
	if a := s.Acceptance; a != nil {
		doc["acceptance"], doc["accept_length"], doc["spec_decode_acceptance_length"] = a, a.Length.Value, a.Length.Value
		doc["spec_decode_num_drafts"], doc["spec_decode_draft_tokens"], doc["spec_decode_accepted_tokens"] = a.Cycles, a.Drafted, a.Accepted
		if a.Rate != nil {
			doc["spec_decode_acceptance_rate"] = 100 * a.Rate.Value
		}
		per := []float64{}
		for _, e := range a.Survival {
			per = append(per, e.Value)
		}
		doc["spec_decode_per_position_acceptance_rates"] = per
	}
	if s.Speculation != "" {
		doc["speculation"] = s.Speculation
	}
	return json.Marshal(doc)
}

// rateName is the request rate as the familiar files have it: "inf" where nothing paces the starts.
func rateName(r float64) any {
	if r == 0 {
		return "inf"
	}
	return r
}

// meanConcurrency returns the mean number of requests at a time, by Little's law.
func (s *Summary) meanConcurrency() float64 {
	d := s.dist("e2el")
	return rate(int64(d.mean*float64(d.n)), s.Tally.Elapsed) / 1e9
}

// flat puts a distribution into a document as mean_x_ms and so on.
func flat(doc map[string]any, name string, d *Dist) {
	put := func(what string, v float64) { doc[what+"_"+name+"_ms"] = v }
	put("mean", d.Mean())
	put("std", d.Std())
	put("min", d.Min())
	put("max", d.Max())
	qs := make([]float64, len(percentiles))
	for i, p := range percentiles {
		qs[i] = p / 100
	}
	for i, v := range d.Quantiles(qs...) {
		put("p"+strconv.FormatFloat(percentiles[i], 'f', -1, 64), v)
		if percentiles[i] == 50 {
			put("median", v)
		}
	}
}

// Benchstat returns the run in the Go benchmark format, one line, for benchstat to compare files of repeated runs.
func (s *Summary) Benchstat() string {
	ttft, tpot, e2e := s.dist("ttft"), s.dist("tpot"), s.dist("e2el")
	var b strings.Builder
	fmt.Fprintf(&b, "Unit tok/s better=higher\nUnit req/s better=higher\nUnit accept-length better=higher\n")
	fmt.Fprintf(&b, "BenchmarkServing/dataset=%s/rate=%v/concurrency=%d %d", word(s.Dataset), rateName(s.Plan.Rate), s.Plan.Concurrency, max(1, s.Completed))
	fmt.Fprintf(&b, " %.6g ttft-sec %.6g tpot-sec %.6g e2e-sec", ttft.Quantiles(.5)[0]/1e3, tpot.Quantiles(.5)[0]/1e3, e2e.Quantiles(.5)[0]/1e3)
	fmt.Fprintf(&b, " %.6g tok/s %.6g req/s", rate(s.Output, s.Tally.Elapsed), rate(s.Completed, s.Tally.Elapsed))
	if s.Acceptance != nil {
		fmt.Fprintf(&b, " %.6g accept-length", s.Acceptance.Length.Value)
	}
	return b.String() + "\n"
}

// word makes a name that the benchmark format can hold.
func word(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == '/' || r > '~' {
			return '_'
		}
		return r
	}, s)
}
