package profile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"draftlab/lab/scrape"
)

// conn asks one server.
type conn struct {
	base, key string
	http      *http.Client
	plainMs   float64 // of a plain step, as the user says; 0 if not
}

// statusError is an answer other than 200.
type statusError struct {
	url    string
	status int
	body   string
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("%s answered %d %s", e.url, e.status, http.StatusText(e.status))
	if e.body != "" {
		text += ": " + e.body
	}
	return text
}

// Remedy names the key, where it is what lacks.
func (e *statusError) Remedy() string {
	switch e.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "put the server's key into DRAFTLAB_API_KEY"
	case http.StatusServiceUnavailable:
		return "wait until the server has loaded its model"
	}
	return ""
}

// maxBody bounds an answer in JSON: 1000 records of the ledger have half a megabyte.
const maxBody = 64 << 20

// do sends a request; the caller closes the body of an answer of 200.
func (c *conn) do(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, in)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300)) // what there is of it
		_ = resp.Body.Close()
		return nil, &statusError{c.base + path, resp.StatusCode, strings.Join(strings.Fields(strings.ToValidUTF8(string(text), "?")), " ")}
	}
	return resp.Body, nil
}

func (c *conn) get(ctx context.Context, path string) (io.ReadCloser, error) {
	return c.do(ctx, http.MethodGet, path, nil)
}

// getJSON reads an answer. Fields that it does not know are of a newer server.
func (c *conn) getJSON(ctx context.Context, path string, into any) error {
	body, err := c.get(ctx, path)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(io.LimitReader(body, maxBody)).Decode(into); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &statusError{url: c.base + path, status: http.StatusOK, body: "not the JSON that was expected: " + err.Error()}
	}
	return nil
}

func fetchMetrics(ctx context.Context, c *conn) (*scrape.Metrics, error) {
	body, err := c.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	m, err := scrape.Parse(body)
	if err != nil {
		return nil, fmt.Errorf("%s/metrics: %w", c.base, err)
	}
	return m, nil
}
