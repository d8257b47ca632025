package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"draftlab/engine"
	"draftlab/openai"
)

// statusGone is the status in log and metrics of a request whose client left; it is never sent. The number is nginx's.
const statusGone = 499

// unavailable is the error of a server that may serve later.
func unavailable(code, message string) *openai.Error {
	return &openai.Error{Status: http.StatusServiceUnavailable, Type: openai.ServerError, Code: code, Message: message}
}

// errTimeout is why a request ends that takes longer than Config.RequestTimeout.
var errTimeout = &openai.Error{Status: http.StatusGatewayTimeout, Type: openai.ServerError, Code: "request_timeout",
	Message: "the request took longer than this server allows; ask for fewer tokens"}

// errGone is why a request ends whose client left.
var errGone = &openai.Error{Status: statusGone, Type: openai.ServerError, Code: "client_gone", Message: "the client closed the connection"}

// asError returns the error that a client gets for an error of any kind.
func asError(ctx context.Context, err error) *openai.Error {
	var e *openai.Error
	switch {
	case errors.As(err, &e):
		return e
	case ctx.Err() != nil && errors.As(context.Cause(ctx), &e):
		return e
	case ctx.Err() != nil:
		return errGone
	case errors.Is(err, context.Canceled):
		return unavailable("shutting_down", "the engine has stopped")
	}
	return &openai.Error{Status: http.StatusInternalServerError, Type: openai.ServerError, Code: "engine_error", Message: "the engine failed: " + err.Error()}
}

// submitError returns the error that a client gets for an error of Engine.Submit.
func (s *Server) submitError(err error, e Engine) *openai.Error {
	switch {
	case errors.Is(err, engine.ErrQueueFull):
		return &openai.Error{Status: http.StatusTooManyRequests, Type: openai.RateLimit, Code: "queue_full",
			Message: err.Error() + "; try again in " + strconv.Itoa(s.retry.seconds(e)) + " s"}
	case errors.Is(err, engine.ErrContext):
		return &openai.Error{Status: http.StatusBadRequest, Type: openai.InvalidRequest, Code: "context_length_exceeded", Message: err.Error()}
	}
	return openai.Invalid(parameterOf(err), "%v", err)
}

// parameterOf returns the parameter that an error of the engine begins with, as those of package sample do; "" if it begins with
// none.
func parameterOf(err error) string {
	word, _, _ := strings.Cut(err.Error(), " ")
	word = strings.TrimSuffix(word, ":")
	for _, name := range []string{"temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias"} {
		if word == name {
			return name
		}
	}
	return ""
}

// fail answers with an error, unless the client has left.
func (s *Server) fail(w http.ResponseWriter, e *openai.Error) {
	if e.Status == statusGone {
		note(w, e.Status)
		return
	}
	if e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable {
		after := 1
		if eng := s.engine.Load(); eng != nil {
			after = s.retry.seconds(*eng)
		}
		w.Header().Set("Retry-After", strconv.Itoa(after))
	}
	s.writeJSON(w, e.Status, openai.ErrorBody{Error: e})
}

// writeJSON answers with a document.
func (s *Server) writeJSON(w http.ResponseWriter, status int, doc any) {
	body, err := json.Marshal(doc)
	if err != nil {
		panic("server: a document that is no JSON: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	s.limitWrite(w)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // an error means that nobody listens any more
}

// limitWrite gives the next write its deadline (S2).
func (s *Server) limitWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.cfg.WriteTimeout)) // a recorder in tests has none
}
