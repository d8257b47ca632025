package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"

	"draftlab/lab/trial"
)

// draftlabKind is draftlab's own server. It ends with its standard input, and so with whoever started it, and requests say
// themselves how they are drafted.
type draftlabKind struct{}

var draftlabTraits = traits{
	name: "draftlab", command: []string{"draftlab", "serve"}, endsWithStdin: true,
	address:  regexp.MustCompile(`^(http://127\.0\.0\.1:\d+)$`),
	ready:    firedUp,
	reserved: []string{"port", "host", "model", "served-model-name", "drafter", "steps", "topk", "draft-tokens", "end-with-stdin", dryRun},
}

// firedUp is SGLang's word, which draftlab has taken over.
const firedUp = "The server is fired up and ready to roll!"

func (draftlabKind) traits() traits { return draftlabTraits }

func (draftlabKind) arguments(c *Config, boot trial.Knobs, port int) []string {
	args := []string{"--port=" + strconv.Itoa(port), "--end-with-stdin", "--model=" + c.Model, "--served-model-name=" + c.Model}
	if c.Drafter != "" {
		args = append(args, "--drafter="+c.Drafter)
	}
	if boot.Steps > 0 {
		args = append(args, fmt.Sprintf("--steps=%d", boot.Steps), fmt.Sprintf("--topk=%d", boot.TopK), fmt.Sprintf("--draft-tokens=%d", boot.DraftTokens))
	}
	return append(args, flags(c, boot, withEquals)...)
}

// keyVariable is where draftlab's server takes its key from.
const keyVariable = "DRAFTLAB_API_KEY"

// environment hands the key over out of sight.
func (draftlabKind) environment(c *Config) map[string]string {
	if c.Key == "" {
		return nil
	}
	return map[string]string{keyVariable: c.Key}
}

// requestLimit is the largest draft that a server takes from requests without being told of it: serve's documented limit.
var requestLimit = trial.Knobs{Steps: 8, TopK: 4, DraftTokens: 16}

// pMin is the flag for which requests have a field.
const pMin = "draft-p-min"

func (draftlabKind) files(*Config, trial.Knobs) map[string]textFile { return nil }

func (draftlabKind) keyFile(*engine, trial.Knobs) (string, textFile) { return "", textFile{} }

// split leaves to the boot what requests cannot say: drafts beyond the server's usual limit are announced at its start.
func (draftlabKind) split(k trial.Knobs) (boot trial.Knobs, request map[string]any) {
	boot = trial.Knobs{Flags: maps.Clone(k.Flags), Env: k.Env, DrafterConfig: k.DrafterConfig}
	own := map[string]any{"drafter": "none"}
	if !k.Plain() {
		own = map[string]any{"drafter": k.Drafter, "steps": k.Steps, "topk": k.TopK, "draft_tokens": k.DraftTokens}
		if k.Steps > requestLimit.Steps || k.TopK > requestLimit.TopK || k.DraftTokens > requestLimit.DraftTokens {
			boot.Steps, boot.TopK, boot.DraftTokens = k.Steps, k.TopK, k.DraftTokens
		}
	}
	if p, err := strconv.ParseFloat(boot.Flags[pMin], 64); err == nil {
		if delete(boot.Flags, pMin); !k.Plain() {
			own["p_min"] = p
		}
	}
	if len(boot.Flags) == 0 {
		boot.Flags = nil
	}
	return boot, map[string]any{"speculative": own}
}

func (draftlabKind) check(e *engine, arms []trial.Arm) (found []Finding) {
	for _, a := range arms {
		if !a.Plain() && a.Drafter != "eagle3" && a.Drafter != "ngram" {
			found = append(found, Finding{"impossible_draft", fmt.Sprintf("draftlab has no drafter %q: want eagle3 or ngram", a.Drafter), true, []string{a.Name}})
		}
		if err := shape(a.Knobs); err != "" {
			found = append(found, Finding{"impossible_draft", err, true, []string{a.Name}})
		}
	}
	if e == nil { // the server is attached to, and has its flags
		return found
	}
	return append(found, e.refusals(arms)...)
}

// shape says what is wrong with how an arm drafts, "" if nothing is: a tree has topk nodes at its first depth and up to topk² at
// each further one, the last emitted token is its root, and a chain has no more than its steps.
func shape(k trial.Knobs) string {
	switch most := 1 + k.TopK + (k.Steps-1)*k.TopK*k.TopK; {
	case k.Plain():
		return ""
	case k.Steps < 0 || k.TopK < 1 || k.DraftTokens < 2:
		return fmt.Sprintf("steps %d, topk %d, draft tokens %d: want at least 1, 1, 2, or 0 steps for plain decoding", k.Steps, k.TopK, k.DraftTokens)
	case k.TopK == 1 && k.DraftTokens != k.Steps+1:
		return fmt.Sprintf("a chain of %d steps (topk 1) has %d draft tokens, and not %d", k.Steps, k.Steps+1, k.DraftTokens)
	case k.DraftTokens > most:
		return fmt.Sprintf("%d draft tokens: at most 1 + topk + (steps − 1)·topk² = %d fit into %d steps of topk %d", k.DraftTokens, most, k.Steps, k.TopK)
	}
	return ""
}

// drafter returns the directory, if the drafter is one and no word of serve's.
func (draftlabKind) drafter(c *Config) string {
	if strings.ContainsRune(c.Drafter, os.PathSeparator) || strings.Contains(c.Drafter, "/") {
		return c.Drafter
	}
	return ""
}

func (draftlabKind) info(ctx context.Context, s *Server) (map[string]any, error) {
	return s.document(ctx, "/server_info")
}

func (draftlabKind) flush(ctx context.Context, s *Server) error { return flushCache(ctx, s) }

func (draftlabKind) extra() map[string]any {
	return map[string]any{"return_token_ids": true, "return_meta_info": true}
}

// wanted are the flags under the names of /server_info.
func (draftlabKind) wanted(c *Config, boot trial.Knobs) map[string]string {
	want := map[string]string{}
	for name, value := range merged(c, boot) {
		want[strings.ReplaceAll(name, "-", "_")] = value
	}
	if boot.Steps > 0 {
		want["steps"], want["topk"], want["draft_tokens"] = strconv.Itoa(boot.Steps), strconv.Itoa(boot.TopK), strconv.Itoa(boot.DraftTokens)
	}
	return want
}

// ledger reads /debug/cycles; idle time and phases add up to the wall time exactly.
func (draftlabKind) ledger(ctx context.Context, s *Server) (*trial.Ledger, error) {
	body, err := s.get(ctx, http.MethodGet, "/debug/cycles?limit=0")
	if hasStatus(err, http.StatusNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var doc struct {
		Totals *struct {
			Decode int64            `json:"decode_cycles"`
			Verify int64            `json:"verify_cycles"`
			Wall   int64            `json:"wall_ns"`
			Idle   int64            `json:"idle_ns"`
			Phase  map[string]int64 `json:"phase_ns"`
		} `json:"totals"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("/debug/cycles: %w", err)
	}
	if doc.Totals == nil {
		return nil, errors.New("/debug/cycles has no totals")
	}
	t := doc.Totals
	return &trial.Ledger{Cycles: t.Decode + t.Verify, WallNS: t.Wall, IdleNS: t.Idle, PhaseNS: t.Phase}, nil
}
