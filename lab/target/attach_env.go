package target

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"draftlab/lab/probe"
	"draftlab/lab/runner"
	"draftlab/lab/trial"
)

// found is the state of a variable that a server had before anybody here could ask for it.
const found = "found"

// ofEngines matches the names of variables that engines and the libraries below them go by: what else a process has is nobody's business.
var ofEngines = regexp.MustCompile(`^(NCCL|SGLANG|SGL|VLLM|LLAMA|GGML|CUDA|NVIDIA|TORCH|PYTORCH|TRITON|FLASHINFER|UCX|OMP|MKL|KMP|OPENBLAS|HF|TRANSFORMERS)_|^(GOMAXPROCS|GOGC|GOMEMLIMIT|GODEBUG|LD_PRELOAD|MALLOC_CONF)$`)

// inContainer says where a container's server is looked at.
const inContainer = "a container, which shows its processes to those within alone; \"docker exec NAME env\" (podman, kubectl) reads its variables, " +
	"and draftlab does if it runs in there. Nothing else that is measured hangs on it"

// forwarders hand on what comes to a port: the server is elsewhere.
var forwarders = map[string]string{
	"ssh": "another machine: name that as the campaign's host, and its variables are read there", "socat": "another place",
	"docker-proxy": inContainer, "rootlessport": inContainer, "kubectl": inContainer,
}

// unseen says why the process of a server that answers is not seen, and what to do.
func unseen(err error) error {
	switch {
	case errors.Is(err, runner.ErrNoListener): // a container's network is not that of /proc/net here
		return fmt.Errorf("%w that /proc here knows of, though the server answers: it runs in %s", err, inContainer)
	case errors.Is(err, runner.ErrHidden):
		return fmt.Errorf("%w: run draftlab as that user, or as root, who a server in a container often is; \"docker exec NAME env\" reads the variables of such a one", err)
	}
	return err
}

// foundEnvironment reads the environment of the process that listens at the server's address, if that is on the host: variables of engines,
// secrets left out.
func (s *Server) foundEnvironment(ctx context.Context) ([]trial.EnvCheck, error) {
	port, err := loopbackPort(s.config.URL)
	if err != nil {
		return nil, err
	}
	p, err := s.host.Listener(ctx, port)
	if err != nil {
		return nil, unseen(err)
	}
	if len(p.Args) > 0 {
		if place, forwards := forwarders[path.Base(p.Args[0])]; forwards {
			return nil, fmt.Errorf("port %d is handed on by %s: the server runs in %s", port, path.Base(p.Args[0]), place)
		}
	}
	var out []trial.EnvCheck
	for _, v := range slices.Sorted(slices.Values(p.Env)) {
		name, value, ok := strings.Cut(v, "=")
		if !ok || !ofEngines.MatchString(name) {
			continue
		}
		if probe.Secret(name) {
			value = hidden(value)
		}
		out = append(out, trial.EnvCheck{Name: name, Process: role(p), Got: value, State: found})
	}
	return out, nil
}

// loopbackPort is the port of an address that leads to the very machine.
func loopbackPort(address string) (int, error) {
	u, err := url.Parse(address)
	if err != nil {
		return 0, err
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return 0, fmt.Errorf("%s is on another machine, whose processes are seen only if it is the campaign's host", u.Hostname())
	}
	if u.Port() == "" {
		return map[string]int{"http": 80, "https": 443}[u.Scheme], nil
	}
	return strconv.Atoi(u.Port())
}
