package server

import "strings"

// stopper looks for stop strings in a text that comes in pieces, and holds back what may be the beginning of one (S3). What it returns
// depends on the text alone and not on the pieces: the text ends before the stop string that is complete first.
type stopper struct {
	stops []string // none empty
	held  string   // the longest end of the text so far that begins a stop string
}

// push adds text. It returns what can be sent, and the stop string that ended the text, if one did.
func (s *stopper) push(text string) (send, matched string) {
	if len(s.stops) == 0 {
		return text, ""
	}
	text = s.held + text
	begin, end := -1, len(text)+1
	for _, stop := range s.stops {
		// Of two that end at once the longer one counts: it began first.
		if i := strings.Index(text, stop); i >= 0 && (i+len(stop) < end || i+len(stop) == end && i < begin) {
			begin, end, matched = i, i+len(stop), stop
		}
	}
	if begin >= 0 {
		s.held = ""
		return text[:begin], matched
	}
	keep := 0
	for _, stop := range s.stops {
		keep = max(keep, overlap(text, stop))
	}
	s.held = text[len(text)-keep:]
	return text[:len(text)-keep], ""
}

// flush returns what was held back, at the end of the text.
func (s *stopper) flush() string {
	held := s.held
	s.held = ""
	return held
}

// overlap returns the length of the longest end of text that is a proper beginning of stop.
func overlap(text, stop string) int {
	for n := min(len(text), len(stop)-1); n > 0; n-- {
		if text[len(text)-n:] == stop[:n] {
			return n
		}
	}
	return 0
}
