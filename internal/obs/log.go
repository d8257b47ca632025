// Package obs is how a running server is watched: [NewLogger] writes the log, a [Registry] holds the metrics and serves them in
// Prometheus's text format. It is the one package that knows the Prometheus library; it does not know what is
// measured.
package obs

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// timeLayout is the prefix of each line: that of SGLang's log, so that what parses the one parses the other.
const timeLayout = "[2006-01-02 15:04:05] "

// NewLogger returns a logger that writes lines "[2006-01-02 15:04:05] message key=value" in local time. Control characters of
// a message are replaced, so that no request can forge a line. Levels other than Info stand before the message.
func NewLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(&lineHandler{out: &output{w: w}, level: level})
}

// output is a writer that takes one line at a time.
type output struct {
	mu sync.Mutex
	w  io.Writer
}

// lineHandler is the slog.Handler behind NewLogger.
type lineHandler struct {
	out    *output
	level  slog.Leveler
	prefix string // of attribute keys: the open groups
	attrs  string // already written out
}

// Enabled reports whether a level is logged.
func (h *lineHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

// Handle writes one line.
func (h *lineHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	t := r.Time
	if t.IsZero() {
		t = time.Now()
	}
	b.WriteString(t.Format(timeLayout))
	if r.Level != slog.LevelInfo {
		b.WriteString(r.Level.String() + ": ")
	}
	b.WriteString(clean(r.Message))
	b.WriteString(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		appendAttr(&b, h.prefix, a)
		return true
	})
	b.WriteByte('\n')
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	_, err := io.WriteString(h.out.w, b.String())
	return err
}

// WithAttrs returns a handler that writes the attributes in each line.
func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var b strings.Builder
	for _, a := range attrs {
		appendAttr(&b, h.prefix, a)
	}
	c := *h
	c.attrs += b.String()
	return &c
}

// WithGroup returns a handler that puts the group's name before the keys.
func (h *lineHandler) WithGroup(name string) slog.Handler {
	c := *h
	if name != "" {
		c.prefix += name + "."
	}
	return &c
}

// appendAttr writes " key=value", and each attribute of a group.
func appendAttr(b *strings.Builder, prefix string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, g := range v.Group() {
			appendAttr(b, prefix, g)
		}
		return
	}
	if a.Equal(slog.Attr{}) {
		return
	}
	b.WriteString(" " + clean(prefix+a.Key) + "=" + quote(v.String()))
}

// quote puts quotation marks around a value that has blanks or none at all.
func quote(s string) string {
	s = clean(s)
	if s == "" || strings.ContainsAny(s, " \"=") {
		return `"` + strings.ReplaceAll(s, `"`, `'`) + `"`
	}
	return s
}

// clean replaces control characters and what is no UTF-8.
func clean(s string) string {
	control := func(r rune) bool {
		return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\ufffd' || r == '\u2028' || r == '\u2029'
	}
	if !slices.ContainsFunc([]rune(s), control) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if control(r) {
			return '?'
		}
		return r
	}, s)
}
