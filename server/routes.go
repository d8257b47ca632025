package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"draftlab/openai"
)

// routeTable lists every path with its methods.
func (s *Server) routeTable() map[string]map[string]http.HandlerFunc {
	get := func(h http.HandlerFunc) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{http.MethodGet: h, http.MethodHead: h}
	}
	post := func(h http.HandlerFunc) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{http.MethodPost: h}
	}
	flush := get(s.handleFlush)
	flush[http.MethodPost] = s.handleFlush
	both := func(h http.HandlerFunc) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{http.MethodGet: h, http.MethodPost: h}
	}
	return map[string]map[string]http.HandlerFunc{
		"/v1/models":           get(s.handleModels),
		"/v1/completions":      post(s.handleCompletion),
		"/v1/chat/completions": post(s.handleChat),
		"/generate":            post(s.handleGenerate),
		"/health":              get(s.handleHealth),
		"/health_generate":     get(s.handleHealthGenerate),
		"/server_info":         get(s.handleServerInfo),
		"/get_server_info":     get(s.handleServerInfo),
		"/model_info":          get(s.handleModelInfo),
		"/get_model_info":      get(s.handleModelInfo),
		"/flush_cache":         flush,
		"/start_profile":       both(s.handleStartProfile),
		"/stop_profile":        both(s.handleStopProfile),
		"/debug/cycles":        get(s.handleCycles),
		"/metrics":             get(s.metrics.handler.ServeHTTP),
	}
}

// open are the paths that need no key, as in SGLang: those of machines that watch.
var open = map[string]bool{"/health": true, "/health_generate": true, "/metrics": true}

// Handler answers requests. Serve uses it; it is there for tests and for servers of other kinds.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// serve finds the handler of a request, and writes the access line.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	rec := &recorder{ResponseWriter: w}
	path := "other"
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			s.cfg.Log.Error(fmt.Sprintf("panic in %s: %v", path, p), "stack", string(debug.Stack()))
			if rec.status == 0 {
				s.fail(rec, &openai.Error{Status: 500, Type: openai.ServerError, Code: "internal_error", Message: "internal error; the server's log has more"})
			}
		}
		if rec.status == 0 {
			rec.status = http.StatusOK
		}
		s.metrics.requests.Add(1, path, r.Method, fmt.Sprint(rec.status))
		s.access(r, rec.status)
		if rec.status == statusGone {
			// A client that has only closed its sending half still reads: it must not take what net/http would send, an empty 200 or
			// the regular end of a stream, for an answer.
			panic(http.ErrAbortHandler)
		}
	}()
	methods, ok := s.routes[r.URL.Path]
	switch {
	case ok:
		path = r.URL.Path
	case strings.HasPrefix(r.URL.Path, "/v1/models/"):
		path = "/v1/models/{model}"
		methods = map[string]http.HandlerFunc{http.MethodGet: s.handleModel, http.MethodHead: s.handleModel}
	}
	if !open[path] && !s.authorised(r) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		s.fail(rec, &openai.Error{Status: http.StatusUnauthorized, Type: openai.Authentication, Code: "invalid_api_key",
			Message: "a valid API key is needed: Authorization: Bearer KEY"})
		return
	}
	if methods == nil {
		s.fail(rec, &openai.Error{Status: http.StatusNotFound, Type: openai.InvalidRequest, Code: "unknown_url",
			Message: fmt.Sprintf("no such path: %s; this server has %s", r.URL.Path, strings.Join(slices.Sorted(maps.Keys(s.routes)), ", "))})
		return
	}
	h, ok := methods[r.Method]
	if !ok {
		path = "other" // a method is any word; none may make a metric of its own
		r.Method = clipMethod(r.Method)
		allow := strings.Join(slices.Sorted(maps.Keys(methods)), ", ")
		w.Header().Set("Allow", allow)
		s.fail(rec, &openai.Error{Status: http.StatusMethodNotAllowed, Type: openai.InvalidRequest, Code: "method_not_allowed",
			Message: fmt.Sprintf("%s takes %s", r.URL.Path, allow)})
		return
	}
	h(rec, r)
}

// clipMethod keeps the methods of HTTP and calls all others OTHER.
func clipMethod(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "OTHER"
}

// authorised compares the key in constant time; hashing hides its length too.
func (s *Server) authorised(r *http.Request) bool {
	if s.cfg.APIKey == "" {
		return true
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	want, got := sha256.Sum256([]byte(s.cfg.APIKey)), sha256.Sum256([]byte(strings.TrimSpace(key)))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// access writes a line as uvicorn does.
func (s *Server) access(r *http.Request, status int) {
	path := r.URL.EscapedPath()
	if len(path) > 200 {
		path = path[:200] + "..."
	}
	s.cfg.Log.Info(fmt.Sprintf("INFO:     %s - \"%s %s HTTP/%d.%d\" %d %s", r.RemoteAddr, r.Method, path, r.ProtoMajor, r.ProtoMinor, status, statusText(status)))
}

func statusText(status int) string {
	if status == statusGone {
		return "Client Closed Request"
	}
	return http.StatusText(status)
}

// recorder keeps the status for the log.
type recorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader notes the status.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// note sets the status that the log gives for a request.
func note(w http.ResponseWriter, status int) {
	if r, ok := w.(*recorder); ok {
		r.status = status
	}
}

// read returns the body of a request, whose size and time are limited.
func (s *Server) read(w http.ResponseWriter, r *http.Request) ([]byte, *openai.Error) {
	if c := r.Header.Get("Content-Encoding"); c != "" && !strings.EqualFold(c, "identity") {
		return nil, &openai.Error{Status: http.StatusUnsupportedMediaType, Type: openai.InvalidRequest, Code: "unsupported_encoding",
			Message: fmt.Sprintf("Content-Encoding %q: send the body as it is, uncompressed", openai.Clip(c))}
	}
	if kind := r.Header.Get("Content-Type"); kind != "" {
		// Insisting on it keeps web pages from sending requests across origins without a preflight.
		media, params, err := mime.ParseMediaType(kind)
		if err != nil || media != "application/json" {
			return nil, &openai.Error{Status: http.StatusUnsupportedMediaType, Type: openai.InvalidRequest, Code: "unsupported_media_type",
				Message: fmt.Sprintf("Content-Type %q: send JSON, with Content-Type: application/json", openai.Clip(kind))}
		}
		if c := params["charset"]; c != "" && !strings.EqualFold(c, "utf-8") && !strings.EqualFold(c, "utf8") { // both are names of it, says WHATWG
			return nil, &openai.Error{Status: http.StatusUnsupportedMediaType, Type: openai.InvalidRequest, Code: "unsupported_media_type",
				Message: fmt.Sprintf("charset %q: JSON is UTF-8", openai.Clip(c))}
		}
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(s.cfg.ReadTimeout)) // a recorder in tests has none
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.cfg.MaxBody))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return nil, &openai.Error{Status: http.StatusRequestEntityTooLarge, Type: openai.InvalidRequest, Code: "body_too_large",
			Message: fmt.Sprintf("the body is larger than %d bytes", large.Limit)}
	}
	if err != nil {
		return nil, &openai.Error{Status: http.StatusBadRequest, Type: openai.InvalidRequest, Code: "incomplete_body", Message: "the body ended early or took too long"}
	}
	_ = rc.SetReadDeadline(time.Time{}) // else it would end the wait for the output
	return body, nil
}
