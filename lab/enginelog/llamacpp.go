package enginelog

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The keys of llama.cpp's lines about an answer. A server that speculates writes two for each: the time of its tokens, then its drafts.
const (
	keyEvalMS      = "eval time"
	keyEvalTokens  = "tokens"
	keyDraftLength = "mean acceptance length" // from mid-2026, of cycles that drafted
	keyDraftFirst  = "acceptance rate per position"
	keyDraftTaken  = "accepted"
	keyDraftMade   = "generated"
)

var (
	evalTime   = regexp.MustCompile(`(?:^|[\s|])eval time = *([\d.]+) ms / *(\d+) tokens\b`)
	draftShare = regexp.MustCompile(`(?:^|[\s|])draft acceptance(?: rate)? = *[\d.]+ \( *(\d+) accepted / *(\d+) generated\)(?:, mean acceptance length = *([\d.]+))?(?:, acceptance rate per position = \(([\d.]+))?`)
)

// classifyLlama reads llama.cpp's lines about an answer.
func (l *Line) classifyLlama() bool {
	if m := evalTime.FindStringSubmatch(l.Text); m != nil && !strings.Contains(l.Text, "prompt eval time") {
		l.Kind, l.LlamaCPP, l.Values = Answer, true, Values{{keyEvalMS, m[1]}, {keyEvalTokens, m[2]}}
		return true
	}
	if m := draftShare.FindStringSubmatch(l.Text); m != nil {
		l.Kind, l.LlamaCPP, l.Values = Drafts, true, Values{{keyDraftTaken, m[1]}, {keyDraftMade, m[2]}}
		for i, key := range []string{keyDraftLength, keyDraftFirst} {
			if m[3+i] != "" {
				l.Values = append(l.Values, Value{key, m[3+i]})
			}
		}
		return true
	}
	l.LlamaCPP = strings.Contains(l.Text, "| stop processing")
	return false
}

// answer adds a line about an answer. Its drafts come behind it; where they do not, it had none.
func (s *Summary) answer(l *Line) {
	g := s.group("")
	if l.Kind == Answer {
		g.settleAnswer()
		g.Lines++
		g.answered = l
		return
	}
	g.drafted++
	taken, _ := l.Values.Number(keyDraftTaken) // the pattern has them
	made, _ := l.Values.Number(keyDraftMade)
	g.taken.add(taken / made) // not a number if none was made
	tokens, ms, ok := g.lastAnswer()
	g.answered = nil
	accept, told := l.Values.Number(keyDraftLength)
	if ok { // of all cycles: each gives a token beside those accepted, and the prompt's pass gives one
		accept, told = 1+taken/max(1, tokens-1-taken), true
	}
	if told {
		g.accept.add(accept)
	}
	if x, has := l.Values.Number(keyDraftFirst); has {
		g.first.add(x)
	}
	if ok {
		g.rates(1e3*tokens/ms, 1, accept, true, true)
	}
}

// lastAnswer is what the last answer took whose drafts may still come.
func (g *group) lastAnswer() (tokens, ms float64, ok bool) {
	if g.answered == nil {
		return 0, 0, false
	}
	tokens, _ = g.answered.Values.Number(keyEvalTokens)
	ms, _ = g.answered.Values.Number(keyEvalMS)
	return tokens, ms, tokens > 1 && ms > 0
}

// settleAnswer adds the last answer as one without drafts.
func (g *group) settleAnswer() {
	if tokens, ms, ok := g.lastAnswer(); ok {
		g.rates(1e3*tokens/ms, 1, 1, false, true)
	}
	g.answered = nil
}

// idle says that a server with a drafter does not use it, "" if that does not show.
func (s *Summary) idle() string {
	g := s.groups[""]
	loaded := slices.ContainsFunc(s.notices, func(m Message) bool { return m.Name == draftLoaded })
	if s.llamacpp == 0 || !loaded || g == nil || g.drafted > 0 || g.Lines == 0 {
		return ""
	}
	return fmt.Sprintf("a draft model was loaded, and none of %d answers had drafts: llama.cpp drafts only if --spec-type says how (draft-simple, draft-eagle3, …), whatever model it is given", g.Lines)
}

// draftLoaded is the notice that llama.cpp has read the model of --spec-draft-model, whether or not it will use it.
const draftLoaded = "draft model loaded"
