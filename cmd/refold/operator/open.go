// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/snapshot"
)

// Source is what the commands look into.
type Source struct {
	// Journal is the journal. Required.
	Journal journal.Journal
	// Snapshots is the snapshot store that belongs to it. Defaults to none.
	Snapshots snapshot.Store
	// Close frees both. Required.
	Close func() error
}

// Open opens the journal and the snapshots at an address for reading:
//
//	leveldb:DIR  the directory of a LevelDB journal
//
// Nothing is created or changed.
func Open(_ context.Context, address string) (*Source, error) {
	scheme, dir, _ := strings.Cut(address, ":")
	if scheme != "leveldb" || dir == "" {
		return nil, fmt.Errorf("journal %q: there is leveldb:DIR", address)
	}
	if err := checkDir(dir); err != nil {
		return nil, fmt.Errorf("journal %q: %w", address, err)
	}
	db, err := leveldb.Open(dir, leveldb.Config{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	return &Source{Journal: db.Journal(), Snapshots: db.Snapshots(), Close: db.Close}, nil
}

// checkDir returns an error if a directory holds no database for sure: to open
// it would leave a lock there, or tell less clearly what is wrong.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("there is no such directory; --journal leveldb:DIR names another")
	case err != nil:
		return err
	case !info.IsDir():
		return errors.New("it is not a directory")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "CURRENT") {
			return nil
		}
	}
	return errors.New("there is no LevelDB journal in this directory")
}

// journalFlag is the flag that all commands share which look into a journal.
type journalFlag struct {
	Journal string `help:"The journal to look into, leveldb:DIR. Defaults to ${journal}." default:"${journal}" placeholder:"ADDRESS"`
}

// with opens the journal for a function.
func (f *journalFlag) with(ctx context.Context, env *Env, do func(*Source) error) (err error) {
	src, err := env.open(ctx, f.Journal)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	return do(src)
}

// damaged tells the errors that say that stored data is not as it should be.
func damaged(err error) bool {
	for _, target := range []error{
		journal.ErrCorrupt, journal.ErrHistoryGap, journal.ErrViolation, snapshot.ErrCorrupt,
		codec.ErrUnknown, codec.ErrMalformed, codec.ErrLimit,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	_, panicked := errors.AsType[*eventsourcing.PanicError](err)
	return panicked
}
