package measure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"draftlab/lab/client"
	"draftlab/lab/load"
	"draftlab/lab/stats"
)

const ms = int64(time.Millisecond)

func near(got, want, tol float64) bool { return math.Abs(got-want) <= tol*max(1e-12, math.Abs(want)) }

func TestDistIsExactAndThenClose(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var d Dist
	var xs []float64
	check := func(tol float64) {
		t.Helper()
		var sum, square float64
		for _, x := range xs {
			sum += x
		}
		mean := sum / float64(len(xs))
		for _, x := range xs {
			square += (x - mean) * (x - mean)
		}
		if !near(d.Mean(), mean, 1e-9) || !near(d.Std(), math.Sqrt(square/float64(len(xs))), 1e-6) || d.N() != int64(len(xs)) {
			t.Errorf("mean %v, std %v of %d; want %v, %v", d.Mean(), d.Std(), d.N(), mean, math.Sqrt(square/float64(len(xs))))
		}
		qs := []float64{.01, .5, .9, .99}
		for i, got := range d.Quantiles(qs...) {
			if want := stats.Quantile(xs, qs[i]); !near(got, want, tol) {
				t.Errorf("n %d: quantile %v is %v, want %v", len(xs), qs[i], got, want)
			}
		}
		if d.Min() != stats.Quantile(xs, 0) || d.Max() != stats.Quantile(xs, 1) {
			t.Error("extremes")
		}
	}
	for range ExactValues {
		ns := int64(1e6 * math.Exp(rng.NormFloat64()))
		d.Add(ns, 1)
		xs = append(xs, float64(ns)/1e6)
	}
	check(0)
	for range 50_000 {
		ns := int64(1e6 * math.Exp(rng.NormFloat64()))
		d.Add(ns, 2)
		xs = append(xs, float64(ns)/1e6, float64(ns)/1e6)
	}
	check(2e-3)
	if d.exact != nil {
		t.Error("values are kept beyond the bound")
	}
	if empty := (&Dist{}); empty.Mean() != 0 || empty.Std() != 0 || empty.Quantiles(.5)[0] != 0 {
		t.Error("an empty distribution has values")
	}
}

// sample is an answer of 7 tokens in three chunks, sent 2 ms after it was due.
func sample(begin time.Time) *client.Sample {
	due := begin.UnixNano()
	return &client.Sample{
		DueUnixNS: due, StartUnixNS: due + 2*ms, FirstNS: 10 * ms, LastNS: 40 * ms, EndNS: 41 * ms,
		Chunks:       []client.Chunk{{AtNS: 10 * ms, Tokens: 1}, {AtNS: 22 * ms, Tokens: 4}, {AtNS: 40 * ms, Tokens: 2}},
		PromptTokens: 5, OutputTokens: 7, Status: 200,
	}
}

func TestEachMetricHasItsOwnDefinition(t *testing.T) {
	begin := time.Now()
	m := NewMeter(begin, SLO{TTFT: 12 * time.Millisecond, TPOT: 5 * time.Millisecond})
	m.Add(&Record{PromptID: "a", Sample: sample(begin)})
	slow := sample(begin)
	slow.StartUnixNS += ms
	m.Add(&Record{PromptID: "b", Sample: slow})
	m.Add(&Record{PromptID: "c", Sample: &client.Sample{DueUnixNS: 1, StartUnixNS: 1, Error: "x", Failure: client.Stalled}})
	s := m.Summary(load.Tally{Started: 3, Elapsed: 2 * time.Second, LastStart: 100 * time.Millisecond}, nil)
	for name, want := range map[string]float64{
		"ttft": 12.5, "e2el": 42.5, "tpot": 5, "icl": 15, "lag": 5.0 / 3,
		"itl": (4*3 + 2*9) / 6.0, // 12 ms for four tokens, 18 ms for two
	} {
		if got := s.dist(name).Mean(); !near(got, want, 1e-6) {
			t.Errorf("mean %s is %v, want %v", name, got, want)
		}
	}
	if got := s.dist("itl").Quantiles(.5)[0]; got != 3 {
		t.Errorf("median itl %v: most tokens came 3 ms after the last", got)
	}
	if s.Completed != 2 || s.Failed != 1 || s.Failures[client.Stalled] != 1 || s.Good != 1 || s.Output != 14 || s.Input != 10 {
		t.Errorf("counts: %+v", s)
	}
	if s.Steady.Tokens != 14 || s.Steady.TokS() != 140 || s.PeakTokS != 14 || s.PerUser() != 200 {
		t.Errorf("steady %+v, peak %d, per user %v", s.Steady, s.PeakTokS, s.PerUser())
	}
	if len(s.Warnings) != 2 || s.Warnings[0] != "1 requests failed: stalled; the first: x" || !strings.HasPrefix(s.Warnings[1], "2 of 3 starts were more than 1ms late") {
		t.Errorf("warnings %q", s.Warnings)
	}
}

func TestChunksOfUnknownSizeShareTheTokens(t *testing.T) {
	s := sample(time.Now())
	for i := range s.Chunks {
		s.Chunks[i].Tokens = 0
	}
	if got, known := chunkTokens(s); known || fmt.Sprint(got) != "[1 3 3]" {
		t.Errorf("%v, %v", got, known)
	}
	s.Chunks = s.Chunks[:1]
	if got, known := chunkTokens(s); known || fmt.Sprint(got) != "[7]" {
		t.Errorf("%v, %v", got, known)
	}
}

func TestPeakIsOfAnySecond(t *testing.T) {
	var l timeline
	for i, n := range []int64{5, 0, 1} { // 5 at 0.95 s, 1 at 1.95 s
		l.add((int64(i)*500+950)*ms, n)
	}
	l.add(1050*ms, 7)
	if got := l.peak(); got != 12 {
		t.Errorf("peak %d", got)
	}
	if n, span := l.until(1090 * time.Millisecond); n != 5 || span != time.Second {
		t.Errorf("%d tokens in %v", n, span)
	}
}

// drafted is a sample whose cycles accepted as a histogram says.
func drafted(hist ...int64) *client.Sample {
	s := &client.Sample{OutputTokens: 1, Spec: &client.Speculation{Histogram: hist}}
	for k, n := range hist {
		s.Spec.Cycles += n
		s.Spec.Accepted += int64(k) * n
	}
	s.Spec.Drafted = 2 * s.Spec.Cycles
	return s
}

func TestAcceptance(t *testing.T) {
	m := NewMeter(time.Now(), SLO{})
	m.Add(&Record{PromptID: "a", Sample: drafted(4, 4, 2)})
	s := m.Summary(load.Tally{}, &Acceptance{Source: "counters"})
	a := s.Acceptance
	if a.Source != "requests" || a.Length.Value != 1.8 || a.Rate.Value != .4 || a.Length.Low != nil {
		t.Fatalf("%+v", a)
	}
	if a.Survival[0].Value != .6 || a.Survival[1].Value != .2 || !near(a.Conditional[1].Value, 1.0/3, 1e-12) || len(a.Survival) != 2 {
		t.Errorf("survival %+v, conditional %+v", a.Survival, a.Conditional)
	}
	// A hundred requests of the same prompt are no more evidence than one; other prompts are.
	for range 100 {
		m.Add(&Record{PromptID: "a", Sample: drafted(4, 4, 2)})
	}
	if m.Summary(load.Tally{}, nil).Acceptance.Length.Low != nil {
		t.Error("an interval from one prompt")
	}
	if s := NewMeter(time.Now(), SLO{}).Summary(load.Tally{}, nil); s.Acceptance != nil {
		t.Error("acceptance without drafts")
	}
}

// TestCountersTellWhatAnswersDoNot: positions, if they count the same drafts.
func TestCountersTellWhatAnswersDoNot(t *testing.T) {
	add := func(m *Meter) {
		for _, id := range []string{"a", "b"} {
			m.Add(&Record{PromptID: id, Sample: &client.Sample{OutputTokens: 24, Spec: &client.Speculation{Cycles: 11, Drafted: 32, Accepted: 12}}})
		}
	}
	for drafted, want := range map[int64]int{64: 2, 70: 0} {
		m := NewMeter(time.Now(), SLO{})
		add(m)
		a := m.Summary(load.Tally{}, &Acceptance{Source: "counters", Cycles: 22, Drafted: drafted, Accepted: 24, Survival: make([]Estimate, 2), Conditional: make([]Estimate, 2)}).Acceptance
		if a.Source != "requests" || a.Length.Low == nil || len(a.Survival) != want || len(a.Conditional) != want {
			t.Errorf("counters of %d drafts: %+v", drafted, a)
		}
	}
}

// TestIntervalsCover: of 95 % intervals over prompts that differ, 95 % hold the true mean.
func TestIntervalsCover(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const rounds = 2000
	hit := 0
	for range rounds {
		var a acceptance
		for p := range 12 {
			level := rng.Float64() // of the prompt; the mean accept length is 1.5
			var yes, no int64
			for range 40 {
				if rng.Float64() < level {
					yes++
				} else {
					no++
				}
			}
			a.add(&Record{PromptID: fmt.Sprint(p), Sample: drafted(no, yes)})
		}
		l := a.summary().Length
		if *l.Low <= 1.5 && 1.5 <= *l.High {
			hit++
		}
	}
	if share := float64(hit) / rounds; share < .93 || share > .97 {
		t.Errorf("%v of the intervals hold the mean", share)
	}
	for df, want := range map[float64]float64{1: 12.706, 2: 4.303, 3: 3.182, 5: 2.571, 11: 2.201, 100: 1.984} {
		if got := student95(df); !near(got, want, 8e-3) {
			t.Errorf("t of %v degrees: %v, want %v", df, got, want)
		}
	}
}

func TestAClusterlessRunKeepsItsMemory(t *testing.T) {
	var a acceptance
	for n := range int64(3 * maxClusters) {
		a.add(&Record{N: n, PromptID: fmt.Sprint(n), Sample: drafted(1, 1)})
	}
	if len(a.clusters) > maxClusters+1000 || a.total.cycles != 6*maxClusters {
		t.Errorf("%d clusters, %d cycles", len(a.clusters), a.total.cycles)
	}
}

// TestMemoryDoesNotGrowWithTheRun: a run of 300,000 requests and a million chunks leaves less than a few of its distributions' bounds.
func TestMemoryDoesNotGrowWithTheRun(t *testing.T) {
	begin := time.Now()
	m := NewMeter(begin, SLO{})
	s := sample(begin)
	s.Spec = &client.Speculation{Cycles: 3, Accepted: 2, Histogram: []int64{1, 2}}
	heap := func() uint64 {
		var st runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&st)
		return st.HeapAlloc
	}
	before := heap()
	for i := range int64(300_000) {
		m.Add(&Record{N: i, PromptID: fmt.Sprint(i % 100), Sample: s})
	}
	if grown := int64(heap()) - int64(before); grown > 8<<20 {
		t.Errorf("%d bytes more", grown)
	}
	if n := m.Summary(load.Tally{}, nil).Completed; n != 300_000 {
		t.Errorf("%d complete", n)
	}
}

func TestAlarms(t *testing.T) {
	m := NewMeter(time.Now(), SLO{})
	r := drafted(99, 1)
	r.PromptTokens, r.CachedTokens = 10, 8
	m.Add(&Record{PromptID: "a", Sample: r})
	text := strings.Join(m.Summary(load.Tally{Dropped: 3}, nil).Warnings, "\n")
	for _, want := range []string{"accept length 1.010", "prefix cache gave 8 of 10", "3 starts were due"} {
		if !strings.Contains(text, want) {
			t.Errorf("no warning of %q in:\n%s", want, text)
		}
	}
}

// TestAcceptanceByContext: accept lengths of short and long requests are told apart where both are there, and a fall beyond doubt is told.
func TestAcceptanceByContext(t *testing.T) {
	for name, c := range map[string]struct {
		prompts  int // of each length
		accepted int64
		long     int // tokens of the long prompts
		up       string
		falls    bool
	}{
		"falls":      {8, 20, 9000, "1024 16384", true},
		"holds":      {8, 90, 9000, "1024 16384", false},
		"too few":    {3, 20, 9000, "1024 16384", false},
		"one length": {8, 20, 600, "", false},
	} {
		m := NewMeter(time.Now(), SLO{})
		for i := range c.prompts {
			for prompt, accepted := range map[int]int64{500: 100 + int64(i), c.long: c.accepted + int64(i)} {
				m.Add(&Record{PromptID: fmt.Sprint(prompt, "-", i), Sample: &client.Sample{PromptTokens: prompt, OutputTokens: 200, Chunks: []client.Chunk{{Tokens: 200}, {}},
					Spec: &client.Speculation{Cycles: 100, Drafted: 300, Accepted: accepted}}})
			}
		}
		s := m.Summary(load.Tally{}, nil)
		var up []string
		for _, r := range s.Acceptance.ByContext {
			up = append(up, fmt.Sprint(r.UpTo))
		}
		text := strings.Join(s.Warnings, "\n")
		if strings.Join(up, " ") != c.up || strings.Contains(text, "falls with the context") != c.falls || (text != "") != c.falls {
			t.Errorf("%s: %v, %q", name, up, text)
		}
		var b bytes.Buffer
		if err := s.WriteTable(&b); err != nil || strings.Contains(b.String(), "  Context up to 16384:") != (len(up) > 0) {
			t.Errorf("%s: %v\n%s", name, err, b.String())
		}
	}
}

// TestAnswersWithoutDrafts: llama.cpp tells of drafts only where there were some. Its accept length is of all answers, positions are shares of all cycles,
// and a drafter that seldom drafts is not one whose drafts are refused. Where cycles are counted, answers that do not tell are left out.
func TestAnswersWithoutDrafts(t *testing.T) {
	for name, c := range map[string]struct {
		histogram []int64
		cycles    int64
		warning   string
	}{
		"by tokens": {nil, 400, "most cycles have no draft; 80 % of those"},
		"counted":   {[]int64{96, 0, 0, 0, 4}, 100, ""},
	} {
		m := NewMeter(time.Now(), SLO{})
		for i := range 4 {
			s := &client.Sample{PromptTokens: 500 * (1 + i), OutputTokens: 101, Chunks: []client.Chunk{{Tokens: 100}, {}}}
			if i == 0 {
				s.Spec = &client.Speculation{Cycles: 100, Drafted: 20, Accepted: 16, Histogram: c.histogram}
			}
			m.Add(&Record{PromptID: fmt.Sprint(i % 3), Sample: s})
		}
		s := m.Summary(load.Tally{}, &Acceptance{Cycles: 5, Drafted: 20, Accepted: 16, Survival: []Estimate{{Value: .8}}, Conditional: []Estimate{{Value: .8}}})
		a, survived := s.Acceptance, 4/float64(c.cycles)
		if a.Cycles != c.cycles || !near(a.Length.Value, 1+16/float64(c.cycles), 1e-9) || !near(a.Survival[0].Value, survived, 1e-9) || !near(a.Conditional[0].Value, survived, 1e-9) {
			t.Errorf("%s: %+v", name, a)
		}
		if text := strings.Join(s.Warnings, "\n"); !strings.Contains(text, c.warning) || (text != "") != (c.warning != "") {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// TestAnswersWithoutTimes: answers whose text came in no known field, or all at once, are not passed off as fast ones.
func TestAnswersWithoutTimes(t *testing.T) {
	streamed := client.Sample{OutputTokens: 30, FirstNS: ms, LastNS: 30 * ms, Chunks: []client.Chunk{{AtNS: ms}, {AtNS: 30 * ms}}}
	wordless := client.Sample{OutputTokens: 30}
	whole := client.Sample{OutputTokens: 30, FirstNS: ms, LastNS: ms, Chunks: []client.Chunk{{AtNS: ms}}}
	short := client.Sample{OutputTokens: mostAtOnce, FirstNS: ms, LastNS: ms, Chunks: []client.Chunk{{AtNS: ms}}}
	for name, c := range map[string]struct {
		answers []client.Sample
		want    string
		timed   int64
	}{
		"streamed":         {[]client.Sample{streamed, streamed}, "", 2},
		"another field":    {[]client.Sample{wordless, streamed}, "1 of 2 complete answers brought no text", 1},
		"a proxy":          {[]client.Sample{whole, whole, streamed}, "2 of 3 answers of more than 16 tokens came in one piece", 3},
		"an end at once":   {[]client.Sample{{OutputTokens: 1}, streamed}, "1 of 2 complete answers ended at once", 1},
		"the long ones":    {[]client.Sample{whole, short, short}, "1 of 1 answers of more than 16 tokens came in one piece", 3},
		"an exception":     {[]client.Sample{whole, streamed}, "", 2},
		"a cycle's tokens": {[]client.Sample{short, short}, "", 2},
	} {
		m := NewMeter(time.Now(), SLO{})
		for i := range c.answers {
			m.Add(&Record{Sample: &c.answers[i]})
		}
		s := m.Summary(load.Tally{}, nil)
		if text := strings.Join(s.Warnings, "\n"); (text != "") != (c.want != "") || !strings.Contains(text, c.want) || s.dist("ttft").n != c.timed {
			t.Errorf("%s: %d times, %q", name, s.dist("ttft").n, text)
		}
	}
}

// TestCountedCache: a server's sum stands where no answer tells, and warns where it is most of the input.
func TestCountedCache(t *testing.T) {
	for _, c := range []struct {
		told           int
		counted, total int64
		warns          bool
	}{{0, 0, 0, false}, {0, 16, 16, false}, {0, 39, 39, true}, {2, 39, 2, false}, {0, -3, 0, false}} {
		m := NewMeter(time.Now(), SLO{})
		for range 2 {
			m.Add(&Record{Sample: &client.Sample{PromptTokens: 20, CachedTokens: c.told / 2, OutputTokens: 1, Chunks: []client.Chunk{{Tokens: 1}}}})
		}
		s := m.Summary(load.Tally{}, nil)
		s.CountCached(c.counted)
		if s.Cached != c.total || (len(s.Warnings) > 0) != c.warns {
			t.Errorf("%+v: %d cached, warnings %q", c, s.Cached, s.Warnings)
		}
	}
}

// TestACommonBeginningIsNoWarmCache: what a chat's template has cached is as long for every prompt.
func TestACommonBeginningIsNoWarmCache(t *testing.T) {
	for name, c := range map[string]struct {
		requests [][2]int // tokens of the prompt, cached
		warns    bool
	}{
		"template":        {[][2]int{{40, 0}, {40, 16}, {50, 16}, {60, 16}}, false},
		"prompts anew":    {[][2]int{{40, 0}, {40, 39}, {50, 49}}, true},
		"one prompt anew": {[][2]int{{40, 0}, {40, 39}, {40, 39}}, true},
	} {
		m := NewMeter(time.Now(), SLO{})
		for _, r := range c.requests {
			m.Add(&Record{Sample: &client.Sample{PromptTokens: r[0], CachedTokens: r[1], OutputTokens: 1, Chunks: []client.Chunk{{Tokens: 1}}}})
		}
		if w := m.Summary(load.Tally{}, nil).Warnings; (len(w) > 0) != c.warns {
			t.Errorf("%s: warnings %q", name, w)
		}
	}
}

// TestIntervalsKeepToWhatCanBe: few prompts give wide intervals, but no share above 1 and no cycle without a token.
func TestIntervalsKeepToWhatCanBe(t *testing.T) {
	m := NewMeter(time.Now(), SLO{})
	m.Add(&Record{PromptID: "a", Sample: drafted(4, 4, 2)})
	m.Add(&Record{PromptID: "b", Sample: drafted(9, 0, 0)})
	a := m.Summary(load.Tally{}, nil).Acceptance
	if *a.Length.Low < 1 || *a.Rate.Low < 0 || *a.Survival[0].High > 1 || *a.Length.High <= a.Length.Value {
		t.Errorf("length from %v to %v, rate from %v, survival to %v", *a.Length.Low, *a.Length.High, *a.Rate.Low, *a.Survival[0].High)
	}
}

// TestFamiliarOutput: what scripts look for is there, under its name.
func TestFamiliarOutput(t *testing.T) {
	begin := time.Now()
	m := NewMeter(begin, SLO{TTFT: time.Second})
	m.Add(&Record{PromptID: "a", Sample: sample(begin)})
	m.Add(&Record{PromptID: "b", Sample: drafted(1, 1)})
	s := m.Summary(load.Tally{Started: 2, Elapsed: time.Second}, nil)
	s.Backend, s.Dataset, s.Plan = "vllm", "my set", load.Plan{Concurrency: 4}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	keys := "date backend model_id request_rate max_concurrency duration completed failed total_input_tokens total_output_tokens request_throughput " +
		"request_goodput output_throughput total_token_throughput accept_length spec_decode_acceptance_length mean_e2e_latency_ms median_e2e_latency_ms concurrency"
	for _, metric := range []string{"ttft", "tpot", "itl", "e2el"} {
		for _, what := range []string{"mean", "median", "std", "p99", "p95", "p90"} {
			keys += " " + what + "_" + metric + "_ms"
		}
	}
	for _, k := range strings.Fields(keys) {
		if _, ok := doc[k]; !ok {
			t.Errorf("no key %s", k)
		}
	}
	if doc["mean_ttft_ms"] != 12.0 || doc["request_rate"] != "inf" || doc["output_throughput"] != 8.0 {
		t.Errorf("values: %v %v %v", doc["mean_ttft_ms"], doc["request_rate"], doc["output_throughput"])
	}
	var b bytes.Buffer
	if err := s.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"============ Serving Benchmark Result ============\n", "Successful requests:                     2         \n",
		"---------------Time to First Token----------------\n", "Mean TTFT (ms):                          12.00     \n",
		"Output token throughput (tok/s):         8.00      \n", "---------------Speculative Decoding---------------\n", "Acceptance length:                       1.50      \n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if got := s.Benchstat(); !strings.Contains(got, "\nBenchmarkServing/dataset=my_set/rate=inf/concurrency=4 2 0.012 ttft-sec 0.005 tpot-sec 0.042 e2e-sec 8 tok/s 2 req/s 1.5 accept-length\n") {
		t.Errorf("%s", got)
	}
}

func TestEnvironment(t *testing.T) {
	e := ReadEnvironment("v1")
	if e.CPUs < 1 || e.Go == "" || e.Client != "v1" || !strings.Contains(e.OS, "/") {
		t.Errorf("%+v", e)
	}
}
