package openai

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Done is the data of the event that ends a stream.
const Done = "[DONE]"

// maxLine bounds a line of a stream against a server that never ends one.
const maxLine = 16 << 20

// AppendEvent appends an event with the given data, which must be a single line, as JSON from encoding/json is.
func AppendEvent(dst, data []byte) []byte {
	if bytes.ContainsAny(data, "\r\n") {
		panic("openai: the data of an event has a line end")
	}
	dst = append(dst, "data: "...)
	dst = append(dst, data...)
	return append(dst, "\n\n"...)
}

// ErrTruncated is returned by Reader.Next for a stream that ends within an event.
var ErrTruncated = errors.New("the stream ends within an event")

// Reader reads the events of a stream as the HTML standard defines them; of their fields it returns the data alone.
type Reader struct {
	lines *bufio.Reader
	data  []byte
}

// NewReader returns a Reader of a response's body.
func NewReader(r io.Reader) *Reader { return &Reader{lines: bufio.NewReader(r)} }

// Next returns the data of the next event, good until the next call; io.EOF comes after the last one. Data of several lines is
// joined with line feeds. Next does not treat [Done] apart.
func (r *Reader) Next() ([]byte, error) {
	r.data = r.data[:0]
	seen := false
	for {
		line, err := r.line()
		switch {
		case errors.Is(err, io.EOF) && (seen || len(line) > 0):
			return nil, ErrTruncated
		case err != nil:
			return nil, err
		case len(line) == 0 && seen:
			return r.data, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "data" {
			continue // a comment (an empty name), or a field that the API does not use
		}
		if seen {
			r.data = append(r.data, '\n')
		}
		r.data = append(r.data, bytes.TrimPrefix(value, []byte(" "))...)
		if seen = true; len(r.data) > maxLine {
			return nil, fmt.Errorf("an event of the stream is longer than %d bytes", maxLine)
		}
	}
}

// line returns the next line without its end, and io.EOF with what has none.
func (r *Reader) line() ([]byte, error) {
	var long []byte
	for {
		part, err := r.lines.ReadSlice('\n')
		if err == nil && long == nil {
			return trimEnd(part), nil
		}
		long = append(long, part...)
		switch {
		case err == nil:
			return trimEnd(long), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return long, err
		case len(long) > maxLine:
			return nil, fmt.Errorf("a line of the stream is longer than %d bytes", maxLine)
		}
	}
}

func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}
