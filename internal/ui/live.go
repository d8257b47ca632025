package ui

import (
	"fmt"
	"io"
	"strings"
)

// Live shows a text in place on a terminal: each call of Show overwrites what the one before it wrote. It is not safe for use by
// several goroutines at once.
type Live struct {
	w     io.Writer
	lines int // that the text on the screen has
}

// NewLive returns a Live that writes to a terminal.
func NewLive(w io.Writer) *Live { return &Live{w: w} }

// Show replaces the text. It must be clean but for line breaks, as [Table] writes it; a line that is wider than the terminal
// leaves a rest behind.
func (l *Live) Show(text string) error {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	up := ""
	if l.lines > 0 {
		up = fmt.Sprintf("\x1b[%dA\r\x1b[J", l.lines) // up, and erase what is below (ECMA-48 CUU, ED)
	}
	l.lines = strings.Count(text, "\n")
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
