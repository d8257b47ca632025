package weights

import (
	"fmt"
	"io"
)

// Lazy is a tensor to be written whose bytes are made as they are written, so that a writer of a large
// model holds no more of it than the piece at hand. Data and Offset are not looked at.
type Lazy struct {
	Tensor
	// Write writes exactly the bytes that Kind, Type and Shape ask for. It is called once, after all that
	// can be refused has been; its error ends the writing and is passed on, wrapped.
	Write func(w io.Writer) error
}

// ready makes tensors with their data in memory lazy; those whose data does not fit their shape are refused.
func ready(tensors []Tensor) ([]Lazy, error) {
	lazy := make([]Lazy, len(tensors))
	for i, t := range tensors {
		if err := t.check(); err != nil {
			return nil, err
		}
		lazy[i] = Lazy{t, func(w io.Writer) error {
			_, err := w.Write(t.Data)
			return err
		}}
	}
	return lazy, nil
}

// write calls Write and panics if it breaks its contract: all that follows in the file would lie elsewhere than
// the header says.
func (t Lazy) write(w io.Writer) error {
	c := counted{w: w}
	if err := t.Write(&c); err != nil {
		return err
	}
	if c.n != t.size() {
		panic(fmt.Sprintf("weights: tensor %s: %d bytes were written, want %d", quoteShort(t.Name), c.n, t.size()))
	}
	return nil
}

// counted counts the bytes that go through it.
type counted struct {
	w io.Writer
	n int
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += n
	return n, err
}
