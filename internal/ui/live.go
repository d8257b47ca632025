package ui

import (
	"fmt"
	"io"
	"strings"

	"charm.land/lipgloss/v2"
)

// Live shows a text in place on a terminal: each call of Show overwrites what the one before it wrote. It is not safe for use by
// several goroutines at once.
type Live struct {
	w     io.Writer
	width int // columns of the terminal
	lines int // of the terminal that the text takes
}

// NewLive returns a Live that writes to a terminal of so many columns.
func NewLive(w io.Writer, width int) *Live { return &Live{w: w, width: width} }

// Show replaces the text. It must be clean but for line breaks, as [Table] writes it.
func (l *Live) Show(text string) error {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	up := ""
	if l.lines > 0 {
		up = fmt.Sprintf("\x1b[%dA\r\x1b[J", l.lines) // up, and erase what is below (ECMA-48 CUU, ED)
	}
	l.lines = 0
	for line := range strings.Lines(text) {
		l.lines += 1 + max(0, lipgloss.Width(line)-1)/l.width // a line that is too wide goes on in the next one
	}
	_, err := io.WriteString(l.w, up+text)
	return err
}

// Bar draws a share from 0 to 1 as a bar of so many characters, in eighths on a terminal and in whole # elsewhere.
func Bar(share float64, width int, terminal bool) string {
	share = min(max(share, 0), 1)
	if !terminal {
		return strings.Repeat("#", int(share*float64(width)+.5))
	}
	eighths := int(share*float64(8*width) + .5)
	bar := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		bar += string(rune('█' + 8 - rest)) // U+2588 is a full block, U+258F an eighth
	}
	return bar
}
