package server

import (
	"encoding/json"
	"net/http"
	"time"

	"draftlab/openai"
)

// events writes a stream of server-sent events. Nothing is sent before the first event, so that what fails until then
// has a status of its own.
type events struct {
	s     *Server
	w     http.ResponseWriter
	rc    *http.ResponseController
	buf   []byte
	begun bool
}

func (s *Server) newEvents(w http.ResponseWriter) *events {
	return &events{s: s, w: w, rc: http.NewResponseController(w)}
}

// add puts an event into the next write.
func (e *events) add(doc any) {
	data, err := json.Marshal(doc)
	if err != nil {
		panic("server: an event that is no JSON: " + err.Error())
	}
	e.buf = openai.AppendEvent(e.buf, data)
}

// send writes the events. An error means that the client is gone or reads too slowly (S2).
func (e *events) send() error {
	if !e.begun {
		e.begun = true
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // nginx would keep events back
		e.w.WriteHeader(http.StatusOK)
	}
	_ = e.rc.SetWriteDeadline(time.Now().Add(e.s.cfg.WriteTimeout)) // a recorder in tests has none
	_, err := e.w.Write(e.buf)
	e.buf = e.buf[:0]
	if err == nil {
		err = e.rc.Flush()
	}
	if err != nil {
		return errGone
	}
	return nil
}

// end ends the stream: with the mark of a whole one, or with the error. An error before the first event is an
// answer of its own.
func (e *events) end(err *openai.Error) {
	switch {
	case err == nil:
		e.buf = openai.AppendEvent(e.buf, []byte(openai.Done))
	case err.Status == statusGone:
		note(e.w, statusGone)
		return
	case !e.begun:
		e.s.fail(e.w, err)
		return
	default:
		e.add(openai.ErrorBody{Error: err})
		note(e.w, err.Status)
	}
	if e.send() != nil {
		note(e.w, statusGone)
	}
}
