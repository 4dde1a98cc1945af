// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/snapshot"
)

// parseJournal splits the address of a journal into its scheme and the directory
// or the connection string.
func parseJournal(address string) (scheme, dir string, err error) {
	if address == "" {
		return "", "", nil
	}
	if dsn, ok := postgresAddress(address); ok {
		return "postgres", dsn, nil
	}
	scheme, dir, found := strings.Cut(address, ":")
	switch {
	case !found, scheme != "inmem" && scheme != "leveldb" && scheme != "nats", scheme != "leveldb" && dir != "":
		return "", "", fmt.Errorf("bench: --journal %q: it has to be inmem:, leveldb:, leveldb:DIR, nats:, postgres: or a URL of PostgreSQL", address)
	}
	return scheme, dir, nil
}

// database is a journal and a snapshot store of their own.
type database struct {
	journal   journal.Journal
	snapshots snapshot.Store
	dir       string
	schema    string
	close     func() error
}

// open opens an empty store; LevelDB's is a new folder in the one that was
// named, removed when the store is closed.
func (b *run) open(ctx context.Context) (*database, error) {
	if b.scheme == "postgres" {
		return b.openPostgres(ctx)
	}
	if b.scheme == "inmem" {
		j, s := inmem.NewJournal(), &inmem.SnapshotStore{}
		return &database{journal: j, snapshots: s, close: func() error { return errors.Join(j.Close(), s.Close()) }}, nil
	}
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	db, err := leveldb.Open(dir, leveldb.Config{})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &database{
		journal: db.Journal(), snapshots: db.Snapshots(), dir: dir,
		close: func() error { return errors.Join(db.Close(), os.RemoveAll(dir)) },
	}, nil
}

// folder makes an empty folder.
func (b *run) folder() (string, error) {
	if b.dir != "" {
		if err := os.MkdirAll(b.dir, 0o750); err != nil {
			return "", fmt.Errorf("bench: %w", err)
		}
	}
	dir, err := os.MkdirTemp(b.dir, "refold-bench-")
	if err != nil {
		return "", fmt.Errorf("bench: %w", err)
	}
	return dir, nil
}
