// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/snapshot"
)

// Source is an open journal with its snapshots.
type Source struct {
	// Journal is the journal. Required.
	Journal journal.Journal
	// Snapshots is the snapshot store of the journal. Defaults to none.
	Snapshots snapshot.Store
	// NoWriters promises that no program appends to the journal while it is open. The command tail
	// then does not wait for further events. Defaults to false.
	NoWriters bool
	// VerifyOrder checks that queries find all events. If an event is missing, the error matches
	// journal.ErrCorrupt. Defaults to none, for a journal whose order is complete by construction.
	VerifyOrder func(context.Context) error
	// Close closes the journal and the snapshot store. Required.
	Close func() error
}

// Database opens the journals of a database server. Package pgjournal has the one for PostgreSQL.
type Database struct {
	// Schemes are the address schemes of the server, such as "postgres". Required.
	Schemes []string
	// Forms shows the forms of an address, for error messages. Required.
	Forms string
	// Open opens the journal at an address for reading; OpenTarget opens it for writing and creates
	// missing tables. Required.
	Open, OpenTarget func(ctx context.Context, address string) (*Source, error)
	// Commands are subcommands for this kind of database. Defaults to none.
	Commands []Command
}

// Open opens the journal and the snapshots at an address for reading. The address is leveldb:DIR,
// or an address of one of the program's databases. Open creates and changes nothing.
func (e *Env) Open(ctx context.Context, address string) (*Source, error) {
	if e.open != nil {
		return e.open(ctx, address)
	}
	dir, db, err := e.parse(address)
	switch {
	case err != nil:
		return nil, err
	case db != nil:
		return db.Open(ctx, address)
	}
	if err := checkDir(dir); err != nil {
		return nil, fmt.Errorf("journal %q: %w", address, err)
	}
	return openLevelDB(dir, leveldb.Config{ReadOnly: true})
}

// OpenTarget opens the journal and the snapshots at an address for writing, and creates missing
// directories and tables. The addresses are those of Open.
func (e *Env) OpenTarget(ctx context.Context, address string) (*Source, error) {
	if e.openTarget != nil {
		return e.openTarget(ctx, address)
	}
	dir, db, err := e.parse(address)
	switch {
	case err != nil:
		return nil, err
	case db != nil:
		return db.OpenTarget(ctx, address)
	}
	if err := checkDir(dir); errors.Is(err, journal.ErrCorrupt) {
		return nil, err
	}
	return openLevelDB(dir, leveldb.Config{})
}

// parse returns the directory of a LevelDB journal, or the database of another address.
func (e *Env) parse(address string) (dir string, db *Database, err error) {
	scheme, rest, found := strings.Cut(address, ":")
	forms := []string{"leveldb:DIR"}
	for i := range e.databases {
		db := &e.databases[i]
		if found && slices.Contains(db.Schemes, scheme) {
			return "", db, nil
		}
		forms = append(forms, db.Forms)
	}
	if scheme == "leveldb" && rest != "" {
		return rest, nil, nil
	}
	return "", nil, fmt.Errorf("journal %q: this program cannot open such an address; expected %s", Redact(address), strings.Join(forms, ", "))
}

func openLevelDB(dir string, cfg leveldb.Config) (*Source, error) {
	db, err := leveldb.Open(dir, cfg)
	if err != nil {
		return nil, err
	}
	return &Source{Journal: db.Journal(), Snapshots: db.Snapshots(), NoWriters: cfg.ReadOnly, VerifyOrder: db.VerifyOrder, Close: db.Close}, nil
}

// The files of a LevelDB database: its entry point, and its data.
var (
	beginning = regexp.MustCompile(`^CURRENT`)
	data      = regexp.MustCompile(`^(MANIFEST-\d+|\d+\.(log|ldb|sst))$`)
)

// checkDir returns an error if a directory cannot be a database. Opening it would leave a lock file
// there and return a less specific error.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("the directory does not exist; select another one with --journal leveldb:DIR")
	case err != nil:
		return err
	case !info.IsDir():
		return errors.New("not a directory")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	has := func(pattern *regexp.Regexp) bool {
		return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return pattern.MatchString(e.Name()) })
	}
	switch {
	case has(beginning):
		return nil
	case has(data):
		return &journal.CorruptError{File: filepath.Join(dir, "CURRENT"), Offset: -1, Detail: "the file is missing, but other files of a journal exist"}
	}
	return errors.New("the directory contains no LevelDB journal")
}

type journalFlag struct {
	Journal string `help:"The journal: leveldb:DIR; postgres://USER@HOST/DATABASE, with ?schema=NAME for a schema other than refold; or postgres: for the database in REFOLD_POSTGRES or the PG... variables. Defaults to ${shown}." default:"${journal}" placeholder:"ADDRESS"`
}

func (f *journalFlag) with(ctx context.Context, env *Env, do func(*Source) error) (err error) {
	src, err := env.Open(ctx, f.Journal)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	return do(src)
}

// secrets match passwords: in a URL after the user name, and as the value of a keyword or parameter.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`(\w://[^:/@\s"']*:)(\S*)(@)`),
	regexp.MustCompile(`((?i:password)=)('(?:[^'\\]|\\.)*'|[^\s&'"]+)()`),
}

// Redact returns text with passwords replaced: those in addresses, and those after "password=".
// Error messages quote arguments, and an argument in the wrong place may be an address.
func Redact(text string) string {
	for _, secret := range secrets {
		text = secret.ReplaceAllString(text, "${1}xxxxx${3}")
	}
	return text
}
