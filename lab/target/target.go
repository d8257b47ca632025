// Package target starts a server that is to be measured, waits until it really generates, reads its state and stops it: [New]
// makes an [Engine] of a [Config], and [Engine.Boot] a [Server], or a [BootError] that says what went wrong, with the lines of
// the log that show it.
//
// The package measures nothing and decides nothing; readiness has four proofs, because each alone has been seen to lie: the
// process lives, its log says so, its health check says so, and it writes a token.
package target

import (
	"context"
	"fmt"
	"strings"
	"time"

	"draftlab/lab/runner"
	"draftlab/lab/trial"
)

// Engine is a kind of server as a campaign needs it: how to start it, what its requests carry, what must be known beforehand.
type Engine interface {
	// Name is the kind's, such as "sglang".
	Name() string
	// Split says what of an arm is fixed at the start of a server, so that equal boot knobs share a boot, and which fields each
	// request carries.
	Split(k trial.Knobs) (boot trial.Knobs, request map[string]any)
	// Check returns what would be rewritten silently, is impossible, or unequal between arms, before any time is spent. One that
	// is Fatal stops the campaign.
	Check(arms []trial.Arm) []Finding
	// Command is the command that starts a server with those knobs, as a shell takes it, secrets left out; "" if none does.
	Command(boot trial.Knobs) (string, error)
	// Boot starts the server and waits until it generates. The error is a *BootError if the server ran and failed. The caller
	// stops the server.
	Boot(ctx context.Context, o BootOptions) (*Server, error)
}

// BootOptions are what differs between the starts of one engine's servers.
type BootOptions struct {
	Name  string        // of the boot; its log is Dir/Name.log
	Knobs trial.Knobs   // boot knobs, as Split returns them
	Dir   string        // exists
	Limit time.Duration // to readiness; 0 is Config.Ready
	// Status is told now and then what the server is at; nil is nobody.
	Status func(Status)
}

// Finding is something about a campaign's arms that should be known before any time is spent.
type Finding struct {
	Code  string   `json:"code"` // a word that stays the same, such as "draft_tokens_rewritten"
	Text  string   `json:"text"`
	Fatal bool     `json:"fatal"`
	Arms  []string `json:"arms"` // their names
}

// About returns the finding's text with the arms that it is about, of so many.
func (f *Finding) About(arms int) string {
	switch text := strings.TrimSuffix(f.Text, "."); {
	case len(f.Arms) == 0:
		return text
	case len(f.Arms) >= arms:
		return text + " (all arms)"
	default:
		return text + " (" + strings.Join(f.Arms, ", ") + ")"
	}
}

// Config says which servers an engine starts.
type Config struct {
	Kind    string   // draftlab, sglang, llamacpp or attach
	Host    string   // where it runs, as ssh takes it; "" is this machine
	Command []string // program and leading arguments; empty is the kind's usual one
	Model   string
	URL     string            // of the server to attach to, as its host reaches it
	Drafter string            // as the engine's flags name it; "" is none of the campaign's own
	Key     string            // sent as a bearer token unless it is empty
	Flags   map[string]string // of all arms, without dashes; "" is a flag that has no value
	Env     map[string]string // of all arms, over Environ
	Environ []string          // of a server on this machine, as os.Environ returns it; nil is this process's
	Port    int               // 0 is a free one
	Ready   time.Duration     // limit of a start; 0 is half an hour
	AtOnce  int               // requests that it will be sent at once; 0 is not known
}

// usualLimit is the limit of a start: models of a trillion parameters take a quarter of an hour.
const usualLimit = 30 * time.Minute

// kinds are the kinds of servers that are started.
var kinds = []kind{draftlabKind{}, sglangKind{}, llamaKind{}}

// New makes an engine. The error names the field of the configuration.
func New(c Config) (Engine, error) {
	if c.Ready == 0 {
		c.Ready = usualLimit
	}
	var host runner.Host = runner.Local{Environ: c.Environ}
	if c.Host != "" {
		host = runner.SSH{Destination: c.Host}
	}
	if c.Port < 0 || c.Port > 65535 {
		return nil, fmt.Errorf("port %d: want 0 to 65535", c.Port)
	}
	if c.Kind == "attach" {
		return newAttached(c, host)
	}
	for _, k := range kinds {
		if k.traits().name != c.Kind {
			continue
		}
		switch {
		case c.Model == "":
			return nil, fmt.Errorf("%s: no model", c.Kind)
		case c.URL != "":
			return nil, fmt.Errorf("%s: a URL is for servers to attach to", c.Kind)
		}
		return newEngine(c, k, host), nil
	}
	return nil, fmt.Errorf("no kind of server is called %q: want draftlab, sglang, llamacpp or attach", c.Kind)
}
