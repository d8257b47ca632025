package target

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"draftlab/lab/scrape"
	"draftlab/lab/trial"
)

// sglangKind is SGLang, from 0.4.6 on. How it drafts is fixed at its start.
type sglangKind struct{}

var sglangTraits = traits{
	name: "sglang", command: []string{"python3", "-m", "sglang.launch_server"}, ready: firedUp, doomed: true,
	reserved: []string{"port", "host", "model-path", "model", "speculative-algorithm", "speculative-draft-model-path", "speculative-draft-model",
		"speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens",
		"speculative-dflash-block-size", "speculative-dspark-block-size", "api-key"},
}

func (sglangKind) traits() traits { return sglangTraits }

// algorithm is SGLang's name of a drafter: eagle3 is EAGLE3, and so on.
func algorithm(drafter string) string { return strings.ToUpper(drafter) }

// method is one of SGLang's ways of drafting.
type method struct {
	came    version // with this one; zero is before all that are supported
	tokens  bool    // it is told of draft tokens alone: no steps, no branches
	block   bool    // it drafts all tokens in one pass, which is a chain
	drafter bool    // it does not come up without a drafter of its own
}

// algorithms are those of SGLang's that drafts of steps, topk and tokens say all about. NEXTN is SGLang's other word for EAGLE, with layers
// of the target's own; DSPARK's drafter may be a part of the target as well.
var algorithms = map[string]method{
	"EAGLE": {drafter: true}, "EAGLE3": {drafter: true}, nextn: {}, standalone: {came: version{0, 5, 0}, drafter: true},
	ngram:  {came: version{0, 5, 3}, tokens: true},
	dflash: {came: version{0, 5, 11}, tokens: true, block: true, drafter: true},
	dspark: {came: version{0, 5, 16}, tokens: true, block: true},
}

const (
	nextn      = "NEXTN"
	standalone = "STANDALONE"
	dflash     = "DFLASH" // a block is the last token and its drafts: as many as are verified
	dspark     = "DSPARK" // here a block is the drafts alone
)

// ngram is the drafter that looks up in the text, in SGLang and here.
const ngram = "NGRAM"

// arguments speak to every version: the names of flags that changed are taken in their old form by the new ones. Metrics are on for
// all arms alike.
func (sglangKind) arguments(c *Config, boot trial.Knobs, port int) []string {
	args := []string{"--model-path=" + c.Model, "--host=127.0.0.1", "--port=" + strconv.Itoa(port), "--enable-metrics"}
	if c.Key != "" {
		args = append(args, "--api-key="+c.Key)
	}
	if !boot.Plain() {
		args = append(args, "--speculative-algorithm="+algorithm(boot.Drafter))
		if c.Drafter != "" && algorithm(boot.Drafter) != ngram {
			args = append(args, "--speculative-draft-model-path="+c.Drafter)
		}
		if !algorithms[algorithm(boot.Drafter)].tokens {
			args = append(args, fmt.Sprintf("--speculative-num-steps=%d", boot.Steps), fmt.Sprintf("--speculative-eagle-topk=%d", boot.TopK))
		}
		args = append(args, fmt.Sprintf("--speculative-num-draft-tokens=%d", boot.DraftTokens))
		if algorithm(boot.Drafter) == dspark { // it holds tokens to the block, and takes that from the drafter otherwise
			args = append(args, fmt.Sprintf("--speculative-dspark-block-size=%d", boot.DraftTokens-1))
		}
	}
	return append(args, flags(c, boot, sglangFlag)...)
}

// lists are SGLang's flags that take several values.
var lists = []string{"cuda-graph-bs", "cuda-graph-bs-decode", "cuda-graph-bs-prefill", "lora-paths"}

func sglangFlag(name, value string) []string {
	switch {
	case name == configFlag:
		return []string{"--" + name, value}
	case slices.Contains(lists, name):
		return append([]string{"--" + name}, strings.Fields(value)...)
	}
	return withEquals(name, value)
}

// deviceTimer has SGLang take the time of its phases on the device.
const deviceTimer = "SGLANG_ENABLE_METRICS_DEVICE_TIMER"

// environment has the device timer on, for all arms alike, and keeps ranks from writing their titles over their environment, which is
// to be read back.
func (sglangKind) environment(*Config) map[string]string {
	return map[string]string{deviceTimer: "1", "SPT_NOENV": "1"}
}

// The flags with which SGLang changes its steps while it runs.
const (
	adaptive       = "speculative-adaptive"
	adaptiveConfig = "speculative-adaptive-config"
)

// files has the schedule of an arm whose adaptive configuration is one, such as 1:3,8:1, and not a file's name.
func (sglangKind) files(c *Config, boot trial.Knobs) map[string]textFile {
	if s, err := ParseSchedule(merged(c, boot)[adaptiveConfig]); err == nil {
		return map[string]textFile{adaptiveConfig: {"schedule.json", s.SGLang()}}
	}
	return nil
}

// configFlag names a file of further flags, from 0.5.3 on. SGLang finds it only as a word of its own.
const configFlag = "config"

// keyFile keeps the key out of the command: SGLang reads no variable for it. Not if the campaign has such a file itself, since there can be
// one alone, nor for a key that SGLang would take for a flag. Before 0.5.3, or where the version is not known, the key is an argument.
func (sglangKind) keyFile(e *engine, boot trial.Knobs) (string, textFile) {
	_, own := merged(&e.c, boot)[configFlag]
	if e.c.Key == "" || own || strings.HasPrefix(e.c.Key, "-") || e.sglangVersion().before(0, 5, 3) {
		return "", textFile{}
	}
	text, err := json.Marshal(map[string]string{"api-key": e.c.Key}) // which is YAML as well
	if err != nil {
		panic("target: " + err.Error())
	}
	return configFlag, textFile{"key.yaml", text}
}

// split leaves everything to the boot. Two plain arms do not differ by their drafter.
func (sglangKind) split(k trial.Knobs) (boot trial.Knobs, request map[string]any) {
	if k.Plain() {
		k.Drafter, k.TopK, k.DraftTokens = "", 0, 0
		k.DrafterConfig = nil
	}
	return k, nil
}

func (sglangKind) drafter(c *Config) string { return directory(c.Drafter) }

// extra asks for the drafts of each answer, which SGLang tells from mid-2026 on; before, it passes the field over.
func (sglangKind) extra() map[string]any { return map[string]any{"return_spec_tokens_details": true} }

// info reads /server_info, which before 0.5.6 was called otherwise. What stands in the state of the first rank alone is taken from there.
func (sglangKind) info(ctx context.Context, s *Server) (map[string]any, error) {
	doc, err := s.document(ctx, "/server_info")
	if hasStatus(err, http.StatusNotFound) {
		doc, err = s.document(ctx, "/get_server_info")
	}
	if err != nil {
		return nil, err
	}
	if states, ok := doc["internal_states"].([]any); ok && len(states) > 0 {
		if state, ok := states[0].(map[string]any); ok {
			for key, value := range state {
				if doc[key] == nil {
					doc[key] = value
				}
			}
		}
	}
	return doc, nil
}

func (sglangKind) flush(ctx context.Context, s *Server) error { return flushCache(ctx, s) }

// settings are flags that SGLang's own information calls otherwise than with underscores.
var settings = map[string]string{
	"tp": "tp_size", "tensor-parallel-size": "tp_size", "dp": "dp_size", "data-parallel-size": "dp_size", "pp": "pp_size", "ep": "ep_size",
	"speculative-draft-model": "speculative_draft_model_path", "log-requests": "log_requests",
}

func (sglangKind) wanted(c *Config, boot trial.Knobs) map[string]string {
	want := map[string]string{"enable_metrics": ""}
	for name, value := range merged(c, boot) {
		key, other := settings[name]
		if !other {
			key = strings.ReplaceAll(name, "-", "_")
		}
		want[key] = value
	}
	if boot.Plain() {
		want["speculative_algorithm"] = "null"
		return want
	}
	if want["speculative_algorithm"] = algorithm(boot.Drafter); algorithm(boot.Drafter) == nextn {
		want["speculative_algorithm"] = "EAGLE"
	}
	want["speculative_num_draft_tokens"] = strconv.Itoa(boot.DraftTokens)
	if !algorithms[algorithm(boot.Drafter)].tokens {
		want["speculative_num_steps"], want["speculative_eagle_topk"] = strconv.Itoa(boot.Steps), strconv.Itoa(boot.TopK)
	}
	return want
}

// Counters of SGLang, and the phases that its device timer's categories are. Steps of the drafter that run without a graph are
// counted as decode, and its pass over a prompt as extend.
const (
	deviceSeconds = "sglang:forward_execution_seconds_total"
	verifyCalls   = "sglang:spec_verify_calls_total"
)

var categories = map[string]string{
	"eagle_draft": "draft", "target_verify": "verify", "eagle_draft_extend": "draft_extend", "decode": "decode", "extend": "prefill",
	"split_prefill": "prefill", "frozen_kv_draft": "draft",
}

// ledger reads the device timer's sums of the first rank; the ranks of tensor parallelism run the same passes. Cycles are those that
// verified, since plain ones are not counted; there is no wall time.
func (sglangKind) ledger(ctx context.Context, s *Server) (*trial.Ledger, error) {
	body, err := s.get(ctx, http.MethodGet, "/metrics")
	if hasStatus(err, http.StatusNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := scrape.Parse(strings.NewReader(string(body)))
	if err != nil {
		return nil, fmt.Errorf("/metrics: %w", err)
	}
	samples := m.Samples(deviceSeconds)
	if len(samples) == 0 {
		return nil, nil // before 0.5.11, or switched off
	}
	l := &trial.Ledger{PhaseNS: map[string]int64{}}
	for _, one := range samples {
		phase, known := categories[one.Labels["category"]]
		if known && firstRank(one.Labels) {
			l.PhaseNS[phase] += int64(one.Value * 1e9)
		}
	}
	for _, one := range m.Samples(verifyCalls) {
		if firstRank(one.Labels) {
			l.Cycles += int64(one.Value)
		}
	}
	return l, nil
}

// firstRank reports labels of the first rank of each dimension in which the ranks do the same.
func firstRank(labels map[string]string) bool {
	for _, dimension := range []string{"tp_rank", "pp_rank", "moe_ep_rank"} {
		if r := labels[dimension]; r != "" && r != "0" {
			return false
		}
	}
	return true
}
