package obs

import (
	"fmt"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Registry is a set of metrics with constant labels in common. It shares nothing with the Prometheus library's global registry.
type Registry struct {
	reg    *prometheus.Registry
	labels prometheus.Registerer // reg with the constant labels
}

// NewRegistry returns a Registry that holds metrics of the process and of the Go runtime, and puts the labels on every
// metric that is added.
func NewRegistry(labels map[string]string) *Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector())
	if runtime.GOOS == "linux" || runtime.GOOS == "windows" { // elsewhere it has nothing to say
		reg.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	return &Registry{reg: reg, labels: prometheus.WrapRegistererWith(labels, reg)}
}

// Handler serves the metrics.
func (r *Registry) Handler() http.Handler {
	return promhttp.HandlerFor(r.reg, promhttp.HandlerOpts{})
}

// Counter is a number that only grows, one for each value of its labels.
type Counter struct{ vec *prometheus.CounterVec }

// NewCounter adds a counter. It panics if the name is taken or not allowed.
func (r *Registry) NewCounter(name, help string, labels ...string) *Counter {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	r.labels.MustRegister(vec)
	return &Counter{vec}
}

// Add adds v, at least 0, under the label values, of which there must be as many as there are labels.
func (c *Counter) Add(v float64, labels ...string) { c.vec.WithLabelValues(labels...).Add(v) }

// Histogram counts values by size.
type Histogram struct{ h prometheus.Histogram }

// NewHistogram adds a histogram with the given upper bounds of its buckets, ascending. It panics as NewCounter does.
func (r *Registry) NewHistogram(name, help string, buckets []float64) *Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	r.labels.MustRegister(h)
	return &Histogram{h}
}

// Observe adds one value.
func (h *Histogram) Observe(v float64) { h.h.Observe(v) }

// Kind says how a sampled metric behaves.
type Kind uint8

// The kinds of sampled metrics: a gauge goes up and down, a total only up, a distribution is a histogram that is kept elsewhere.
const (
	Gauge Kind = iota
	Total
	Distribution
)

// Desc names a metric whose values are read when they are asked for.
type Desc struct {
	Kind  Kind
	Name  string
	Help  string
	Label string // the label that tells its values apart; "" for a metric of one value
}

// Sample is the value of one metric, with the value of its label if it has one.
type Sample struct {
	Metric int // index into the descriptions
	Label  string
	Value  float64 // of a distribution the sum
	Counts *Counts // of a distribution
}

// Counts are how many values a distribution has, in all and below upper bounds.
type Counts struct {
	All   uint64
	Below map[float64]uint64 // by upper bound
}

// AddSampled adds metrics that exist elsewhere as plain numbers. Each request for the metrics calls read once, on its own
// goroutine. It panics as NewCounter does, and on reading if a sample names no metric.
func (r *Registry) AddSampled(descs []Desc, read func() []Sample) {
	s := &sampled{kinds: make([]prometheus.ValueType, len(descs)), descs: make([]*prometheus.Desc, len(descs)), labelled: make([]bool, len(descs)), read: read}
	for i, d := range descs {
		var labels []string
		if d.Label != "" {
			labels, s.labelled[i] = []string{d.Label}, true
		}
		s.descs[i] = prometheus.NewDesc(d.Name, d.Help, labels, nil)
		s.kinds[i] = prometheus.GaugeValue
		if d.Kind == Total {
			s.kinds[i] = prometheus.CounterValue
		}
	}
	r.labels.MustRegister(s)
}

// sampled is the collector behind AddSampled.
type sampled struct {
	descs    []*prometheus.Desc
	kinds    []prometheus.ValueType
	labelled []bool
	read     func() []Sample
}

// Describe lists the metrics.
func (s *sampled) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		ch <- d
	}
}

// Collect reads the values.
func (s *sampled) Collect(ch chan<- prometheus.Metric) {
	for _, v := range s.read() {
		if v.Metric < 0 || v.Metric >= len(s.descs) {
			panic(fmt.Sprintf("obs: a sample of metric %d, of %d", v.Metric, len(s.descs)))
		}
		var labels []string
		if s.labelled[v.Metric] {
			labels = []string{v.Label}
		}
		if v.Counts != nil {
			ch <- prometheus.MustNewConstHistogram(s.descs[v.Metric], v.Counts.All, v.Value, v.Counts.Below, labels...)
			continue
		}
		ch <- prometheus.MustNewConstMetric(s.descs[v.Metric], s.kinds[v.Metric], v.Value, labels...)
	}
}
