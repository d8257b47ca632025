// Package campaign finds out whether speculation pays on a server, in which way it pays most, and what a setting does: it makes
// arms of a campaign file ([Arms]), plans boots and blocks of requests ([NewPlan]), carries them out ([Run]) and says what they
// show ([Analyse]). All that is measured goes into a store first; results are made of the store alone, so that a
// campaign which was killed goes on where it stopped.
//
// An arm is a way of decoding. Every arm has plain decoding in the same environment beside it: where one server can do both, each prompt
// is sent to both, one right after the other in random order; where a server has to be started for each, the starts
// are repeated, and count as what they are, one observation each. What is compared is the logarithm of speeds' ratio. The winner is
// measured again, on prompts that did not help to choose it.
package campaign

import (
	"context"
	"encoding/json"
	"time"

	"draftlab/lab/campaign/file"
	"draftlab/lab/client"
	"draftlab/lab/prompts"
	"draftlab/lab/store"
	"draftlab/lab/target"
	"draftlab/lab/trial"
)

// Server is a server that runs.
type Server interface {
	Ask(ctx context.Context, r *client.Request) *client.Sample
	Flush(ctx context.Context) error                   // empties the prefix cache
	Ledger(ctx context.Context) (*trial.Ledger, error) // nil if it keeps none
	Info(ctx context.Context) (map[string]any, error)  // the configuration that it says it has
	Differences(info map[string]any) []trial.Difference
	Environment(ctx context.Context) ([]trial.EnvCheck, error) // what became of the variables that were set, in each process
	Failure() error                                            // why it has ended, nil while it runs
	Stop(grace time.Duration)
}

// Engine is a kind of server, as [target.Engine] is.
type Engine interface {
	Name() string
	Split(k trial.Knobs) (boot trial.Knobs, request map[string]any)
	Check(arms []trial.Arm) []target.Finding
	Command(boot trial.Knobs) (string, error)
	Boot(ctx context.Context, o target.BootOptions) (Server, error)
}

// Servers makes a campaign's engine of a real one.
func Servers(e target.Engine) Engine { return servers{e} }

type servers struct{ target.Engine }

// Boot hides the server's type.
func (s servers) Boot(ctx context.Context, o target.BootOptions) (Server, error) {
	server, err := s.Engine.Boot(ctx, o)
	if err != nil {
		return nil, err // and no server that is a nil in an interface
	}
	return server, nil
}

// Config is what a campaign runs with. Everything that decides what is measured stands in the store already.
type Config struct {
	Store     *store.Store
	Engine    Engine
	Set       prompts.Set
	Bandwidth func() float64 // reads this machine's memory and returns bytes a second; nil where the server's speed does not hang on it
	Progress  func(Progress)
	Boots     func(target.Status) // told what a server that starts is at
}

// Progress is how far a campaign has come.
type Progress struct {
	Stage       trial.Stage
	Boot        string        // name of the server that runs
	Done, Total int           // units of the stage: pairs, or requests of an arm that has no baseline on its server
	Left        time.Duration // that the whole campaign will take; 0 if it is not known yet
}

// New returns what the store of a new campaign begins with. The environment is what the result depends on beside the arms, as
// result.json shows it.
func New(c *file.Campaign, seed uint64, environment any) (*store.Campaign, error) {
	text, err := json.Marshal(environment)
	if err != nil {
		return nil, err
	}
	if c.Seed != nil {
		seed = *c.Seed
	}
	return &store.Campaign{Created: time.Now(), Seed: seed, File: c.Text, Build: text}, nil
}

// state is what a campaign has decided on its way.
type state struct {
	Boots   int        `json:"boots"`             // starts of each group
	Size    *Size      `json:"size,omitempty"`    // after the first warm-up
	WarmUp  []float64  `json:"warm_up,omitempty"` // readings of the first boot
	Steady  bool       `json:"steady"`
	Rounds  [][]string `json:"rounds,omitempty"`  // names of the arms that are measured, by round of the search
	Scouted int        `json:"scouted,omitempty"` // blocks that the first round of a guided search has, the others being for arms that it comes back to; 0 is all
	Ended   bool       `json:"ended,omitempty"`   // all rounds have been measured
	Confirm string     `json:"confirm,omitempty"` // the arm that is measured again
	Rival   string     `json:"rival,omitempty"`   // and one beside it that the first measurement does not tell from it
	Done    bool       `json:"done,omitempty"`    // nothing is left to measure

	Failed map[string]string `json:"failed,omitempty"` // why arms were given up, by name
}
