package weights

import (
	"encoding/binary"
	"fmt"
)

// cursor reads little-endian fields from the front of a file. The first failure sticks: later
// reads return zeros, so a caller checks err once for a group of fields and in every loop.
type cursor struct {
	file string
	data []byte // what may be read
	pos  int    // next byte
	err  error
}

// fail records a problem at byte off unless there is one already.
func (c *cursor) fail(off int, format string, args ...any) {
	if c.err == nil {
		c.err = &FormatError{File: c.file, Offset: int64(off), Problem: fmt.Sprintf(format, args...)}
	}
}

// take returns the next n bytes, or nil with err set if fewer are left.
func (c *cursor) take(n uint64, what string) []byte {
	if c.err != nil {
		return nil
	}
	if left := len(c.data) - c.pos; n > uint64(left) {
		c.fail(c.pos, "%s needs %d bytes, and %d are left%s", what, n, left, c.where())
		return nil
	}
	b := c.data[c.pos : c.pos+int(n)]
	c.pos += int(n)
	return b
}

// where says what it is that ended.
func (c *cursor) where() string {
	if len(c.data) == maxGGUFHeader {
		return " of the largest header that is read"
	}
	return " in the file (is it cut short? fetch it again)"
}

func (c *cursor) u32(what string) uint32 {
	if b := c.take(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64(what string) uint64 {
	if b := c.take(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// text reads a length and that many bytes, at most limit, and copies them.
func (c *cursor) text(limit uint64, what string) string {
	start := c.pos
	n := c.u64(what)
	if c.err == nil && n > limit {
		c.fail(start, "%s of %d bytes, more than %d", what, n, limit)
	}
	return string(c.take(n, what))
}
