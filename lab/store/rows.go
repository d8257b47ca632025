package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"time"

	"draftlab/lab/trial"
)

// Campaign returns what was known before the first boot, and the state that was set last.
func (s *Store) Campaign() (*Campaign, error) {
	var c Campaign
	var created, build, state string
	var seed int64
	if err := s.db.QueryRow("select created, seed, file, build, state from campaign").Scan(&created, &seed, &c.File, &build, &state); err != nil {
		return nil, err
	}
	t, err := time.Parse(time.RFC3339Nano, created)
	c.Created, c.Seed, c.Build, c.State = t, uint64(seed), json.RawMessage(build), json.RawMessage(state)
	return &c, err
}

// SetState keeps what a campaign has decided.
func (s *Store) SetState(state json.RawMessage) error {
	_, err := s.db.Exec("update campaign set state = ?", document(state))
	return err
}

// AddBoot adds a boot and gives it its number.
func (s *Store) AddBoot(b *trial.Boot) error {
	if err := s.db.QueryRow("select coalesce(max(id), 0) + 1 from boots").Scan(&b.ID); err != nil {
		return err
	}
	return s.PutBoot(b)
}

// PutBoot keeps what has become of a boot.
func (s *Store) PutBoot(b *trial.Boot) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	_, err = s.db.Exec(`insert into boots values (?, ?, ?, ?, ?, ?)
		on conflict (id) do update set ready_s = excluded.ready_s, cause = excluded.cause, document = excluded.document`,
		b.ID, b.Name, stamp(b.Started), b.ReadyS, b.Cause, string(text))
	return err
}

// Boots returns all boots in the order of their starts.
func (s *Store) Boots() ([]trial.Boot, error) { return documents[trial.Boot](s, "boots") }

// PutVerdict adds an entry of the verdict log, or keeps what has become of one: those whose ID is 0 are new and get one. A hypothesis
// that nothing is known about yet has no outcome.
func (s *Store) PutVerdict(v *trial.Verdict) error {
	if v.ID == 0 {
		if err := s.db.QueryRow("select coalesce(max(id), 0) + 1 from verdicts").Scan(&v.ID); err != nil {
			return err
		}
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = s.db.Exec("insert or replace into verdicts values (?, ?, ?, ?)", v.ID, v.Hypothesis, string(v.Outcome), string(text))
	return err
}

// Verdicts returns the verdict log.
func (s *Store) Verdicts() ([]trial.Verdict, error) { return documents[trial.Verdict](s, "verdicts") }

// AddPrediction keeps what a model said before it was measured.
func (s *Store) AddPrediction(p *trial.Prediction) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = s.db.Exec("insert into predictions (arm, quantity, document) values (?, ?, ?)", p.Arm, p.Quantity, string(text))
	return err
}

// Predictions returns all predictions in the order in which they were made.
func (s *Store) Predictions() ([]trial.Prediction, error) {
	return documents[trial.Prediction](s, "predictions")
}

// documents reads a table of documents.
func documents[T any](s *Store, table string) (out []T, err error) {
	rows, err := s.db.Query("select id, document from " + table + " order by id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int
		var text string
		if err := rows.Scan(&id, &text); err != nil {
			return nil, err
		}
		var v T
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return nil, fmt.Errorf("%s: table %s, id %d: %w", Database, table, id, err)
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// Note is something that a campaign met and that its result tells.
type Note struct {
	At         time.Time
	Kind, Text string
}

// Note keeps a note.
func (s *Store) Note(kind, text string) error {
	_, err := s.db.Exec("insert into notes (at, kind, text) values (?, ?, ?)", stamp(time.Now()), kind, text)
	return err
}

// Notes returns all notes in order.
func (s *Store) Notes() (notes []Note, err error) {
	rows, err := s.db.Query("select at, kind, text from notes order by id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var n Note
		var at string
		if err := rows.Scan(&at, &n.Kind, &n.Text); err != nil {
			return nil, err
		}
		if n.At, err = time.Parse(time.RFC3339Nano, at); err != nil {
			return nil, err
		}
		notes = append(notes, n)
	}
	return notes, rows.Err()
}

// AddTrials keeps trials: all of them, or after a sudden end or an error none. Their lines are on the disk when it returns, and their rows
// with the system.
func (s *Store) AddTrials(trials ...*trial.Trial) (err error) {
	s.adding.Lock()
	defer s.adding.Unlock()
	if s.samples == nil {
		return errors.New("store: it was opened to be read")
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.samples.Truncate(s.end))
		}
	}()
	var lines bytes.Buffer
	tx, err := s.db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after a commit
	for _, t := range trials {
		line, err := json.Marshal(t)
		if err != nil {
			return err
		}
		from := s.end + int64(lines.Len())
		lines.Write(line)
		lines.WriteByte('\n')
		if _, err := tx.Exec(`insert into trials (boot, stage, block, pair, arm, against, prompt, category, error, sample_offset, sample_bytes)
			values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, t.Boot, string(t.Stage), t.Block, t.Pair, t.Arm, t.Against, t.Prompt, t.Category,
			t.Sample.Error, from, len(line)+1); err != nil {
			return err
		}
	}
	if _, err := s.samples.WriteAt(lines.Bytes(), s.end); err != nil {
		return err
	}
	if err := s.samples.Sync(); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.end += int64(lines.Len())
	return nil
}

// span is where a trial's line lies.
type span struct {
	id             int
	offset, length int64
}

// Trials goes through all trials in the order in which they were kept. It ends with the first error.
func (s *Store) Trials() iter.Seq2[*trial.Trial, error] {
	return func(yield func(*trial.Trial, error) bool) {
		spans, err := s.spans()
		if err != nil {
			yield(nil, err)
			return
		}
		f, err := os.Open(filepath.Join(s.dir, Samples))
		if err != nil {
			yield(nil, err)
			return
		}
		defer f.Close()
		for _, at := range spans {
			t := new(trial.Trial)
			line := make([]byte, at.length)
			_, err := f.ReadAt(line, at.offset)
			if errors.Is(err, io.EOF) { // cut off, and not mended yet
				return
			}
			if err == nil {
				err = json.Unmarshal(line, t)
			}
			if err == nil && t.Sample == nil {
				err = errors.New("it has no sample")
			}
			if err != nil {
				yield(nil, fmt.Errorf("%s, byte %d: trial %d: %w", Samples, at.offset, at.id, err))
				return
			}
			if !yield(t, nil) {
				return
			}
		}
	}
}

func (s *Store) spans() (spans []span, err error) {
	rows, err := s.db.Query("select id, sample_offset, sample_bytes from trials order by id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var at span
		if err := rows.Scan(&at.id, &at.offset, &at.length); err != nil {
			return nil, err
		}
		spans = append(spans, at)
	}
	return spans, rows.Err()
}
