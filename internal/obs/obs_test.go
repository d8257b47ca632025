package obs

import (
	"bytes"
	"io"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func TestLogger(t *testing.T) {
	var b bytes.Buffer
	log := NewLogger(&b, slog.LevelInfo)
	log.Debug("not shown")
	log.Info("plain")
	log.Warn("with", "n", 3, "text", "a b", "empty", "")
	log.Info("forged\n[2026-01-01 00:00:00] line\u2028\x1b[31m", "k", "a\nb\xff")
	log.With("id", 7).WithGroup("g").Info("grouped", "x", 1, slog.Group("h", "y", 2))
	want := []string{"plain", `WARN: with n=3 text="a b" empty=""`, "forged?[2026-01-01 00:00:00] line??[31m k=a?b?", "grouped id=7 g.x=1 g.h.y=2"}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), b.String())
	}
	stamp := regexp.MustCompile(`^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] `)
	for i, line := range lines {
		if !stamp.MatchString(line) || stamp.ReplaceAllString(line, "") != want[i] {
			t.Errorf("line %q; want %q", line, want[i])
		}
	}
}

func TestRegistry(t *testing.T) {
	r := NewRegistry(map[string]string{"model_name": "m"})
	c := r.NewCounter("x:requests_total", "Requests.", "status")
	c.Add(2, "200")
	h := r.NewHistogram("x:seconds", "Seconds.", []float64{1, 2})
	h.Observe(1.5)
	r.AddSampled([]Desc{{Gauge, "x:running", "Running.", ""}, {Total, "x:pos_total", "By position.", "position"}, {Distribution, "x:size", "Sizes.", "of"}}, func() []Sample {
		return []Sample{
			{Metric: 0, Value: 3}, {Metric: 1, Label: "0", Value: 5}, {Metric: 1, Label: "1", Value: 4},
			{Metric: 2, Label: "a", Value: 17, Counts: &Counts{All: 6, Below: map[float64]uint64{1: 2, 4: 5}}},
		}
	})
	rec := httptest.NewRecorder()
	r.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(rec.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`x:requests_total{model_name="m",status="200"} 2`,
		`x:seconds_bucket{model_name="m",le="2"} 1`,
		"# TYPE x:running gauge", `x:running{model_name="m"} 3`,
		"# TYPE x:pos_total counter", `x:pos_total{model_name="m",position="1"} 4`,
		"# TYPE x:size histogram", `x:size_bucket{model_name="m",of="a",le="4"} 5`, `x:size_sum{model_name="m",of="a"} 17`, `x:size_count{model_name="m",of="a"} 6`,
		"go_goroutines ",
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
}
