// Package export writes models in the formats of other engines: [Checkpoint] turns a GGUF model into the
// Hugging Face checkpoint that transformers, vLLM and SGLang load, and [DrafterGGUF] an EAGLE-3 drafter's checkpoint
// into the GGUF that llama.cpp loads beside its target.
//
// A result appears whole or not at all: it is written under another name beside its place and renamed at the
// end, and what was written is removed when anything fails or the context ends. No more of a model than a row of
// a matrix is held in memory. What a format cannot say is refused by the name of the key or tensor, never left out.
//
// The package does not know where models lie or how they are fetched, and it runs none.
package export

import (
	"fmt"

	"draftlab/engine/quant"
)

// Progress is told how many bytes of a result's weights are written, of how many in all; done never falls.
type Progress func(done, total int64)

// Result says what was written.
type Result struct {
	Path       string `json:"path"`
	Format     string `json:"format"`     // "safetensors" or "gguf"
	Type       string `json:"type"`       // of the matrices: "F32", "BF16" …
	Tensors    int    `json:"tensors"`    // in the files
	Parameters int64  `json:"parameters"` // elements of the weights among them
	Bytes      int64  `json:"bytes"`      // of all files
	Tokenizer  bool   `json:"tokenizer"`  // false if the source has no vocabulary, so that none was written
	Files      []File `json:"files"`
}

// File is one file of a result.
type File struct {
	Name  string `json:"name"` // without the folder
	Bytes int64  `json:"bytes"`
}

// Error is a failure with its remedy. Commands print Hint on a line of its own.
type Error struct {
	Msg  string // what failed, with the place
	Hint string // what the user can do
	Err  error  // the cause for errors.Is, not printed; may be nil
}

// Error returns the message without the hint.
func (e *Error) Error() string { return e.Msg }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Remedy returns the hint.
func (e *Error) Remedy() string { return e.Hint }

// explain adds the remedy to errors of the system that have one.
func explain(err error, path string) error {
	if !isDiskFull(err) {
		return err
	}
	return &Error{
		Msg:  fmt.Sprintf("the disk is full: %v", err),
		Hint: fmt.Sprintf("nothing of %s was kept: free some space, write to a larger disk, or choose a smaller type (bf16 takes half of f32)", path),
		Err:  err,
	}
}

// checkType refuses a type that is not among those allowed.
func checkType(t quant.Type, allowed ...quant.Type) error {
	for _, a := range allowed {
		if t == a {
			return nil
		}
	}
	return fmt.Errorf("export: weights of type %s are not written; known: %v", t, allowed)
}
