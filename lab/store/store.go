// Package store keeps a campaign in a directory: draftlab.db, an SQLite database of boots, trials, verdicts and predictions, and
// beside it samples.jsonl, a line for each trial with everything that was measured. Whatever becomes of the process, a trial that
// [Store.AddTrials] has returned for is kept: the line is on the disk before the row that points to it is written.
//
// A campaign may be killed at any instant. [Resume] finds the last trial that was kept whole and cuts off what follows it; [Open]
// only reads, also while a campaign runs. Nothing is averaged before it is stored, and nothing here knows what it means.
package store

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"modernc.org/sqlite" // and the driver of that name
	sqlite3 "modernc.org/sqlite/lib"
)

// Names of the files in a campaign's directory.
const (
	Database = "draftlab.db"
	Samples  = "samples.jsonl"
	lockFile = "draftlab.lock"
)

// Store is an open campaign. Its methods may be called by several goroutines.
type Store struct {
	dir  string
	db   *sql.DB
	lock *sql.DB // holds the lock of whoever writes; nil if it is only read

	adding  sync.Mutex // guards what follows
	samples *os.File   // nil if it is only read
	end     int64      // offset behind the last line that a row points to
}

// Campaign is what is known before the first boot.
type Campaign struct {
	Created time.Time
	Seed    uint64
	File    string          // the campaign file's text
	Build   json.RawMessage // of the program that wrote the store
	State   json.RawMessage // what the campaign has decided on its way, such as how much it measures: its own to write and read
}

// schema is written once. Times are RFC 3339 with nanoseconds, in UTC. The columns are what one asks for in SQL; document is
// the whole, as package trial has it.
const schema = `
create table campaign (one integer primary key check (one = 1), format integer not null, created text not null,
	seed integer not null, file text not null, build text not null, state text not null) strict;
create table boots (id integer primary key, name text not null, started text not null, ready_s real not null,
	cause text not null, document text not null) strict;
create table trials (id integer primary key, boot integer not null references boots (id), stage text not null, block integer not null,
	pair integer not null, arm text not null, against text not null, prompt text not null, category text not null,
	error text not null, sample_offset integer not null, sample_bytes integer not null) strict;
create table verdicts (id integer primary key, hypothesis text not null, outcome text not null, document text not null) strict;
create table predictions (id integer primary key, arm text not null, quantity text not null, document text not null) strict;
create table notes (id integer primary key, at text not null, kind text not null, text text not null) strict;`

// format is the number of the schema.
const format = 1

// Create makes a store in a directory, which it creates as well, for the caller to close. Killed at any moment, it leaves a directory
// that either holds a campaign, for Resume, or can be given to Create again.
func Create(dir string, c *Campaign) (*Store, error) {
	if err := taken(dir); err != nil { // also while somebody works on it
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	lock, err := acquire(dir)
	if err != nil {
		return nil, err
	}
	if err = taken(dir); err == nil { // or somebody was faster
		err = create(dir, c)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return locked(dir, lock)
}

// taken is an error for a directory with a campaign, or with samples that a new one would lose. The empty file of samples that is left
// of a Create which was killed is no campaign.
func taken(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, Database)); err == nil {
		return &ExistsError{Dir: dir, File: Database}
	}
	if info, err := os.Lstat(filepath.Join(dir, Samples)); err == nil && !(info.Mode().IsRegular() && info.Size() == 0) {
		return &ExistsError{Dir: dir, File: Samples}
	}
	return nil
}

// create writes the database under another name first, so that one which is there is whole, and so is all that belongs to it.
func create(dir string, c *Campaign) (err error) {
	path := filepath.Join(dir, Database+".new")
	for _, left := range []string{"", "-journal", "-wal", "-shm"} { // of one that was killed
		if err := os.Remove(path + left); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	db, err := open(path, "rwc")
	if err != nil {
		return err
	}
	_, err = db.Exec(schema)
	if err == nil {
		_, err = db.Exec("insert into campaign values (1, ?, ?, ?, ?, ?, ?)", format, stamp(c.Created), int64(c.Seed), c.File, document(c.Build), document(c.State))
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	samples, err := os.OpenFile(filepath.Join(dir, Samples), os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if err := errors.Join(samples.Sync(), samples.Close()); err != nil {
		return err
	}
	return os.Rename(path, filepath.Join(dir, Database))
}

// ExistsError is a directory that holds a campaign already.
type ExistsError struct{ Dir, File string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("%s holds a campaign already (%s)", e.Dir, e.File)
}

// BusyError is a campaign that another process works on.
type BusyError struct{ Dir string }

func (e *BusyError) Error() string { return e.Dir + ": another process works on this campaign" }

// AbsentError is a directory without a campaign.
type AbsentError struct{ Dir string }

func (e *AbsentError) Error() string {
	return fmt.Sprintf("%s holds no campaign (no %s)", e.Dir, Database)
}

// Open opens a store to read it.
func Open(dir string) (*Store, error) {
	return attach(dir, "ro")
}

// Resume opens a store to go on with its campaign: it takes the lock that only one process has, and mends what a sudden end has
// left. Trials whose samples are not on the disk any more are taken out, with a note that says how many.
func Resume(dir string) (*Store, error) {
	if err := present(dir); err != nil {
		return nil, err
	}
	lock, err := acquire(dir)
	if err != nil {
		return nil, err
	}
	return locked(dir, lock)
}

// locked opens a store to go on with it under a lock, which is the store's from now on.
func locked(dir string, lock *sql.DB) (*Store, error) {
	s, err := attach(dir, "rw")
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	s.lock = lock
	if err := s.mend(); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// present is an error for a directory without a campaign, or one that cannot be looked into.
func present(dir string) error {
	_, err := os.Stat(filepath.Join(dir, Database))
	if errors.Is(err, fs.ErrNotExist) {
		return &AbsentError{dir}
	}
	return err
}

// attach opens the database of a directory; the mode is SQLite's.
func attach(dir, mode string) (*Store, error) {
	if err := present(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, Database)
	db, err := open(path, mode)
	if err != nil {
		return nil, err
	}
	var have int
	err = db.QueryRow("select format from campaign").Scan(&have)
	if err == nil && have != format {
		err = fmt.Errorf("its format is %d; this program reads %d: use the program that wrote it", have, format)
	}
	if err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Store{dir: dir, db: db}, nil
}

// open opens a database file with one connection. While one process writes ("rw") others may read. A commit outlives the process; what the
// system itself loses when it stops are the last commits, never the order of them. One that is created ("rwc") has no log of changes
// beside it, since its file is renamed: SQLite does not say that it could not take a log in, on a full disk.
func open(path, mode string) (*sql.DB, error) {
	pragmas := []string{"busy_timeout(5000)", "foreign_keys(on)"}
	if mode == "rw" {
		pragmas = append(pragmas, "journal_mode(wal)", "synchronous(normal)")
	}
	query := url.Values{"mode": {mode}, "_pragma": pragmas}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: query.Encode()}).String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// acquire takes the lock of a directory: an exclusive transaction on a database of its own, which the system ends with the process.
func acquire(dir string) (*sql.DB, error) {
	path := filepath.Join(dir, lockFile)
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}).String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.Exec("begin exclusive")
	if err == nil {
		return db, nil
	}
	_ = db.Close()
	if refused := (*sqlite.Error)(nil); errors.As(err, &refused) && refused.Code()&0xff == sqlite3.SQLITE_BUSY { // the low byte is the class
		return nil, &BusyError{dir}
	}
	return nil, fmt.Errorf("cannot lock the campaign with %s: %w", path, err)
}

// mend brings rows and samples together again.
func (s *Store) mend() error {
	path := filepath.Join(s.dir, Samples)
	f, err := os.OpenFile(path, os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("the raw samples are gone: %w", err)
	}
	s.samples = f
	info, err := f.Stat()
	if err != nil {
		return err
	}
	gone, err := s.db.Exec("delete from trials where sample_offset + sample_bytes > ?", info.Size())
	if err != nil {
		return err
	}
	if n, _ := gone.RowsAffected(); n > 0 { // the driver always knows
		if err := s.Note("lost", fmt.Sprintf("%d trials had no sample in %s any more and were taken out", n, Samples)); err != nil {
			return err
		}
	}
	if err := s.db.QueryRow("select coalesce(max(sample_offset + sample_bytes), 0) from trials").Scan(&s.end); err != nil {
		return err
	}
	if err := f.Truncate(s.end); err != nil {
		return err
	}
	return f.Sync()
}

// Close closes the store. One that was written becomes a single file again.
func (s *Store) Close() error {
	var errs []error
	if s.samples != nil {
		_, _ = s.db.Exec("pragma journal_mode = delete") // fails while somebody reads; the log of changes stays then
		errs = append(errs, s.samples.Close())
	}
	errs = append(errs, s.db.Close())
	if s.lock != nil {
		errs = append(errs, s.lock.Close()) // the file stays: whoever waited for it would hold a file that is none any more
	}
	return errors.Join(errs...)
}

// Dir returns the store's directory.
func (s *Store) Dir() string { return s.dir }

// stamp is a time as the database has it.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// document is a JSON text, null for none.
func document(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "null"
	}
	return string(raw)
}
