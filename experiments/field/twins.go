package field

import (
	"context"
	"time"

	"draftlab/lab/campaign"
	"draftlab/lab/client"
	"draftlab/lab/target"
	"draftlab/lab/trial"
)

// Twins are two ways of decoding that a campaign compares under other names: where it asks for plain decoding it gets A, and
// where it asks for its one speculative arm it gets B. With A as B it compares a thing with itself and cannot know.
type Twins struct {
	A, B trial.Knobs
	Slow float64 // share by which B's answers are slowed down, see proxy
}

// Arm is the arm that B is called.
func (Twins) Arm() trial.Arm {
	return trial.Arm{Name: "b", Knobs: trial.Knobs{Drafter: "eagle3", Steps: 1, TopK: 1, DraftTokens: 2}}
}

// Wrap puts the twins between a campaign and an engine.
func (t Twins) Wrap(e campaign.Engine) campaign.Engine { return &twinEngine{e, t} }

type twinEngine struct {
	campaign.Engine
	Twins
}

// slowField is the mark by which a request of B is known; the server never sees it.
const slowField = "slow_down"

// Split answers for A or B.
func (e *twinEngine) Split(k trial.Knobs) (boot trial.Knobs, request map[string]any) {
	if k.Plain() {
		return e.Engine.Split(e.A)
	}
	boot, request = e.Engine.Split(e.B)
	if e.Slow > 0 {
		request[slowField] = true
	}
	return boot, request
}

// Boot starts a server, and if B is slowed down, a proxy before it for each of both: A's does nothing, but costs as much.
func (e *twinEngine) Boot(ctx context.Context, o target.BootOptions) (campaign.Server, error) {
	s, err := e.Engine.Boot(ctx, o)
	if err != nil || e.Slow == 0 {
		return s, err
	}
	own, ok := s.(*target.Server)
	if !ok {
		panic("field: a server that is none of target's cannot be slowed down")
	}
	t := &twinServer{Server: own}
	if t.a, err = newProxy(own.Client.Base, 0); err == nil {
		t.b, err = newProxy(own.Client.Base, e.Slow)
	}
	if err != nil {
		t.Stop(0)
		return nil, err
	}
	return t, nil
}

// twinServer is a server behind two proxies.
type twinServer struct {
	*target.Server
	a, b *proxy
}

// Ask sends a request through the proxy that is its own. One request runs at a time.
func (s *twinServer) Ask(ctx context.Context, r *client.Request) *client.Sample {
	s.route(r)
	return s.Server.Ask(ctx, r)
}

// route takes the mark off a request and turns the client to its proxy.
func (s *twinServer) route(r *client.Request) {
	through := s.a
	if _, marked := r.Extra[slowField]; marked {
		delete(r.Extra, slowField)
		through = s.b
	}
	s.Client.Base = through.url
}

// Stop ends the proxies as well.
func (s *twinServer) Stop(grace time.Duration) {
	for _, p := range []*proxy{s.a, s.b} {
		if p != nil {
			p.close()
		}
	}
	s.Server.Stop(grace)
}
