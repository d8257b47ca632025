package field

import (
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"draftlab/experiments/rig"
	"draftlab/lab/campaign"
	"draftlab/lab/campaign/file"
	"draftlab/lab/client"
	"draftlab/lab/search"
	"draftlab/lab/target"
	"draftlab/lab/trial"
)

// TestPlan: the file of a plan is a campaign file, and its arms are those of the plan.
func TestPlan(t *testing.T) {
	arms := search.Default("eagle3").Arms()
	p := Plan{Name: "01-grid", Arms: arms, Pairs: 12, Confirm: 6, Search: file.Model, Most: 7, Seed: 99}
	c, err := file.Parse(p.Name, []byte(p.text(64)))
	if err != nil {
		t.Fatal(err)
	}
	if c.Search != (file.Search{Kind: file.Model, Arms: 7, EarlyStop: false}) || *c.Seed != 99 || c.Workload.Count != 12 || c.Workload.MaxTokens != 64 {
		t.Errorf("%+v", c)
	}
	got, dropped, err := campaign.Arms(c)
	if err != nil || len(dropped) > 0 {
		t.Fatal(err, dropped)
	}
	for i, a := range got[1:] {
		if a.Name != arms[i].Name || a.Steps != arms[i].Steps || a.TopK != arms[i].TopK || a.DraftTokens != arms[i].DraftTokens || a.Baseline != got[0].Name {
			t.Errorf("%+v, want %+v", a, arms[i])
		}
	}
}

// fakeEngine names what it is asked for, and its servers answer with what they got.
type fakeEngine struct {
	campaign.Engine
	base string
}

func (fakeEngine) Split(k trial.Knobs) (trial.Knobs, map[string]any) {
	return trial.Knobs{}, map[string]any{"steps": k.Steps}
}

func (e fakeEngine) Boot(context.Context, target.BootOptions) (campaign.Server, error) {
	s := &target.Server{}
	s.Client.Base, s.Client.HTTP = e.base, http.DefaultClient
	return s, nil
}

// TestTwins: plain decoding is A, the other arm B, and B's mark reaches no server but has it asked through the slow proxy.
func TestTwins(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	twins := Twins{A: trial.Knobs{Steps: 3}, B: trial.Knobs{Steps: 5}, Slow: 0.03}
	e := twins.Wrap(fakeEngine{base: server.URL})
	s, err := e.Boot(context.Background(), target.BootOptions{})
	if err != nil {
		t.Fatal(err)
	}
	twin := s.(*twinServer)
	for _, c := range []struct {
		k     trial.Knobs
		steps int
		via   *proxy
	}{{trial.Knobs{}, 3, twin.a}, {twins.Arm().Knobs, 5, twin.b}} {
		_, request := e.Split(c.k)
		r := &client.Request{Extra: request}
		twin.route(r)
		if _, marked := r.Extra[slowField]; marked || r.Extra["steps"] != c.steps || twin.Client.Base != c.via.url {
			t.Errorf("%+v: the server is asked for %v at %s", c.k, r.Extra, twin.Client.Base)
		}
	}
	twin.a.close()
	twin.b.close()
}

// TestFan: one process does all tasks in order, a worker its share, and what makes no sense is refused.
func TestFan(t *testing.T) {
	for args, want := range map[string][]int{"": {0, 1, 2, 3, 4}, "--worker=1/3": {1, 4}} {
		var f Fan
		fs := flag.NewFlagSet("t", flag.ContinueOnError)
		f.Register(fs)
		if err := fs.Parse(slices.DeleteFunc([]string{args}, func(a string) bool { return a == "" })); err != nil {
			t.Fatal(err)
		}
		living, end := io.Pipe()
		defer end.Close()
		f.alive = living
		var did []int
		goOn, err := f.Run(context.Background(), 5, func(_ context.Context, i int) error {
			did = append(did, i)
			return nil
		})
		if err != nil || goOn != (args == "") || !slices.Equal(did, want) {
			t.Errorf("%q: did %v, goes on: %v, %v", args, did, goOn, err)
		}
	}
	failure := errors.New("broken")
	if _, err := (&Fan{Jobs: 1}).Run(context.Background(), 3, func(_ context.Context, i int) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("err = %v", err)
	}
	for _, f := range []*Fan{{Jobs: 0}, {Jobs: 1 << 20}, {Jobs: 1, worker: "3/3"}, {Jobs: 1, worker: "x"}} {
		if _, err := f.Run(context.Background(), 3, nil); err == nil || err == rig.ErrClaim {
			t.Errorf("%+v: err = %v", f, err)
		}
	}
}

// TestOrphan: a worker whose parent has ended is told so.
func TestOrphan(t *testing.T) {
	f := Fan{worker: "0/1", alive: strings.NewReader("")}
	_, err := f.Run(context.Background(), 1, func(ctx context.Context, _ int) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, errOrphan) {
		t.Errorf("err = %v", err)
	}
}

// TestFlags: what Register adds is what help lists.
func TestFlags(t *testing.T) {
	var l Lab
	fs := flag.NewFlagSet("t", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	l.Register(fs, "somewhere", 64)
	for _, name := range []string{"jobs", "out", "seed", "tokens", "model", "draftlab", "threads"} {
		if fs.Lookup(name) == nil {
			t.Errorf("no flag %s", name)
		}
	}
	if l.Out != "somewhere" || l.Tokens != 64 {
		t.Errorf("%+v", l)
	}
}
