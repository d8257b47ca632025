package tokenizer

import (
	"fmt"
	"strings"
)

// maxAddedLen bounds the length of an added token in bytes: searching costs up to that much per character of
// the text. The longest seen in a published vocabulary is under 100.
const maxAddedLen = 512

// An added token is matched in the text before anything else is done to it.
type added struct {
	id      int32
	text    string
	special bool // a control token: skipped on decoding, parsed on encoding only if asked
	lstrip  bool // swallows white space before it
	rstrip  bool // swallows white space behind it
	// normalized tokens are matched after the others and after the normaliser ran, in what both left over.
	normalized bool
}

// A matcher finds added tokens, the longest at the leftmost place first, as Hugging Face does.
type matcher struct {
	tokens []added
	nodes  []trieNode // nodes[0] is the root
	first  [256]bool  // the bytes that some token starts with
}

type trieNode struct {
	edges []trieEdge
	token int32 // index into tokens, -1 if no token ends here
}

type trieEdge struct {
	b  byte
	to int32
}

func newMatcher(tokens []added) (*matcher, error) {
	m := &matcher{tokens: tokens, nodes: []trieNode{{token: -1}}}
	for i, t := range tokens {
		if t.text == "" || len(t.text) > maxAddedLen {
			return nil, fmt.Errorf("tokenizer: added token %d: its text is %d bytes long; allowed are 1 to %d", t.id, len(t.text), maxAddedLen)
		}
		m.first[t.text[0]] = true
		at := int32(0)
		for j := range len(t.text) {
			to := m.step(at, t.text[j])
			if to < 0 {
				to = int32(len(m.nodes))
				m.nodes = append(m.nodes, trieNode{token: -1})
				m.nodes[at].edges = append(m.nodes[at].edges, trieEdge{t.text[j], to})
			}
			at = to
		}
		if m.nodes[at].token >= 0 {
			return nil, fmt.Errorf("tokenizer: added token %q: listed twice, or twice the same once normalised", t.text)
		}
		m.nodes[at].token = int32(i)
	}
	return m, nil
}

// step follows the edge b out of node at, -1 if there is none.
func (m *matcher) step(at int32, b byte) int32 {
	for _, e := range m.nodes[at].edges {
		if e.b == b {
			return e.to
		}
	}
	return -1
}

// find returns the leftmost longest token in s at or behind from: its place and index, or index -1.
func (m *matcher) find(s string, from int) (start, end, token int) {
	for i := from; i < len(s); i++ {
		if !m.first[s[i]] {
			continue
		}
		token = -1
		for at, j := int32(0), i; j < len(s); j++ {
			if at = m.step(at, s[j]); at < 0 {
				break
			}
			if t := m.nodes[at].token; t >= 0 {
				token, end = int(t), j+1
			}
		}
		if token >= 0 {
			return i, end, token
		}
	}
	return len(s), len(s), -1
}

// split cuts s at the added tokens and calls plain and id for the parts in order. A special token counts as
// text unless special is set, but hides shorter tokens inside it all the same (T1).
func (m *matcher) split(s string, special bool, plain func(string), id func(int32)) {
	done := 0
	for at := 0; ; {
		start, end, i := m.find(s, at)
		if i < 0 {
			break
		}
		at = end
		t := m.tokens[i]
		if t.special && !special {
			continue
		}
		if t.lstrip {
			start = max(done, len(strings.TrimRightFunc(s[:start], isSpace)))
		}
		if t.rstrip {
			end = len(s) - len(strings.TrimLeftFunc(s[end:], isSpace))
		}
		if done < start {
			plain(s[done:start])
		}
		id(t.id)
		done = end
	}
	if done < len(s) {
		plain(s[done:])
	}
}

func isSpace(r rune) bool { return contains(spaceRanges, r) }
