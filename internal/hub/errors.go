package hub

import (
	"errors"
	"fmt"
)

// Error is a failure with its remedy. Commands print Hint on a line of its own.
type Error struct {
	Msg  string // what failed, with the place
	Hint string // what the user can do; may be empty
	Err  error  // the cause for errors.Is, not printed; may be nil
}

// Error returns the message without the hint.
func (e *Error) Error() string { return e.Msg }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Remedy returns the hint.
func (e *Error) Remedy() string { return e.Hint }

// ErrChecksum is the cause of every error about a file whose hash is not the expected one.
var ErrChecksum = errors.New("checksum mismatch")

// checksumError says which file differs and that it was not kept.
func checksumError(what, got, want string) error {
	return &Error{
		Msg:  fmt.Sprintf("%s: SHA-256 is %s, expected %s; the file was not kept", what, got, want),
		Hint: "the source delivered something else or a damaged file: try again, or try another mirror",
		Err:  ErrChecksum,
	}
}

// explain adds the remedy to errors of the system that have one.
func explain(err error) error {
	var known *Error
	if errors.As(err, &known) || !isDiskFull(err) {
		return err
	}
	return &Error{
		Msg:  fmt.Sprintf("the disk is full: %v", err),
		Hint: "free some space, or set DRAFTLAB_CACHE (named models) or HF_HUB_CACHE (files of the hub) to a directory on a larger disk",
		Err:  err,
	}
}
