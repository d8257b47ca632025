package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// errBroken marks a transfer that stopped early; trying again goes on where it stopped.
var errBroken = errors.New("the transfer broke off")

// fetchBlob brings the content named by meta.etag into the cache. The caller holds the blob's lock.
func (h *Hub) fetchBlob(ctx context.Context, ref Ref, meta metadata, p Progress) error {
	blob := h.blobFile(ref, meta.etag)
	if fi, err := os.Stat(blob); err == nil && (meta.size < 0 || fi.Size() == meta.size) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(blob), 0o755); err != nil {
		return err
	}
	resumed, err := h.fetchPart(ctx, ref, meta, blob, p)
	if errors.Is(err, ErrChecksum) && resumed {
		// Some clients fill their unfinished files out of order; such a start cannot be continued.
		p.Note("the unfinished file in the cache was of no use; starting again")
		_, err = h.fetchPart(ctx, ref, meta, blob, p)
	}
	return err
}

// fetchPart continues the blob's unfinished file, or begins one, and gives it its name when it is
// complete and right. It reports whether there was something to continue.
func (h *Hub) fetchPart(ctx context.Context, ref Ref, meta metadata, blob string, p Progress) (resumed bool, err error) {
	part := blob + ".incomplete" // the name that other clients use, too
	f, err := os.OpenFile(part, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return false, err
	}
	defer f.Close() // a second Close, after commit, is harmless
	have, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return false, err
	}
	resumed = have > 0
	p.Start("downloading "+filepath.Base(filepath.FromSlash(ref.File)), meta.size)
	err = h.transfer(ctx, ref, meta, f, p)
	p.Finish(err)
	if err != nil {
		return resumed, err // the part stays for the next time
	}
	if err := check(ctx, f, ref, meta, p); err != nil {
		if errors.Is(err, ErrChecksum) {
			f.Close()
			os.Remove(part) // a leftover only costs the next pull one more check
		}
		return resumed, err
	}
	return resumed, commit(f, part, blob)
}

// transfer appends to f until it has everything. Attempts count only while nothing arrives, so that a
// bad line that still delivers gets there in the end.
func (h *Hub) transfer(ctx context.Context, ref Ref, meta metadata, f *os.File, p Progress) error {
	return h.retry(ctx, func() (progress bool, err error) {
		at, err := f.Seek(0, io.SeekEnd)
		if err != nil {
			return false, err
		}
		if at == meta.size {
			p.Set(at)
			return false, nil
		}
		if at > meta.size { // left by a file of another size, or the size is unknown
			at = 0
		}
		n, err := h.transferOnce(ctx, ref, meta, f, at, p)
		return n > 0, err
	})
}

// transferOnce makes one request for the bytes from at on, appends them, and returns their number.
func (h *Hub) transferOnce(ctx context.Context, ref Ref, meta metadata, f *os.File, at int64, p Progress) (n int64, err error) {
	reqCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := h.do(reqCtx, http.MethodGet, ref.address(h.cfg.HFEndpoint), at, false)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if at, err = h.startOf(ref, resp, at, meta.size); err != nil {
		return 0, err
	}
	if err := f.Truncate(at); err != nil {
		return 0, err
	}
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return 0, err
	}
	stall := time.AfterFunc(h.cfg.Stall, cancel)
	defer stall.Stop()
	body := io.Reader(resp.Body)
	if meta.size >= 0 {
		body = io.LimitReader(body, meta.size-at)
	}
	n, err = io.Copy(f, &counter{ctx: reqCtx, r: body, done: at, set: func(done int64) {
		stall.Reset(h.cfg.Stall)
		p.Set(done)
	}})
	return n, transferEnd(ctx, err, at+n, meta.size)
}

// startOf returns the offset at which the answer's body begins: where we asked, or 0 from a server
// that knows no ranges.
func (h *Hub) startOf(ref Ref, resp *http.Response, at, size int64) (int64, error) {
	switch resp.StatusCode {
	case http.StatusOK:
		return 0, nil
	case http.StatusPartialContent:
		var first, last, total int64
		n, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &total)
		if n != 3 || err != nil || first != at || total != size {
			return 0, &Error{
				Msg:  fmt.Sprintf("%s: the server answered %q to a request for the bytes from %d on", ref, resp.Header.Get("Content-Range"), at),
				Hint: "a proxy or mirror mixes up ranges: try another HF_ENDPOINT",
			}
		}
		return at, nil
	}
	return 0, h.statusError(ref, resp)
}

// transferEnd tells a complete transfer from a broken one, and our disk's faults and the user's
// interrupt from the network's.
func transferEnd(ctx context.Context, err error, have, size int64) error {
	var disk *os.PathError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &disk):
		return err
	case err != nil:
		return fmt.Errorf("%w after %d bytes: %v", errBroken, have, err)
	case size >= 0 && have < size:
		return fmt.Errorf("%w after %d of %d bytes", errBroken, have, size)
	}
	return nil
}

// check compares the content with the hash by which the hub names it: SHA-256 for large files, git's
// hash of a blob for small ones. A name of another kind cannot be checked, and then the length has to do.
func check(ctx context.Context, f *os.File, ref Ref, meta metadata, p Progress) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	var sum hash.Hash
	switch len(meta.etag) {
	case sha256.Size * 2:
		sum = sha256.New()
	case sha1.Size * 2:
		sum = sha1.New()
		fmt.Fprintf(sum, "blob %d\x00", size)
	default:
		p.Note(fmt.Sprintf("%s: the hub gives no hash; only the length was checked", ref))
		return nil
	}
	if err := hashInto(ctx, sum, f, "checking "+filepath.Base(filepath.FromSlash(ref.File)), size, p); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != meta.etag {
		return checksumError(ref.String(), got, meta.etag)
	}
	return nil
}

// hashInto reads the whole file into sum.
func hashInto(ctx context.Context, sum hash.Hash, f *os.File, label string, size int64, p Progress) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	p.Start(label, size)
	_, err := io.Copy(sum, &counter{ctx: ctx, r: f, set: p.Set})
	p.Finish(err)
	return err
}
