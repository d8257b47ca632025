// Package trial holds the nouns of a campaign: what is varied ([Knobs], [Arm]), what was started ([Boot]), what was measured
// ([Trial]), and what was foretold and concluded ([Prediction], [Verdict]). It does nothing: campaigns make these, the store keeps
// them, results and reports are made of them.
package trial

import (
	"time"

	"draftlab/lab/client"
)

// Knobs are all that a campaign varies about how a server decodes. Which of them need a restart is the target's to say.
type Knobs struct {
	Drafter       string            `json:"drafter"` // none, eagle3 or ngram
	Steps         int               `json:"steps"`   // 0 is plain decoding
	TopK          int               `json:"topk"`
	DraftTokens   int               `json:"draft_tokens"`
	Flags         map[string]string `json:"flags,omitempty"`          // of the server's command, without dashes; "" is a flag that has no value
	Env           map[string]string `json:"env,omitempty"`            // of the server's process, added to the campaign's own
	DrafterConfig map[string]any    `json:"drafter_config,omitempty"` // keys of config.json, set in a copy of the drafter
}

// Plain reports plain decoding.
func (k Knobs) Plain() bool { return k.Steps == 0 }

// Arm is a way of decoding with its name in tables.
type Arm struct {
	Name string `json:"name"`
	Knobs
	// Baseline names the arm that decodes plainly in the same environment, with the same flags; "" for such an arm itself.
	Baseline string `json:"baseline,omitempty"`
}

// Boot is one start of the server.
type Boot struct {
	ID          int            `json:"id"`      // 1, 2, … in the order of starts
	Slot        string         `json:"slot"`    // of the plan: a start that failed, or that a campaign goes on with, has the slot of the first
	Name        string         `json:"name"`    // of this start, and of its log
	Knobs       Knobs          `json:"knobs"`   // what was fixed at the start
	Command     string         `json:"command"` // as a shell takes it, environment included
	Started     time.Time      `json:"started"`
	ReadyS      float64        `json:"ready_s"` // from the start to a generated token; 0 if it never came
	Ended       time.Time      `json:"ended"`   // zero while it runs, and if the campaign was killed
	Cause       string         `json:"cause,omitempty"`
	Detail      string         `json:"detail,omitempty"` // what happened, if it failed, in words
	Lines       []string       `json:"lines,omitempty"`  // of the log, that show it
	Log         string         `json:"log"`              // file, relative to the campaign's directory
	Info        map[string]any `json:"info,omitempty"`   // the configuration that the server says it has
	Differences []Difference   `json:"differences,omitempty"`
	Environment []EnvCheck     `json:"environment,omitempty"`
}

// Difference is a setting that is not what was asked for.
type Difference struct {
	Key  string `json:"key"`
	Want string `json:"want"`
	Got  string `json:"got"`
	Note string `json:"note,omitempty"` // why, if that is known
}

// EnvCheck is what became of one environment variable in one process of the server.
type EnvCheck struct {
	Name    string `json:"name"`
	Want    string `json:"want"`
	Process string `json:"process"` // such as "server" or "rank 3"
	Got     string `json:"got"`
	State   string `json:"state"`          // applied, ignored, missing (not in the process), unknown, or found (in a server that was there before)
	Line    string `json:"line,omitempty"` // of the log, that says so
}

// Stage is a part of a campaign.
type Stage string

// The stages.
const (
	WarmUp  Stage = "warm-up"
	Measure Stage = "measure"
	Confirm Stage = "confirm"
)

// Ledger is what the server spent on a trial, by its own ledger or counters.
type Ledger struct {
	Cycles  int64            `json:"cycles"`   // decode cycles and verify cycles
	WallNS  int64            `json:"wall_ns"`  // idle time included; 0 where the server does not tell
	IdleNS  int64            `json:"idle_ns"`  // without a request
	PhaseNS map[string]int64 `json:"phase_ns"` // by phase
}

// Minus returns what has been spent since an earlier reading.
func (l *Ledger) Minus(earlier *Ledger) *Ledger {
	d := &Ledger{l.Cycles - earlier.Cycles, l.WallNS - earlier.WallNS, l.IdleNS - earlier.IdleNS, map[string]int64{}}
	for phase, ns := range l.PhaseNS {
		d.PhaseNS[phase] = ns - earlier.PhaseNS[phase]
	}
	return d
}

// Trial is one request of a campaign, as it is stored.
type Trial struct {
	Boot      int            `json:"boot"` // Boot.ID
	Stage     Stage          `json:"stage"`
	Block     int            `json:"block"` // number within the stage
	Pair      int            `json:"pair"`  // number within the block
	Arm       string         `json:"arm"`
	Against   string         `json:"against"` // the other arm of the pair
	Prompt    string         `json:"prompt"`  // its id
	Category  string         `json:"category"`
	Bandwidth float64        `json:"bandwidth_bytes_s,omitempty"` // of memory, read right before the pair; 0 where it does not matter
	Ledger    *Ledger        `json:"ledger,omitempty"`
	Sample    *client.Sample `json:"sample"`
}

// Interval is an estimate with what it may be at a level of confidence; Low and High are nil where there is too little to tell.
type Interval struct {
	Estimate   float64  `json:"estimate"`
	Low        *float64 `json:"low"`
	High       *float64 `json:"high"`
	Confidence float64  `json:"confidence"`
}

// Prediction is what a cost model said of an arm before it was measured, and what was measured then.
type Prediction struct {
	Arm      string    `json:"arm"`
	Quantity string    `json:"quantity"` // speedup, accept_length or cycle_plain_steps
	Made     time.Time `json:"made"`
	From     []string  `json:"from"` // arms that the model was fitted to
	Interval
	Measured *Interval `json:"measured"` // nil as long as it is not
}

// Outcome is what evidence says about a hypothesis.
type Outcome string

// The outcomes.
const (
	Supported Outcome = "supported"
	Refuted   Outcome = "refuted"
	Undecided Outcome = "undecided"
	NoEffect  Outcome = "no effect" // of a size that matters: Evidence has the smallest that was excluded
	Failed    Outcome = "failed"    // it could not be measured: Evidence says why
)

// Verdict is an entry of the verdict log. Refuted ones stay.
type Verdict struct {
	ID         int       `json:"id"`
	At         time.Time `json:"at"`
	Hypothesis string    `json:"hypothesis"`
	Predicted  string    `json:"predicted,omitempty"`
	Change     string    `json:"change"` // from the baseline
	Evidence   string    `json:"evidence"`
	Outcome    Outcome   `json:"verdict"`
	Next       string    `json:"next,omitempty"`
}
