package measure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"draftlab/lab/client"
)

// raw writes a raw file of n prompts, whose times are those of sample times a factor of each.
func raw(t *testing.T, n int, start time.Time, factor func(i int) float64) string {
	t.Helper()
	var b bytes.Buffer
	for i := range n {
		s := sample(start)
		f := factor(i)
		s.FirstNS, s.LastNS = int64(float64(s.FirstNS)*f), int64(float64(s.LastNS)*f)
		s.StartUnixNS = s.DueUnixNS
		s.Text = fmt.Sprint("text ", i)
		if err := json.NewEncoder(&b).Encode(&Record{N: int64(i), PromptID: fmt.Sprint("p", i), Sample: s}); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func compare(t *testing.T, a, b string) *Comparison {
	t.Helper()
	x, err := ReadRun(strings.NewReader(a))
	if err != nil {
		t.Fatal(err)
	}
	y, err := ReadRun(strings.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Compare(x, y)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestComparePairs(t *testing.T) {
	start := time.Now()
	rng := rand.New(rand.NewPCG(3, 4))
	speed := make([]float64, 40) // prompts differ by far more than the runs
	for i := range speed {
		speed[i] = math.Exp(rng.NormFloat64())
	}
	noise := func() float64 { return math.Exp(.01 * rng.NormFloat64()) }
	a := raw(t, 40, start, func(i int) float64 { return speed[i] * noise() })
	b := raw(t, 40, start, func(i int) float64 { return .9 * speed[i] * noise() })
	c := compare(t, a, b)
	tpot := c.Changes[0]
	if tpot.Metric != "tpot" || tpot.Pairs != 40 || !near(tpot.Ratio, .9, .01) || *tpot.Low > .9 || *tpot.High < .9 || tpot.P > 1e-6 {
		t.Errorf("%+v", tpot)
	}
	if want := 2.8 * .01 * math.Sqrt2 / math.Sqrt(40); !near(tpot.Least, want, .4) {
		t.Errorf("smallest effect %v, want about %v", tpot.Least, want)
	}
	if c.SameText != 40 || len(c.Warnings) != 0 {
		t.Errorf("%+v", c)
	}
	// Nothing against itself.
	for _, ch := range compare(t, a, a).Changes {
		if ch.Ratio != 1 || ch.P != 1 {
			t.Errorf("against itself: %+v", ch)
		}
	}
}

// TestCompareLeavesMarkedTextsAlone: two runs that put different marks before their prompts asked different questions.
func TestCompareLeavesMarkedTextsAlone(t *testing.T) {
	a := raw(t, 6, time.Now(), func(int) float64 { return 1 })
	b := strings.ReplaceAll(strings.ReplaceAll(a, `"round":0`, `"round":0,"mark":1796030300`), "text ", "another ")
	c := compare(t, a, b)
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "marks before its prompts") {
		t.Errorf("%q", c.Warnings)
	}
	if c := compare(t, b, b); len(c.Warnings) != 0 || c.SameText != 6 {
		t.Errorf("%+v", c)
	}
}

func TestCompareWarns(t *testing.T) {
	start := time.Now()
	one := func(int) float64 { return 1 }
	bad, _ := json.Marshal(&Record{PromptID: "p0", Sample: &client.Sample{Error: "x", Failure: client.Cut}})
	a := raw(t, 6, start, one)
	b := strings.ReplaceAll(raw(t, 4, start.Add(time.Minute), one), "text 1", "other") + "\n" + string(bad)
	c := compare(t, a, b)
	text := strings.Join(c.Warnings, "\n")
	for _, want := range []string{"one run followed the other", "2 prompts are in A alone and 0 in B", "0 requests of A and 1 of B failed", "1 of 4 outputs differ", "4 pairs are too few"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestCompareRefuses(t *testing.T) {
	for data, want := range map[string]string{"": "no request", "{}": "line 1: no prompt_id", "{\"prompt_id\":\"a\"}\nx": "line 2"} {
		if _, err := ReadRun(strings.NewReader(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", data, err)
		}
	}
	a, _ := ReadRun(strings.NewReader(raw(t, 1, time.Now(), func(int) float64 { return 1 })))
	b, _ := ReadRun(strings.NewReader(strings.ReplaceAll(raw(t, 1, time.Now(), func(int) float64 { return 1 }), "p0", "q0")))
	if _, err := Compare(a, b); err == nil || !strings.Contains(err.Error(), "no prompt in common") {
		t.Error(err)
	}
}

func TestPooled(t *testing.T) {
	if got := pooled([]float64{1, 2, 3, 4, 5}, 2); got[0] != 3 || got[1] != 3 {
		t.Errorf("%v", got)
	}
}

func FuzzReadRun(f *testing.F) {
	f.Add([]byte(`{"prompt_id":"a","chunks":[{"at_ns":1,"tokens":2,"bytes":3}],"output_tokens":2,"first_ns":1,"last_ns":5}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ReadRun(bytes.NewReader(data))
		if err != nil || len(r.prompts) == 0 {
			return
		}
		c, err := Compare(r, r)
		if err != nil || c.SameText != c.Pairs {
			t.Fatalf("%+v, %v", c, err)
		}
	})
}
