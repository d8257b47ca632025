// Package scrape reads metrics in Prometheus's text format: [Parse] makes [Metrics] of an answer, which give a metric's value,
// or its values by a label. It fetches nothing and knows no metric by name.
package scrape

import (
	"fmt"
	"io"
	"math"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// maxBytes bounds an answer: SGLang's with all histograms has some 200 kB a rank.
const maxBytes = 64 << 20

// Metrics are the values of one answer.
type Metrics struct {
	families map[string]*dto.MetricFamily
}

// Sample is one value of a metric.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// Parse reads an answer. The error names the line.
func Parse(r io.Reader) (*Metrics, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(io.LimitReader(r, maxBytes))
	if err != nil {
		return nil, fmt.Errorf("not in Prometheus's text format: %w", err)
	}
	return &Metrics{families}, nil
}

// Has reports whether a metric's name begins so.
func (m *Metrics) Has(prefix string) bool {
	for name := range m.families {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// Samples returns the values of a counter, gauge or metric without a type, nil if there is none. What is not a finite number
// is left out.
func (m *Metrics) Samples(name string) (out []Sample) {
	for _, one := range m.families[name].GetMetric() {
		var v float64
		switch {
		case one.Counter != nil:
			v = one.Counter.GetValue()
		case one.Gauge != nil:
			v = one.Gauge.GetValue()
		case one.Untyped != nil:
			v = one.Untyped.GetValue()
		default:
			continue
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		s := Sample{Labels: map[string]string{}, Value: v}
		for _, l := range one.GetLabel() {
			s.Labels[l.GetName()] = l.GetValue()
		}
		out = append(out, s)
	}
	return out
}

// Sum adds up a metric's values; false if it has none.
func (m *Metrics) Sum(name string) (sum float64, ok bool) {
	for _, s := range m.Samples(name) {
		sum, ok = sum+s.Value, true
	}
	return sum, ok
}

// Observed adds up a histogram's or a summary's series: how many values it has taken in, and their sum. False if it has none, or a sum
// that is not a finite number.
func (m *Metrics) Observed(name string) (count, sum float64, ok bool) {
	for _, one := range m.families[name].GetMetric() {
		switch {
		case one.Histogram != nil:
			count, sum, ok = count+float64(one.Histogram.GetSampleCount()), sum+one.Histogram.GetSampleSum(), true
		case one.Summary != nil:
			count, sum, ok = count+float64(one.Summary.GetSampleCount()), sum+one.Summary.GetSampleSum(), true
		}
	}
	if math.IsNaN(sum) || math.IsInf(sum, 0) {
		return 0, 0, false
	}
	return count, sum, ok
}

// Max is the largest of a metric's values; false if it has none.
func (m *Metrics) Max(name string) (most float64, ok bool) {
	for _, s := range m.Samples(name) {
		if !ok || s.Value > most {
			most, ok = s.Value, true
		}
	}
	return most, ok
}
