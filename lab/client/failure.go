package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"

	"draftlab/openai"
)

// Failure names the way in which a request failed; "" is none.
type Failure string

// The ways, each with what it says about the server.
const (
	Unreachable Failure = "unreachable"   // no connection
	Limited     Failure = "rate limited"  // status 429
	Refused     Failure = "refused"       // another status from 400 on
	ServerFault Failure = "server error"  // a status from 500 on, or an error within the stream
	Stalled     Failure = "stalled"       // nothing came for longer than the limit
	Cut         Failure = "cut"           // the connection or the stream ended before the answer did
	Broken      Failure = "broken stream" // events that are not what the API says
	Cancelled   Failure = "cancelled"     // by the caller
)

// inStream is an error that a server reports within a stream.
type inStream struct{ message string }

func (e *inStream) Error() string { return "in the stream: " + e.message }

// closedEarly reports whether a connection was closed before an answer began.
func closedEarly(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// failureOf names an error of a request that was answered with a status, 0 for none.
func failureOf(ctx context.Context, status int, err error) Failure {
	var syntax *json.SyntaxError
	var told *inStream
	var network net.Error
	switch {
	case err == nil:
		return ""
	case ctx.Err() != nil:
		return Cancelled
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &network) && network.Timeout():
		return Stalled
	case status == http.StatusTooManyRequests:
		return Limited
	case status >= 500 || errors.As(err, &told):
		return ServerFault
	case status >= 400:
		return Refused
	case status == 0 && closedEarly(err):
		return Cut // there was a connection
	case status == 0:
		return Unreachable
	case errors.As(err, &syntax):
		return Broken
	case errors.Is(err, errUnfinished) || errors.Is(err, openai.ErrTruncated) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET):
		return Cut
	}
	return Broken
}
