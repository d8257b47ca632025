package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"draftlab/lab/explain"
	"draftlab/lab/store"
	"draftlab/lab/trial"
)

// Data is all that a report is made of.
type Data struct {
	Source      string             `json:"source"`             // the campaign's directory
	Result      json.RawMessage    `json:"result"`             // result.json
	Campaign    string             `json:"campaign,omitempty"` // the text of its file
	Explanation *explain.Report    `json:"explanation"`
	Unexplained string             `json:"unexplained,omitempty"` // why there is no explanation
	Boots       []trial.Boot       `json:"boots"`
	Trials      []Mark             `json:"trials"`
	Verdicts    []trial.Verdict    `json:"verdicts"`
	Predictions []trial.Prediction `json:"predictions"`
}

// Mark is what a timeline shows of a trial.
type Mark struct {
	Boot      int         `json:"boot"`
	Stage     trial.Stage `json:"stage"`
	Arm       string      `json:"arm"`
	Start     time.Time   `json:"start"`
	End       time.Time   `json:"end"`
	TokS      float64     `json:"tok_s"`          // of decoding; 0 if the output is too short to have a speed
	Bandwidth float64     `json:"bandwidth_gb_s"` // 0 if it was not read
	Failed    bool        `json:"failed,omitempty"`
}

// Read reads a campaign's directory: result.json, and the store beside it. A result without a store has no timeline and no verdict log.
func Read(dir string) (*Data, error) {
	path := filepath.Join(dir, "result.json")
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d, err := FromResult(source)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	d.Source = dir
	switch _, err := os.Stat(filepath.Join(dir, store.Database)); {
	case err == nil:
		return d, d.readStore(dir)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	return d, d.readSamples(filepath.Join(dir, store.Samples))
}

// readStore reads what the store has beside the result.
func (d *Data) readStore(dir string) (err error) {
	s, err := store.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	c, err := s.Campaign()
	if err != nil {
		return err
	}
	d.Campaign = c.File
	if d.Boots, err = s.Boots(); err != nil {
		return err
	}
	if d.Verdicts, err = s.Verdicts(); err != nil {
		return err
	}
	if d.Predictions, err = s.Predictions(); err != nil {
		return err
	}
	for t, err := range s.Trials() {
		if err != nil {
			return err
		}
		d.Trials = append(d.Trials, mark(t))
	}
	return nil
}

// readSamples reads the trials of a directory that has no store.
func (d *Data) readSamples(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := d.readTrials(f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// FromResult makes the data of a result.json alone.
func FromResult(source []byte) (*Data, error) {
	if _, err := parseResult(source); err != nil {
		return nil, err
	}
	d := &Data{Result: source, Boots: []trial.Boot{}, Trials: []Mark{}, Verdicts: []trial.Verdict{}, Predictions: []trial.Prediction{}}
	c, err := explain.Read("result.json", source)
	if err == nil {
		d.Explanation, err = explain.Analyse(c)
	}
	if err != nil {
		d.Unexplained = err.Error()
	}
	return d, nil
}

// readTrials reads trials, one JSON document each.
func (d *Data) readTrials(r io.Reader) error {
	dec := json.NewDecoder(bufio.NewReaderSize(r, 1<<20))
	for n := 1; ; n++ {
		t := new(trial.Trial)
		switch err := dec.Decode(t); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("trial %d: %w", n, err)
		case t.Sample != nil:
			d.Trials = append(d.Trials, mark(t))
		}
	}
}

func mark(t *trial.Trial) Mark {
	s := t.Sample
	begin := time.Unix(0, s.StartUnixNS).UTC()
	m := Mark{Boot: t.Boot, Stage: t.Stage, Arm: t.Arm, Start: begin, End: begin.Add(time.Duration(s.EndNS)), Bandwidth: t.Bandwidth / 1e9, Failed: s.Error != ""}
	if !m.Failed {
		m.TokS = s.DecodeTokS()
	}
	return m
}
