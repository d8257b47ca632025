package enginelog

import (
	"math"
	"strconv"
	"strings"
)

// The keys that the summary reads. All others are kept in the lines' Values.
const (
	keyRunning    = "#running-req"
	keyQueue      = "#queue-req"
	keyThroughput = "gen throughput (token/s)"
	keyAccept     = "accept len"
	keyGraph      = "cuda graph"
	keyNewTokens  = "#new-token"
	keyCached     = "#cached-token"
	keyInput      = "input throughput (token/s)"

	keyVLLMThroughput = "Avg generation throughput"
	keyVLLMRunning    = "Running"
	keyVLLMWaiting    = "Waiting"
	keyVLLMPending    = "Pending" // of version 0 engines, for Waiting
	keyVLLMUsage      = "GPU KV cache usage"
	keyVLLMUsageCPU   = "CPU KV cache usage" // of a server on a CPU; of version 0 engines on a GPU, swapped-out blocks
	keyVLLMPreempted  = "Preemptions"
	keyVLLMAccept     = "Mean acceptance length"
	keyVLLMDrafted    = "Drafted"
	keyVLLMPosition   = "Per-position acceptance rate" // Number has the first position's

	keyIterationMS  = "iteration elapsed time"
	keyIterationGen = "generation requests"
	keyIterationCtx = "context requests"
)

// usageKeys are the shares of key/value memory in use. Hybrid models have several, and the fullest one counts.
var usageKeys = []string{"token usage", "full token usage", "swa token usage", "mamba usage"}

// tokenKeys are the tokens that running requests hold in key/value memory.
var tokenKeys = []string{"#token", "#full token"}

// Values are a line's keys and values in their order.
type Values []Value

// Value is one key with its value as written.
type Value struct{ Key, Text string }

// Text returns the value of a key.
func (v Values) Text(key string) (string, bool) {
	for _, p := range v {
		if p.Key == key {
			return p.Text, true
		}
	}
	return "", false
}

// Number returns the number at the beginning of a key's value, whatever unit follows. It must be finite and not negative:
// no figure of these logs can be.
func (v Values) Number(key string) (float64, bool) {
	s, ok := v.Text(key)
	if !ok {
		return 0, false
	}
	end := 0
	for end < len(s) && strings.IndexByte("0123456789.eE+-", s[end]) >= 0 {
		end++
	}
	x, err := strconv.ParseFloat(s[:end], 64)
	if err != nil || math.IsInf(x, 0) || math.IsNaN(x) || x < 0 {
		return 0, false
	}
	return x, true
}

// parseValues takes "key: value, key: value" apart. A piece without a colon belongs to the value before it: vLLM's acceptance
// by position is a list.
func parseValues(s string) Values {
	var out Values
	for piece := range strings.SplitSeq(s, ",") {
		piece = strings.TrimSpace(piece)
		key, text, ok := strings.Cut(piece, ":")
		switch {
		case ok && key != "":
			out = append(out, Value{strings.TrimSpace(key), strings.TrimSpace(text)})
		case piece != "" && len(out) > 0:
			out[len(out)-1].Text += ", " + piece
		}
	}
	return out
}

// parseCounts takes "3 context requests, 20 context tokens, elapsed time: 2 ms" apart: pieces without a colon have the number in front.
func parseCounts(s string) Values {
	var out Values
	for piece := range strings.SplitSeq(s, ",") {
		piece = strings.TrimSpace(piece)
		if key, text, ok := strings.Cut(piece, ":"); ok {
			out = append(out, Value{strings.TrimSpace(key), strings.TrimSpace(text)})
		} else if number, key, ok := strings.Cut(piece, " "); ok {
			out = append(out, Value{key, number})
		}
	}
	return out
}
