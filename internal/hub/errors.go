package hub

import (
	"errors"
	"fmt"
	"io/fs"
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

// noDirectory is the error for a cache that has no place.
func noDirectory(variable string) error {
	return &Error{Msg: "the system names no cache directory", Hint: "set " + variable + " to a directory for models"}
}

// explain adds the remedy to errors of the system that have one.
func explain(err error) error {
	var known *Error
	var file *fs.PathError // not the network's errors, which may say "not permitted" as well
	switch {
	case errors.As(err, &known):
		return err
	case isDiskFull(err):
		return &Error{
			Msg:  fmt.Sprintf("the disk is full: %v", err),
			Hint: "free some space, or set DRAFTLAB_CACHE (named models) or HF_HUB_CACHE (files of the hub) to a directory on a larger disk",
			Err:  err,
		}
	case errors.As(err, &file) && isUnwritable(err):
		return &Error{
			Msg:  err.Error(),
			Hint: "set DRAFTLAB_CACHE (named models) or HF_HUB_CACHE (files of the hub) to a directory that can be written to",
			Err:  err,
		}
	}
	return err
}
