// Package enginelog reads the logs of SGLang, vLLM and llama.cpp servers: what an engineer has when a server is old and cannot be
// restarted. [Parse] makes a [Line] of one line of text, [Summary] adds lines up, and its [Report] says what they show: accept
// length, throughput, the time of a cycle, decode batches without a CUDA graph, queue and cache pressure, what the start-up
// took, and what went wrong.
//
// The order of keys, their number and the punctuation around them changed with almost every version, so lines are read
// as keys and values; keys that the package does not know are kept. A line that it cannot read is counted and never an error.
// "accept rate" is deliberately not summed up: SGLang has defined it in three ways. The package knows neither files nor
// clocks: times are the log's own.
package enginelog

import (
	"regexp"
	"strings"
	"time"
)

// Kind is what a line says.
type Kind uint8

// The kinds of lines.
const (
	Other     Kind = iota // none of the following
	Decode                // SGLang's "Decode batch"
	Prefill               // SGLang's "Prefill batch"
	Stats                 // vLLM's "Avg prompt throughput", of an interval (10 s unless configured)
	Spec                  // vLLM's "SpecDecoding metrics", of the same interval as the Stats before it
	Iteration             // vLLM's "Iteration(n)", of one step
	Answer                // llama.cpp's "eval time", of one answer
	Drafts                // llama.cpp's "draft acceptance", of the answer before it
	Access                // an answered HTTP request
	Milestone             // a step of the start-up; Name says which
	Fault                 // something went wrong; Name says which class
	Notice                // the server changed what it was told, or lost work; Name says which
	Damaged               // a batch or statistics line that lacks what it must have
)

// Line is one line of a log.
type Line struct {
	Kind     Kind
	Time     time.Time     // as written, taken as UTC; vLLM writes no year, which is then 0; zero if the line has none
	Ranks    string        // whose line it is: "TP0", "DP1 TP8", "Engine 000"; "" if it does not say
	VLLM     bool          // it has vLLM's prefix or wording
	SGLang   bool          // it has SGLang's prefix
	LlamaCPP bool          // it has llama.cpp's wording
	Text     string        // the message, without prefixes, colours and control characters
	Values   Values        // of batch, statistics and iteration lines
	Name     string        // of milestones, faults and notices; of Access, method and path
	Took     time.Duration // what a milestone says that it took, 0 if nothing
	Status   int           // of Access, the HTTP status
}

// prefixLimit is how far into a line the engine's own prefix may begin, behind those of docker, journald, Kubernetes, Ray
// and the like. The longest seen, of "kubectl logs --prefix --timestamps", has about 150 bytes.
const prefixLimit = 256

var (
	sglangPrefix = regexp.MustCompile(`\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?)((?: [A-Z]+\d+)*)\]\s*`)
	vllmPrefix   = regexp.MustCompile(`\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?) \[?[\w./-]+:\d+\]\s*`)
	// The usual prefix of Python programs that give SGLang their own format, as verl and others do that run it inside.
	otherPrefix = regexp.MustCompile(`(?:^|\s)(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?) (?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b[\w\s-]*\[[\w./-]+:\d+\]:?\s+`)
	vllmEngine  = regexp.MustCompile(`^(Engine \d+): `)
	batchHead   = regexp.MustCompile(`^(Decode|Prefill) batch(?: \[\d+\])?[.,]?\s+`)
	iterHead    = regexp.MustCompile(`^Iteration\(\d+\): `)
	access      = regexp.MustCompile(`\d(?::\d+)? - "([A-Z]{1,16}) (\S+) HTTP/[\d.]+" (\d{3})\b`)
)

// Parse reads one line, without its line break. Any bytes will do.
func Parse(raw []byte) Line {
	l := Line{Text: plain(unwrap(raw))}
	head := l.Text[:min(len(l.Text), prefixLimit)]
	// What stands in quotation marks is somebody's text that quotes a line, not a line.
	if m := sglangPrefix.FindStringSubmatchIndex(head); m != nil && !strings.ContainsAny(head[:m[0]], `"'`) {
		l.SGLang = true
		l.Time = parseTime("2006-01-02 15:04:05", head[m[2]:m[3]])
		l.Ranks = strings.TrimSpace(head[m[4]:m[5]])
		l.Text = l.Text[m[1]:]
	} else if m := vllmPrefix.FindStringSubmatchIndex(head); m != nil && !strings.ContainsAny(head[:m[0]], `"'`) {
		l.VLLM = true
		l.Time = parseTime("01-02 15:04:05", head[m[2]:m[3]])
		l.Text = l.Text[m[1]:]
	} else if m := otherPrefix.FindStringSubmatchIndex(head); m != nil && !strings.ContainsAny(head[:m[0]], `"'`) {
		l.Time = parseTime("2006-01-02 15:04:05", head[m[2]:m[3]])
		l.Text = l.Text[m[1]:]
		l.SGLang = batchHead.MatchString(l.Text)
	}
	l.classify()
	return l
}

// parseTime reads a time with optional decimals of the second; the zero time if it is none.
func parseTime(layout, s string) time.Time {
	t, err := time.Parse(layout, strings.Replace(s, ",", ".", 1)) // Parse takes decimals that the layout does not have
	if err != nil {
		return time.Time{}
	}
	return t
}

// classify says what the message is, and takes it apart.
func (l *Line) classify() {
	if m := batchHead.FindStringSubmatchIndex(l.Text); m != nil {
		l.Kind = Decode
		if l.Text[m[2]:m[3]] == "Prefill" {
			l.Kind = Prefill
		}
		l.Values = parseValues(l.Text[m[1]:])
		l.demand()
		return
	}
	body := l.Text
	if m := vllmEngine.FindStringSubmatchIndex(body); m != nil {
		l.Ranks, body = body[m[2]:m[3]], body[m[1]:]
	}
	switch {
	case strings.HasPrefix(body, "Avg prompt throughput:"):
		l.Kind, l.Values = Stats, parseValues(body)
	case strings.HasPrefix(body, "SpecDecoding metrics:"):
		l.Kind, l.Values = Spec, parseValues(strings.TrimPrefix(body, "SpecDecoding metrics:"))
	case iterHead.MatchString(body):
		l.Kind, l.Values = Iteration, parseCounts(body[len(iterHead.FindString(body)):])
	default:
		l.classifyText()
		return
	}
	l.VLLM = true
	l.demand()
}

// classifyText finds what is told in words.
func (l *Line) classifyText() {
	if quoted(l.Text) {
		return
	}
	if l.classifyLlama() {
		return
	}
	if m := access.FindStringSubmatch(l.Text); m != nil {
		path, _, _ := strings.Cut(m[2], "?")
		l.Kind, l.Name = Access, m[1]+" "+path
		l.Status = int(m[3][0]-'0')*100 + int(m[3][1]-'0')*10 + int(m[3][2]-'0')
		return
	}
	if class, ok := Classify(l.Text); ok {
		l.Kind, l.Name = Fault, class
		return
	}
	if name, took, ok := milestone(l.Text); ok {
		l.Kind, l.Name, l.Took = Milestone, name, took
		l.VLLM = l.VLLM || strings.Contains(l.Text, "vLLM")
		return
	}
	for _, n := range notices {
		if strings.Contains(l.Text, n.text) {
			l.Kind, l.Name = Notice, n.name
			return
		}
	}
}

// demand makes a line Damaged if it lacks the figures that all versions write.
func (l *Line) demand() {
	need := map[Kind][]string{
		Decode: {keyRunning, keyThroughput}, Prefill: {keyNewTokens, keyCached}, Stats: {keyVLLMThroughput, keyVLLMRunning},
		Spec: {keyVLLMAccept}, Iteration: {keyIterationMS, keyIterationGen},
	}
	for _, key := range need[l.Kind] {
		if _, ok := l.Values.Number(key); !ok {
			l.Kind = Damaged
			return
		}
	}
}

// quoted reports a line that holds the text of a request, in which anything may stand.
func quoted(text string) bool {
	return strings.HasPrefix(text, "Receive: ") || strings.HasPrefix(text, "Finish: ") || strings.HasPrefix(text, "Received request ")
}
