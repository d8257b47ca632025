package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"draftlab/engine"
	"draftlab/engine/doctor"
	"draftlab/engine/draft/eagle3"
	"draftlab/engine/model"
	"draftlab/engine/weights"
	"draftlab/internal/ui"
	"draftlab/lab/campaign"
)

// need is the memory that a server of ours takes, in bytes.
type need struct{ weights, drafter, kv int64 }

func (n need) total() int64 { return n.weights + n.drafter + n.kv }

// ownFindings are those about a campaign on this machine's own engine: the drafter's files, and whether the memory suffices.
func (t *tuning) ownFindings(ctx context.Context, p *campaign.Preview) (list []doctor.Finding, err error) {
	if !t.own() {
		return nil, nil
	}
	path, err := t.env.hub().Resolve(ctx, t.file.Model, t.env.progress())
	if err != nil {
		return nil, err
	}
	cfg, bytes, err := readModel(path)
	if err != nil {
		return nil, err
	}
	var n need
	n.weights = bytes
	var d eagle3.Config
	dir, err := t.drafterDir()
	if err != nil {
		return nil, err
	}
	if dir != "" {
		if list, err = doctor.Check(dir, cfg); err != nil {
			return nil, err
		}
		if d, err = eagle3.ReadConfig(dir); err == nil { // or else the findings say so
			n.drafter, err = tensorBytes(dir)
		}
		if err != nil {
			n.drafter = 0
		}
	}
	for _, a := range p.Arms {
		n.kv = max(n.kv, t.kvBytes(a.Flags, cfg, d))
	}
	return append(list, memoryFinding(n, availableMemory(os.ReadFile))), nil
}

// drafterDir returns the directory of the campaign's drafter, "" if it has none of its own.
func (t *tuning) drafterDir() (string, error) {
	switch d := t.file.Drafter; d {
	case "", string(engine.DraftNone), string(engine.DraftNgram), engine.RandomDrafter:
		return "", nil
	case "auto":
		name := t.env.drafterOf(t.file.Model)
		if name == "" {
			return "", nil
		}
		return unpackDrafter(t.env, name)
	default:
		return d, nil
	}
}

// kvBytes is what an arm's server sets aside for keys and values: every request that runs may fill its context.
func (t *tuning) kvBytes(flags map[string]string, cfg model.Config, d eagle3.Config) int64 {
	number := func(name string, otherwise int) int {
		for _, m := range []map[string]string{flags, t.file.Target.Flags} {
			if n, err := strconv.Atoi(m[name]); err == nil && n > 0 {
				return n
			}
		}
		return otherwise
	}
	const float16, keysAndValues = 2, 2
	perToken := cfg.KVBytesPerToken(false) + int64(keysAndValues*float16*d.KVHeads*d.HeadDim)
	return int64(number("max-running-requests", t.file.Workload.Concurrency)) * int64(number("context", cfg.MaxContext)) * perToken
}

// readModel reads a model's configuration and the size of its weights.
func readModel(path string) (cfg model.Config, bytes int64, err error) {
	f, err := weights.Open(path)
	if err != nil {
		return cfg, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, t := range f.Tensors() {
		bytes += int64(len(t.Data))
	}
	cfg, err = model.ReadConfig(f)
	return cfg, bytes, err
}

// tensorBytes is the size of a checkpoint's weights.
func tensorBytes(dir string) (bytes int64, err error) {
	f, err := weights.Open(dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, t := range f.Tensors() {
		bytes += int64(len(t.Data))
	}
	return bytes, nil
}

// tight is the share of the memory at hand from which on a server may be slow or ended: others want some too.
const tight = 0.85

// memoryFinding compares what a server takes with what this machine has to give; 0 is unknown.
func memoryFinding(n need, have int64) doctor.Finding {
	what := fmt.Sprintf("A server takes about %s: %s of weights, %s at most of the drafter's, %s for keys and values", ui.Bytes(n.total()), ui.Bytes(n.weights), ui.Bytes(n.drafter), ui.Bytes(n.kv))
	switch {
	case have == 0:
		return doctor.Finding{Level: doctor.Note, Code: "memory", Text: what + ". How much this system has to give could not be found out."}
	case n.weights+n.drafter > have:
		return doctor.Finding{Level: doctor.Fault, Code: "memory", Text: fmt.Sprintf("%s. %s are available: not even the weights fit.", what, ui.Bytes(have))}
	case float64(n.total()) > tight*float64(have):
		return doctor.Finding{Level: doctor.Warning, Code: "memory", Text: fmt.Sprintf("%s. %s are available: set target.flags.context, or a lower concurrency.", what, ui.Bytes(have))}
	}
	return doctor.Finding{Level: doctor.OK, Code: "memory", Text: fmt.Sprintf("%s. %s are available.", what, ui.Bytes(have))}
}

// availableMemory is what Linux says can be had without swapping, within the limit of a container; 0 where nothing says.
func availableMemory(read func(string) ([]byte, error)) int64 {
	have := int64(math.MaxInt64)
	if text, err := read("/proc/meminfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
				if kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 50); err == nil {
					have = kib << 10
				}
			}
		}
	}
	const group = "/sys/fs/cgroup"
	if text, err := read(filepath.Join(group, "memory.max")); err == nil {
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			used := int64(0)
			if text, err := read(filepath.Join(group, "memory.current")); err == nil {
				used, _ = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // 0 if it is none
			}
			if text, err := read(filepath.Join(group, "memory.stat")); err == nil {
				used -= inactive(string(text))
			}
			have = min(have, max(1, limit-max(0, used)))
		}
	}
	if have == math.MaxInt64 {
		return 0
	}
	return have
}

// inactive is a container's cache of files that is given up before anything else.
func inactive(stat string) (bytes int64) {
	for line := range strings.Lines(stat) {
		if rest, ok := strings.CutPrefix(line, "inactive_file "); ok {
			bytes, _ = strconv.ParseInt(strings.TrimSpace(rest), 10, 64) // 0 if it is none
		}
	}
	return bytes
}
