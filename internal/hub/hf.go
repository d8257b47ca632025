package hub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	maxRedirects = 10
	// attempts is how often a request is made without a byte of progress before it is given up. With the
	// default waits that is some four seconds, so that a machine without a network hears of it soon.
	attempts = 4
	// maxRetryAfter bounds how long a server may tell us to wait.
	maxRetryAfter = time.Minute
)

// metadata is what the hub says about a file before it is fetched.
type metadata struct {
	commit string
	etag   string // SHA-256 of a large file, git's blob hash of a small one
	size   int64  // -1 if the server did not say
}

// newClient returns a client that follows no redirect by itself: see do.
func newClient(base *http.Client) *http.Client {
	var c http.Client
	if base != nil {
		c = *base
	} else {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.DialContext = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
		t.ResponseHeaderTimeout = 30 * time.Second
		c.Transport = t
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// fetchHF brings a file of the hub into the cache and returns its path there. If the hub cannot be
// reached, a file that is already in the cache serves.
func (h *Hub) fetchHF(ctx context.Context, ref Ref, p Progress) (string, error) {
	if h.cfg.HFCache == "" {
		return "", noDirectory(cacheVariable)
	}
	old, have := h.cached(ref)
	if h.cfg.HFOffline {
		if have {
			return old, nil
		}
		return "", &Error{Msg: ref.String() + " is not in the cache, and HF_HUB_OFFLINE is set", Hint: "unset HF_HUB_OFFLINE to fetch it"}
	}
	meta, err := h.head(ctx, ref)
	if err != nil {
		var u *url.Error
		if have && errors.As(err, &u) && ctx.Err() == nil {
			p.Note(fmt.Sprintf("%s cannot be reached; using the file in the cache", h.cfg.HFEndpoint))
			return old, nil
		}
		return "", h.netError(ref, err)
	}
	unlock, err := lockFile(ctx, h.blobLock(ref, meta.etag), func() {
		p.Note("waiting for another process that is fetching " + ref.String())
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := h.fetchBlob(ctx, ref, meta, p); err != nil {
		return "", h.netError(ref, err)
	}
	path, err := h.record(ref, meta)
	return path, explain(err)
}

// head asks the hub for a file's metadata. It does not follow a redirect to another host: the answer
// that sends there already carries everything, and the storage host knows nothing of commits.
func (h *Hub) head(ctx context.Context, ref Ref) (meta metadata, err error) {
	err = h.retry(ctx, func() (bool, error) {
		resp, err := h.do(ctx, http.MethodHead, ref.address(h.cfg.HFEndpoint), 0, true)
		if err != nil {
			return false, err
		}
		resp.Body.Close()
		if resp.StatusCode >= 400 {
			return false, h.statusError(ref, resp)
		}
		meta, err = readMetadata(resp.Header)
		return false, err
	})
	return meta, err
}

// readMetadata takes the metadata from the answer's headers, and only in the form that the cache can hold.
func readMetadata(hd http.Header) (metadata, error) {
	meta := metadata{commit: hd.Get("X-Repo-Commit"), size: -1}
	etag, size := hd.Get("X-Linked-Etag"), hd.Get("X-Linked-Size")
	if etag == "" {
		etag, size = hd.Get("Etag"), hd.Get("Content-Length")
	}
	meta.etag = strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
	if n, err := strconv.ParseInt(size, 10, 64); err == nil && n >= 0 {
		meta.size = n
	}
	if !commitPattern.MatchString(meta.commit) || !etagPattern.MatchString(meta.etag) {
		return metadata{}, &Error{
			Msg:  fmt.Sprintf("the answer does not look like the Hugging Face hub's: X-Repo-Commit %q, ETag %q", meta.commit, meta.etag),
			Hint: "check HF_ENDPOINT, and whether a proxy answers in its place",
		}
	}
	return meta, nil
}

// do makes one request, from byte offset on, and follows its redirects itself. The token goes to the
// endpoint's own scheme, host and port and nowhere else: net/http would also hand it to a subdomain
// or to another port, and storage hosts need no token. With sameHost, a redirect elsewhere is the answer.
func (h *Hub) do(ctx context.Context, method, address string, offset int64, sameHost bool) (*http.Response, error) {
	home, err := url.Parse(h.cfg.HFEndpoint)
	if err != nil || home.Host == "" {
		return nil, &Error{Msg: fmt.Sprintf("HF_ENDPOINT %q is not an address", h.cfg.HFEndpoint), Hint: "it looks like " + DefaultEndpoint}
	}
	for range maxRedirects {
		req, err := http.NewRequestWithContext(ctx, method, address, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("User-Agent", "draftlab")
		req.Header.Set("Accept-Encoding", "identity") // a compressed answer has another length and hash
		if offset > 0 {
			req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		}
		if h.cfg.HFToken != "" && sameOrigin(req.URL, home) {
			req.Header.Set("Authorization", "Bearer "+h.cfg.HFToken)
		}
		resp, err := h.client.Do(req)
		if err != nil {
			return nil, err
		}
		next, err := resp.Location()
		if resp.StatusCode < 300 || resp.StatusCode >= 400 || err != nil {
			return resp, nil
		}
		if sameHost && !sameOrigin(next, home) {
			return resp, nil
		}
		resp.Body.Close()
		if req.URL.Scheme == "https" && next.Scheme != "https" {
			return nil, &Error{Msg: fmt.Sprintf("%s redirects from https to %s, which is not safe", address, next.Redacted())}
		}
		address = next.String()
	}
	return nil, &Error{Msg: fmt.Sprintf("more than %d redirects; the last to %s", maxRedirects, address)}
}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Host, b.Host)
}

// retry calls f until it succeeds, fails for good, or has failed too often since it last reported progress.
func (h *Hub) retry(ctx context.Context, f func() (progress bool, err error)) error {
	for attempt := 1; ; attempt++ {
		progress, err := f()
		if progress {
			attempt = 1
		}
		wait, again := h.retryable(err, attempt)
		if err == nil || !again || attempt == attempts || ctx.Err() != nil {
			return err
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// retryable reports whether trying again may help and how long to wait first. A name that does not
// exist and an answer that will not change are not worth it.
func (h *Hub) retryable(err error, attempt int) (time.Duration, bool) {
	wait := h.cfg.Backoff(attempt)
	var status *statusError
	if errors.As(err, &status) {
		return max(wait, status.after), status.code >= 500 || status.code == http.StatusTooManyRequests || status.code == http.StatusRequestTimeout
	}
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		return 0, false
	}
	var u *url.Error
	return wait, errors.As(err, &u) || errors.Is(err, errBroken)
}

// statusError is an answer that is not the file.
type statusError struct {
	said  Error
	code  int
	after time.Duration // what Retry-After asked for, bounded
}

// Error returns the message.
func (e *statusError) Error() string { return e.said.Msg }

// Unwrap lets errors.As find the Error with its hint.
func (e *statusError) Unwrap() error { return &e.said }

// statusError says what an HTTP status means here and what to do about it.
func (h *Hub) statusError(ref Ref, resp *http.Response) error {
	e := &statusError{code: resp.StatusCode}
	e.said.Msg = fmt.Sprintf("%s: the hub answers %s", ref, resp.Status)
	if why := resp.Header.Get("X-Error-Message"); why != "" {
		e.said.Msg += ": " + printable(why)
	}
	page := fmt.Sprintf("%s/%s/%s", h.cfg.HFEndpoint, ref.Owner, ref.Repo)
	switch code := resp.Header.Get("X-Error-Code"); {
	case code == "GatedRepo" || resp.StatusCode == http.StatusForbidden:
		e.said.Hint = "the repository asks for consent: accept its terms at " + page + " and set HF_TOKEN to a token of that account that may read it"
	case resp.StatusCode == http.StatusUnauthorized && h.cfg.HFToken == "":
		e.said.Hint = "the repository does not exist or is private: check the spelling, or set HF_TOKEN to a token that may read it"
	case resp.StatusCode == http.StatusUnauthorized:
		e.said.Hint = "the token was refused or may not read this repository: check HF_TOKEN and the spelling of the name"
	case code == "RevisionNotFound":
		e.said.Hint = fmt.Sprintf("there is no revision %q; see %s", ref.Revision, page)
	case resp.StatusCode == http.StatusNotFound:
		e.said.Hint = "check the spelling of owner, repository and file; the files are listed at " + page + "/tree/" + ref.Revision
	case resp.StatusCode == http.StatusTooManyRequests:
		e.said.Hint = "wait a little and try again; with HF_TOKEN set the hub allows more"
	default:
		e.said.Hint = "try again later; what has arrived is kept"
	}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		e.after = min(time.Duration(s)*time.Second, maxRetryAfter)
	}
	return e
}

// printable keeps a server's text from moving the cursor or filling the screen.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	return s[:min(len(s), 300)]
}

// netError adds the remedy to a failure of the network.
func (h *Hub) netError(ref Ref, err error) error {
	var u *url.Error
	if errors.Is(err, context.Canceled) || !errors.As(err, &u) && !errors.Is(err, errBroken) {
		return explain(err)
	}
	return &Error{
		Msg:  fmt.Sprintf("%s: %s cannot be reached: %v", ref, h.cfg.HFEndpoint, err),
		Hint: "check the network, or set HF_ENDPOINT to a mirror; a file fetched by other means serves by its path. What has arrived is kept, and the next pull goes on from there",
		Err:  err,
	}
}
