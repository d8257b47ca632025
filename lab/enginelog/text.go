package enginelog

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// unwrap returns the line inside a record of docker's json-file driver, and any other line as it is.
func unwrap(raw []byte) []byte {
	raw = bytes.TrimLeft(raw, " \x00")
	if !bytes.HasPrefix(raw, []byte(`{"log":`)) {
		return raw
	}
	var record struct {
		Log *string `json:"log"`
	}
	if json.Unmarshal(raw, &record) != nil || record.Log == nil {
		return raw
	}
	return []byte(*record.Log)
}

// plain returns text without escape sequences and control characters, as valid UTF-8. A rotated log may begin with
// thousands of NULs; they go, too.
func plain(raw []byte) string {
	if !bytes.ContainsFunc(raw, control) && utf8.Valid(raw) {
		return strings.TrimSpace(string(raw))
	}
	var b strings.Builder
	for len(raw) > 0 {
		if n := escapeLen(raw); n > 0 {
			raw = raw[n:]
			continue
		}
		r, n := utf8.DecodeRune(raw)
		raw = raw[n:]
		switch {
		case r == '\t':
			b.WriteByte(' ')
		case !control(r):
			b.WriteRune(r) // broken bytes become U+FFFD
		}
	}
	return strings.TrimSpace(b.String())
}

func control(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }

// escapeLen is the length of the terminal's escape sequence at the beginning of b, 0 if there is none: ESC [ parameters letter
// (ECMA-48 section 5.4), ESC ] text up to BEL or ESC \ (a title), or ESC and one byte.
func escapeLen(b []byte) int {
	if len(b) < 2 || b[0] != 0x1b {
		return 0
	}
	switch b[1] {
	case '[':
		for i := 2; i < len(b); i++ {
			if b[i] >= 0x40 && b[i] <= 0x7e {
				return i + 1
			}
			if b[i] < 0x20 || b[i] > 0x7e {
				return i
			}
		}
		return len(b)
	case ']':
		for i := 2; i < len(b); i++ {
			if b[i] == 0x07 {
				return i + 1
			}
			if b[i] == 0x1b {
				return i // ESC \ goes as a sequence of its own
			}
		}
		return len(b)
	}
	return 2
}
