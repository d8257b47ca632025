package weights

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"draftlab/engine/quant"
)

// TestStream: tensors that are made while they are written give the file that ready ones give, one at a time.
func TestStream(t *testing.T) {
	tensors := sample(t)
	open := 0
	lazy := make([]Lazy, len(tensors))
	for i, d := range tensors {
		bare := d
		bare.Data = nil
		lazy[i] = Lazy{bare, func(w io.Writer) error {
			if open++; open > 1 {
				t.Error("two tensors are being written at once")
			}
			for _, b := range d.Data {
				if _, err := w.Write([]byte{b}); err != nil {
					return err
				}
			}
			open--
			return nil
		}}
	}
	var want, got bytes.Buffer
	if err := errors.Join(WriteGGUF(&want, nil, tensors), StreamGGUF(&got, nil, lazy)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want.Bytes(), got.Bytes()) {
		t.Error("GGUF: the files differ")
	}
	want.Reset()
	got.Reset()
	if err := errors.Join(WriteSafetensors(&want, nil, tensors), StreamSafetensors(&got, nil, lazy)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want.Bytes(), got.Bytes()) {
		t.Error("safetensors: the files differ")
	}
}

// TestStreamFails: what a tensor's Write returns is passed on; too few or too many bytes would shift all that
// follows, so they are a broken contract.
func TestStreamFails(t *testing.T) {
	broken := errors.New("source is gone")
	shape := Tensor{Name: "w", Type: quant.F32, Shape: []int{2}}
	writers := map[string]func(...Lazy) error{
		"GGUF":        func(l ...Lazy) error { return StreamGGUF(io.Discard, nil, l) },
		"safetensors": func(l ...Lazy) error { return StreamSafetensors(io.Discard, nil, l) },
	}
	for name, write := range writers {
		err := write(Lazy{shape, func(io.Writer) error { return broken }})
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), `tensor "w"`) {
			t.Errorf("%s: %v", name, err)
		}
		for _, n := range []int{0, 7, 9} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: %d of 8 bytes were taken", name, n)
					}
				}()
				_ = write(Lazy{shape, func(w io.Writer) error {
					_, err := w.Write(make([]byte, n))
					return err
				}})
			}()
		}
		bad := shape
		bad.Shape = []int{0}
		if err := write(Lazy{bad, nil}); err == nil {
			t.Errorf("%s: a dimension of 0 was taken", name)
		}
	}
}
