package openai

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReader(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	var stream []byte
	stream = AppendEvent(stream, []byte(`{"a":1}`))
	stream = append(stream, ": a comment\r\n\r\nevent: message\r\ndata:two\r\ndata:  lines\r\nid\r\n\r\n\n"...)
	stream = AppendEvent(stream, []byte(long))
	stream = AppendEvent(stream, []byte(Done))
	for name, r := range map[string]io.Reader{"whole": bytes.NewReader(stream), "bytes": iotest.OneByteReader(bytes.NewReader(stream))} {
		events := NewReader(r)
		for _, want := range []string{`{"a":1}`, "two\n lines", long, Done} {
			if got, err := events.Next(); err != nil || string(got) != want {
				t.Fatalf("%s: %.80q, %v; want %.80q", name, got, err, want)
			}
		}
		if got, err := events.Next(); err != io.EOF {
			t.Errorf("%s: %q, %v at the end", name, got, err)
		}
	}
	for _, in := range []string{"data: x", "data: x\n", "da"} {
		if _, err := NewReader(strings.NewReader(in)).Next(); !errors.Is(err, ErrTruncated) {
			t.Errorf("%q: %v", in, err)
		}
	}
	endless := io.MultiReader(strings.NewReader("data: "), &zeros{})
	if _, err := NewReader(endless).Next(); err == nil || errors.Is(err, ErrTruncated) {
		t.Errorf("an endless line: %v", err)
	}
}

// zeros never ends.
type zeros struct{}

func (*zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("data: x\n\ndata: [DONE]\n\n"))
	f.Add([]byte("data:a\r\ndata\r\n\r\n:c\n\ndata: b"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewReader(bytes.NewReader(data))
		for range len(data) + 2 {
			if _, err := r.Next(); err != nil {
				return
			}
		}
		t.Error("more events than bytes")
	})
}
