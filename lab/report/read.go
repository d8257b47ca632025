package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"draftlab/lab/campaign"
	"draftlab/lab/explain"
	"draftlab/lab/store"
	"draftlab/lab/trial"
)

// Data is all that a report is made of.
type Data struct {
	Source      string          `json:"source"` // the campaign's directory
	Result      json.RawMessage `json:"result"` // as result.json has it
	Explanation *explain.Report `json:"explanation"`
	Unexplained string          `json:"unexplained,omitempty"` // why there is no explanation
	Trials      []Mark          `json:"trials"`
	result      *result
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

// Read reads a campaign's directory: the store, also of a campaign that goes on or was killed, or a result.json alone, which has no
// timeline and no verdict log.
func Read(dir string) (*Data, error) {
	if _, err := os.Stat(filepath.Join(dir, store.Database)); err != nil {
		return readResult(dir)
	}
	s, err := store.Open(dir)
	if err != nil {
		return nil, err
	}
	d, err := readStore(s)
	if err = errors.Join(err, s.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	d.Source = dir
	return d, nil
}

// readResult reads a result.json that has no store beside it.
func readResult(dir string) (*Data, error) {
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
	return d, nil
}

// readStore makes a result of a store and reads the rest.
func readStore(s *store.Store) (*Data, error) {
	r, err := campaign.Analyse(s)
	if err != nil {
		return nil, err
	}
	source, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	d, err := FromResult(source)
	if err != nil {
		return nil, err
	}
	return d, d.addTrials(s)
}

// addTrials puts a store's trials on the timeline.
func (d *Data) addTrials(s *store.Store) error {
	for t, err := range s.Trials() {
		if err != nil {
			return err
		}
		d.Trials = append(d.Trials, mark(t))
	}
	return nil
}

// FromResult makes the data of a result.json alone.
func FromResult(source []byte) (*Data, error) {
	r, err := parseResult(source)
	if err != nil {
		return nil, err
	}
	d := &Data{Result: source, result: r, Trials: []Mark{}}
	c, err := explain.Read("result.json", source)
	if err == nil {
		d.Explanation, err = explain.Analyse(c)
	}
	if err != nil {
		d.Unexplained = err.Error()
	}
	return d, nil
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
