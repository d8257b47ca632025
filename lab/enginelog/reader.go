package enginelog

import (
	"bufio"
	"bytes"
	"io"
)

// maxLine is what is kept of a line. The longest that says something, SGLang's list of all settings, has some 20 kB; the
// rest of a longer one is passed over.
const maxLine = 256 << 10

// Reader takes a stream apart into lines, which end with LF, CRLF or CR (progress bars), whatever their length.
type Reader struct {
	r     *bufio.Reader
	line  []byte // of the line so far
	more  []byte // lines between CRs that wait
	cut   bool
	whole bool
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10)} }

// Raw is a line as it stands in the log.
type Raw struct {
	Text  []byte // valid until the next call; without the line break
	Cut   bool   // it was longer than what is kept
	Whole bool   // a line break followed; only the last line can lack one, and may be half written
}

// Next returns the next line that is not empty. The error is io.EOF at the end, or the stream's own. After io.EOF of a file
// that grows, Next may be called again: a line whose break is still to come has then been returned with Whole unset, so
// that a follower calls Next only when Pending reports false or more has come.
func (r *Reader) Next() (Raw, error) {
	for {
		for len(r.more) > 0 {
			text, rest, _ := bytes.Cut(r.more, []byte("\r"))
			r.more = rest
			if len(bytes.TrimSpace(text)) > 0 {
				return Raw{Text: text, Cut: r.cut && len(rest) == 0, Whole: r.whole || len(rest) > 0}, nil
			}
		}
		if err := r.fill(); err != nil {
			return Raw{}, err
		}
	}
}

// fill reads up to the next LF.
func (r *Reader) fill() error {
	r.line, r.cut, r.whole = r.line[:0], false, false
	for {
		part, err := r.r.ReadSlice('\n')
		room := maxLine - len(r.line)
		if len(part) > room {
			part, r.cut = part[:room], true
		}
		r.line = append(r.line, part...)
		switch err {
		case bufio.ErrBufferFull:
			continue
		case nil:
			r.whole = true
		default:
			if len(r.line) == 0 {
				return err
			}
		}
		r.more = bytes.TrimRight(r.line, "\r\n")
		return nil
	}
}
