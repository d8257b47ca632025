package enginelog

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Summary adds up lines. Its zero value is ready for use. It keeps figures and first occurrences, not lines.
type Summary struct {
	lines       Lines
	sglang      int64
	vllm        int64
	llamacpp    int64
	draftlab    bool // the settings are those of draftlab's server, which writes SGLang's lines
	lookup      bool // they say that drafts are looked up in the text
	first, last time.Time
	groups      map[string]*group
	prompts     Prompts
	waited      int64 // prefill lines while requests ran
	promptRate  values
	queue       values
	usage       values
	pressure    Pressure
	boots       []boot
	faults      []Message
	notices     []Message
	requests    map[Requests]int64 // Count unset in the keys
}

// group is what a rank has shown.
type group struct {
	Group
	accept, rate, running, cycle, plain, iteration values
	allRate, allCycle, allPlain                    values // those after a rest included
	first                                          values // acceptance of first drafts, vLLM's and llama.cpp's
	taken                                          values // llama.cpp: share of an answer's drafts that were accepted
	judged, barren                                 int64  // vLLM: intervals of many drafts, and those of them that accepted none
	reach                                          reaches
	busy                                           bool  // no rest since the last line
	answered                                       *Line // llama.cpp: waits for the drafts of its answer
	drafted                                        int64 // llama.cpp: answers that had drafts
	stats                                          *Line // vLLM: waits for the Spec line of its interval
}

// boot is one start.
type boot struct {
	began time.Time
	steps []step
	ready bool // it has answered: the next early milestone begins another boot
}

type step struct {
	name  string
	count int64
	at    time.Time
	took  time.Duration
	line  int64
}

// maxNames bounds how many different requests, ranks and milestones are kept: paths are whatever clients ask for.
const maxNames = 64

// maxText is what is kept of a message, in bytes.
const maxText = 400

// Read adds all lines of r, until its end or until ctx ends.
func (s *Summary) Read(ctx context.Context, r io.Reader) error {
	lines := NewReader(r)
	for ctx.Err() == nil {
		raw, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.Add(raw)
	}
	return ctx.Err()
}

// Add adds one line.
func (s *Summary) Add(raw Raw) Line {
	l := Parse(raw.Text)
	if (raw.Cut || !raw.Whole) && l.Values != nil {
		l.Kind = Damaged // its last figure may lack digits
	}
	s.lines.Total++
	if raw.Cut {
		s.lines.Cut++
	}
	s.count(&l)
	s.note(&l)
	switch l.Kind {
	case Damaged:
		s.lines.Damaged++
	case Other:
		s.lines.Other++
	default:
		s.lines.Read++
	}
	return l
}

// lookups are how draftlab, SGLang and vLLM (twice) write among their settings that drafts are looked up in the text.
var lookups = []string{" drafter=ngram ", "speculative_algorithm='NGRAM'", "method='ngram", "'method': 'ngram"}

// note keeps engine and times.
func (s *Summary) note(l *Line) {
	if l.SGLang {
		s.sglang++
	}
	if l.VLLM {
		s.vllm++
	}
	if l.LlamaCPP {
		s.llamacpp++
	}
	if len(s.groups) == 0 {
		s.draftlab = s.draftlab || strings.HasPrefix(l.Text, "settings ") && strings.Contains(l.Text, " drafter_format=")
	}
	if len(s.groups) == 0 && !s.lookup { // settings come first, and what requests say later is nobody's setting
		s.lookup = slices.ContainsFunc(lookups, func(text string) bool { return strings.Contains(l.Text, text) })
	}
	if l.Time.IsZero() {
		return
	}
	if s.first.IsZero() {
		s.first = l.Time
	}
	s.last = l.Time
}

// count adds what the line says.
func (s *Summary) count(l *Line) {
	switch l.Kind {
	case Decode:
		s.decode(l)
	case Prefill:
		s.prefill(l)
	case Stats, Spec, Iteration:
		s.interval(l)
	case Answer, Drafts:
		s.answer(l)
	case Access:
		s.access(l)
	case Milestone:
		s.milestone(l, l.Name)
	case Other:
		if l.LlamaCPP { // it has done with an answer
			s.group("").settleAnswer()
		}
	case Fault:
		s.faults = remember(s.faults, l, s.lines.Total)
	case Notice:
		if l.Name == retracted {
			s.pressure.Retracted++
		}
		s.notices = remember(s.notices, l, s.lines.Total)
	}
}

// group finds the figures of a line's ranks.
func (s *Summary) group(ranks string) *group {
	if s.groups == nil {
		s.groups = map[string]*group{}
	}
	g := s.groups[ranks]
	if g == nil {
		if len(s.groups) >= maxNames {
			ranks = "others"
			if g = s.groups[ranks]; g != nil {
				return g
			}
		}
		g = &group{Group: Group{Ranks: ranks}}
		s.groups[ranks] = g
	}
	return g
}

// decode adds a "Decode batch" line. SGLang's throughput is tokens over wall time since the line before: where a server
// rested in between, which shows as a prefill with no request running, it says nothing about decoding.
func (s *Summary) decode(l *Line) {
	s.milestone(l, "first decode batch")
	g := s.group(l.Ranks)
	g.Lines++
	rate, _ := l.Values.Number(keyThroughput) // demand has looked
	running, _ := l.Values.Number(keyRunning)
	accept, speculates := l.Values.Number(keyAccept)
	if speculates {
		g.accept.add(accept)
		for _, key := range tokenKeys {
			if tokens, ok := l.Values.Number(key); ok {
				g.reach.add(accept, tokens, running)
				break
			}
		}
	}
	g.running.add(running)
	g.rates(rate, running, accept, speculates, g.busy)
	if !g.busy {
		g.AfterRest++
	}
	g.busy = true
	// draftlab computes on a processor, where no CUDA graph is missed.
	if text, ok := l.Values.Text(keyGraph); ok && !s.draftlab && (strings.EqualFold(text, "true") || strings.EqualFold(text, "false")) {
		g.GraphStated++
		if strings.EqualFold(text, "false") {
			g.WithoutGraph++
		}
	}
	s.press(l.Values, keyQueue, usageKeys, 1)
}

// rates adds a throughput and the cycle time that follows from it.
func (g *group) rates(rate, running, accept float64, speculates, steady bool) {
	if rate <= 0 || running <= 0 {
		return
	}
	own, all := &g.cycle, &g.allCycle
	if !speculates {
		own, all, accept = &g.plain, &g.allPlain, 1
	}
	g.allRate.add(rate)
	all.add(1e3 * accept * running / rate)
	if steady {
		g.rate.add(rate)
		own.add(1e3 * accept * running / rate)
	}
}

// prefill adds a "Prefill batch" line.
func (s *Summary) prefill(l *Line) {
	s.milestone(l, "first prefill batch")
	fresh, _ := l.Values.Number(keyNewTokens)
	cached, _ := l.Values.Number(keyCached)
	s.prompts.Lines++
	s.prompts.New += fresh
	s.prompts.Cached += cached
	if x, ok := l.Values.Number(keyInput); ok && x > 0 {
		s.promptRate.add(x)
	}
	switch running, ok := l.Values.Number(keyRunning); {
	case ok && running == 0:
		s.group(l.Ranks).busy = false
	case ok:
		s.waited++
	}
	s.press(l.Values, keyQueue, usageKeys, 1)
}

// interval adds vLLM's lines. A Spec line belongs to the Stats line before it.
func (s *Summary) interval(l *Line) {
	ranks := l.Ranks
	if l.Kind == Spec && ranks == "" {
		ranks = s.lastStats()
	}
	g := s.group(ranks)
	switch l.Kind {
	case Stats:
		g.settle(0, false)
		g.Lines++
		g.stats = l
		queue := keyVLLMWaiting
		if _, ok := l.Values.Number(queue); !ok {
			queue = keyVLLMPending
		}
		usage := keyVLLMUsage
		if _, ok := l.Values.Number(usage); !ok {
			usage = keyVLLMUsageCPU
		}
		s.press(l.Values, queue, []string{usage}, 100)
		if n, ok := l.Values.Number(keyVLLMPreempted); ok {
			s.pressure.Preempted += int64(min(n, 1e15))
		}
	case Spec:
		accept, _ := l.Values.Number(keyVLLMAccept)
		g.accept.add(accept)
		if x, ok := l.Values.Number(keyVLLMPosition); ok {
			g.first.add(x)
		}
		if n, ok := l.Values.Number(keyVLLMDrafted); ok && n >= manyDrafts {
			if g.judged++; accept <= noDraft {
				g.barren++
			}
		}
		g.settle(accept, true)
	case Iteration:
		ms, _ := l.Values.Number(keyIterationMS)
		if prompts, _ := l.Values.Number(keyIterationCtx); prompts == 0 && ms > 0 {
			g.iteration.add(ms)
		}
	}
}

// lastStats is the rank of the one Stats line that waits; "" if there is none.
func (s *Summary) lastStats() string {
	for _, ranks := range slices.Sorted(maps.Keys(s.groups)) {
		if s.groups[ranks].stats != nil {
			return ranks
		}
	}
	return ""
}

// settle adds the Stats line that waits. Its throughput is of the time since the line before, its running requests are those of
// its own moment: where none ran at the line before, that time has a rest in it, and the two do not belong together.
func (g *group) settle(accept float64, speculates bool) {
	if g.stats == nil {
		return
	}
	rate, _ := g.stats.Values.Number(keyVLLMThroughput)
	running, _ := g.stats.Values.Number(keyVLLMRunning)
	g.stats = nil
	g.running.add(running)
	g.rates(rate, running, accept, speculates, g.busy)
	if !g.busy && rate > 0 && running > 0 {
		g.AfterRest++
	}
	g.busy = running > 0
}

// press adds queue and memory use; unit is what a full memory reads.
func (s *Summary) press(v Values, queue string, usage []string, unit float64) {
	if n, ok := v.Number(queue); ok {
		s.queue.add(n)
		if n > 0 {
			s.pressure.WithQueue++
		}
	}
	most, found := 0.0, false
	for _, key := range usage {
		if x, ok := v.Number(key); ok {
			most, found = max(most, x/unit), true
		}
	}
	if found {
		s.usage.add(most)
	}
}

// access counts an answered request.
func (s *Summary) access(l *Line) {
	if l.Name == "GET /health" && l.Status == 200 {
		s.milestone(l, "first 200 on /health")
	}
	if s.requests == nil {
		s.requests = map[Requests]int64{}
	}
	key := Requests{Request: clip(l.Name), Status: l.Status}
	if _, ok := s.requests[key]; !ok && len(s.requests) >= maxNames {
		key = Requests{Request: "others"}
	}
	s.requests[key]++
}

// remember counts a message under its name.
func remember(list []Message, l *Line, line int64) []Message {
	for i := range list {
		if list[i].Name == l.Name {
			list[i].Count++
			return list
		}
	}
	return append(list, Message{Name: l.Name, Count: 1, Line: line, Text: clip(l.Text)})
}

// clip shortens a text to what is kept of it.
func clip(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return strings.ToValidUTF8(text, "")
}
