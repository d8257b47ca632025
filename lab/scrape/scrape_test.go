package scrape

import (
	"math"
	"strings"
	"testing"
)

const answer = `# HELP sglang:forward_execution_seconds_total x
# TYPE sglang:forward_execution_seconds_total counter
sglang:forward_execution_seconds_total{category="eagle_draft",tp_rank="0"} 1.5
sglang:forward_execution_seconds_total{category="target_verify",tp_rank="0"} 28.5
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="a\"b"} 3.0
llamacpp:n_decode_total 12
# TYPE h histogram
h_bucket{le="+Inf"} 3
h_sum 5
h_count 3
nan NaN
# TYPE broken summary
broken_sum NaN
broken_count 3
`

func TestParse(t *testing.T) {
	m, err := Parse(strings.NewReader(answer))
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := m.Sum("sglang:forward_execution_seconds_total"); !ok || v != 30 {
		t.Errorf("sum %v, %v", v, ok)
	}
	if v, ok := m.Max("sglang:forward_execution_seconds_total"); !ok || v != 28.5 {
		t.Errorf("max %v, %v", v, ok)
	}
	if s := m.Samples("sglang:num_running_reqs"); len(s) != 1 || s[0].Value != 3 || s[0].Labels["model_name"] != `a"b` {
		t.Errorf("%+v", s)
	}
	if v, ok := m.Sum("llamacpp:n_decode_total"); !ok || v != 12 {
		t.Errorf("no type: %v, %v", v, ok)
	}
	for _, name := range []string{"h", "nan", "absent"} {
		if v, ok := m.Sum(name); ok {
			t.Errorf("%s has the value %v", name, v)
		}
	}
	if n, sum, ok := m.Observed("h"); !ok || n != 3 || sum != 5 {
		t.Errorf("histogram: %v, %v, %v", n, sum, ok)
	}
	for _, name := range []string{"nan", "absent", "broken"} {
		if n, sum, ok := m.Observed(name); ok {
			t.Errorf("%s has observed %v, %v", name, n, sum)
		}
	}
	if !m.Has("sglang:") || m.Has("vllm:") {
		t.Error("Has")
	}
}

func TestParseNamesTheLine(t *testing.T) {
	if _, err := Parse(strings.NewReader("a 1\n<html>\n")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("%v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(answer)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		for name := range m.families {
			for _, s := range m.Samples(name) {
				if math.IsNaN(s.Value) || math.IsInf(s.Value, 0) {
					t.Errorf("%q: %v", name, s.Value)
				}
			}
		}
	})
}
