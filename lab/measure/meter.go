package measure

import (
	"sync"
	"time"

	"draftlab/lab/client"
	"draftlab/lab/load"
)

// Record is one request of a run: a line of the raw file.
type Record struct {
	N        int64  `json:"n"`              // number of the start, from 0
	PromptID string `json:"prompt_id"`      // with Round, what pairs requests across runs
	Round    int64  `json:"round"`          // how often the prompt was sent before
	Mark     int64  `json:"mark,omitempty"` // what stood before the prompts of this run alone; texts of other runs are no match
	Category string `json:"category,omitempty"`
	*client.Sample
}

// LagNS is how long after it was due the request was sent.
func (r *Record) LagNS() int64 { return r.StartUnixNS - r.DueUnixNS }

// SLO is what a good request keeps to, from the moment it was due; 0 is no limit.
type SLO struct{ TTFT, TPOT, E2E time.Duration }

// some reports whether there is a limit.
func (s SLO) some() bool { return s != SLO{} }

// Latency is what one request's times say, in nanoseconds from the moment it was due.
type Latency struct {
	TTFT int64 // to the first text that is not empty
	E2E  int64 // to the last text
	TPOT int64 // (E2E-TTFT)/(output tokens-1); 0 for less than two tokens
}

// LatencyOf returns the latencies of a complete request.
func LatencyOf(r *Record) Latency {
	l := Latency{TTFT: r.LagNS() + r.FirstNS, E2E: r.LagNS() + r.LastNS}
	if r.OutputTokens > 1 {
		l.TPOT = (r.LastNS - r.FirstNS) / int64(r.OutputTokens-1)
	}
	return l
}

// Meter takes in the records of a run. It is safe for use by several goroutines at once.
type Meter struct {
	slo   SLO
	begin int64 // Unix nanoseconds

	mu                             sync.Mutex
	ttft, tpot, itl, icl, e2e, lag Dist
	completed, good, late          int64
	input, output, cached          int64
	failures                       map[client.Failure]int64
	examples                       map[client.Failure]string // the first error of each kind
	empty, wordless                int64                     // complete requests that ended at once; whose text came in no known field
	long, whole                    int64                     // those of many tokens; of them, whose text came at once
	guessed                        bool                      // the server did not say how many tokens a chunk has
	timeline                       timeline
	acceptance                     acceptance
	prompts, hits                  extent // lengths of prompts, and of what was cached of them, where something was
}

// extent is the range of numbers.
type extent struct{ least, most int }

func (e *extent) add(n int) {
	if e.most == 0 || n < e.least {
		e.least = n
	}
	e.most = max(e.most, n)
}

// one reports whether all numbers were the same.
func (e *extent) one() bool { return e.least == e.most }

// NewMeter returns a Meter of a run that begins at a time.
func NewMeter(begin time.Time, slo SLO) *Meter {
	return &Meter{slo: slo, begin: begin.UnixNano(), failures: map[client.Failure]int64{}, examples: map[client.Failure]string{}}
}

// Add takes in a request that has ended.
func (m *Meter) Add(r *Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.StartUnixNS != 0 {
		m.lag.Add(r.LagNS(), 1)
		if r.LagNS() > load.LateAfter.Nanoseconds() {
			m.late++
		}
	}
	if r.Error != "" {
		if m.failures[r.Failure]++; m.failures[r.Failure] == 1 {
			m.examples[r.Failure] = r.Error
		}
		return
	}
	l := LatencyOf(r)
	m.completed++
	m.input, m.output, m.cached = m.input+int64(r.PromptTokens), m.output+int64(r.OutputTokens), m.cached+int64(r.CachedTokens)
	if m.prompts.add(r.PromptTokens); r.CachedTokens > 0 {
		m.hits.add(r.CachedTokens)
	}
	m.acceptance.add(r)
	if len(r.Chunks) == 0 {
		if r.OutputTokens > 1 {
			m.wordless++
		} else {
			m.empty++ // the one token is the end
		}
		return // an answer without text has no latencies
	}
	if r.OutputTokens > mostAtOnce {
		if m.long++; len(r.Chunks) == 1 {
			m.whole++
		}
	}
	m.ttft.Add(l.TTFT, 1)
	m.e2e.Add(l.E2E, 1)
	if r.OutputTokens > 1 {
		m.tpot.Add(l.TPOT, 1)
	}
	m.chunks(r)
	if m.slo.some() && within(l.TTFT, m.slo.TTFT) && within(l.TPOT, m.slo.TPOT) && within(l.E2E, m.slo.E2E) {
		m.good++
	}
}

// mostAtOnce is the number of tokens that one chunk may bring without a doubt: a cycle of speculation gives as many as that.
const mostAtOnce = 16

func within(ns int64, limit time.Duration) bool { return limit == 0 || ns <= limit.Nanoseconds() }

// Progress returns the requests that have ended, those of them that failed, and the output tokens of the others.
func (m *Meter) Progress() (ended, failed, output int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.failures {
		failed += n
	}
	return m.completed + failed, failed, m.output
}

// chunks takes in the gaps between chunks, and when their tokens came.
func (m *Meter) chunks(r *Record) {
	tokens, known := chunkTokens(r.Sample)
	m.guessed = m.guessed || !known
	for i, c := range r.Chunks {
		m.timeline.add(r.StartUnixNS+c.AtNS-m.begin, tokens[i])
		if i == 0 {
			continue
		}
		gap := c.AtNS - r.Chunks[i-1].AtNS
		m.icl.Add(gap, 1)
		if n := tokens[i]; n > 0 {
			m.itl.Add(gap/n, n)
		}
	}
}

// chunkTokens returns the tokens of each chunk: as the server says, else the output's spread evenly over the chunks, the first of
// which then has one.
func chunkTokens(s *client.Sample) (tokens []int64, known bool) {
	tokens = make([]int64, len(s.Chunks))
	sum := 0
	for i, c := range s.Chunks {
		tokens[i] = int64(c.Tokens)
		sum += c.Tokens
	}
	if sum > 0 || s.OutputTokens == 0 {
		return tokens, true
	}
	tokens[0] = 1
	rest, n := int64(s.OutputTokens-1), int64(len(tokens)-1)
	for i := int64(1); i <= n; i++ {
		tokens[i] = rest*i/n - rest*(i-1)/n
	}
	if n == 0 {
		tokens[0] += rest
	}
	return tokens, false
}

// slice is the resolution of a timeline.
const slice = 100 * time.Millisecond

// timeline counts the output tokens of a run by time: 36,000 numbers an hour.
type timeline []int64

func (t *timeline) add(ns, tokens int64) {
	i := max(0, ns) / slice.Nanoseconds()
	for int64(len(*t)) <= i {
		*t = append(*t, 0)
	}
	(*t)[i] += tokens
}

// until returns the tokens that came in the whole slices before a time, and the time that these are.
func (t timeline) until(end time.Duration) (tokens int64, span time.Duration) {
	n := min(int(end/slice), len(t))
	for _, x := range t[:n] {
		tokens += x
	}
	return tokens, time.Duration(n) * slice
}

// peak returns the most tokens of any second.
func (t timeline) peak() (most int64) {
	const second = int(time.Second / slice)
	var sum int64
	for i, x := range t {
		if sum += x; i >= second {
			sum -= t[i-second]
		}
		most = max(most, sum)
	}
	return most
}
