// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package store defines the database of a runtime: a journal and a snapshot store that are opened
// and closed together. The plugins leveldb, postgres and inmem open such databases. [Of] joins a
// journal and a snapshot store of different origin.
//
//	db, err := leveldb.Open("bank-data", leveldb.Config{})
//	if err != nil {
//		return err
//	}
//	defer db.Close()
//	rt, err := eventsourcing.Open(eventsourcing.Config{Store: db})
//
// *leveldb.DB and *postgres.DB implement [DB], so one variable holds a database of either kind:
//
//	var db store.DB
//	switch kind {
//	case "leveldb":
//		db, err = leveldb.Open("bank-data", leveldb.Config{})
//	case "postgres":
//		db, err = postgres.Open(ctx, dsn, postgres.Config{})
//	}
package store

import (
	"errors"

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// DB is an open database. Its methods are safe for concurrent use.
type DB interface {
	// Journal returns the journal, the same one each time, or nil if there is none. Optional
	// interfaces, such as journal.Querier, are found with journal.As.
	Journal() journal.Journal
	// Snapshots returns the snapshot store, the same one each time, or nil if there is none.
	Snapshots() snapshot.Store
	// Close closes both, and waits for the calls in progress. The caller of Open closes the
	// database after everything that uses it: runtimes, projections and clusters do not close it. A
	// second Close returns nil.
	Close() error
}

// Of returns a DB that consists of a journal and a snapshot store, either of which may be nil.
// Close closes both.
func Of(j journal.Journal, s snapshot.Store) DB { return parts{j, s} }

type parts struct {
	journal   journal.Journal
	snapshots snapshot.Store
}

// Journal implements DB.
func (p parts) Journal() journal.Journal { return p.journal }

// Snapshots implements DB.
func (p parts) Snapshots() snapshot.Store { return p.snapshots }

// Close implements DB.
func (p parts) Close() error {
	var errs []error
	if p.journal != nil {
		errs = append(errs, p.journal.Close())
	}
	if p.snapshots != nil {
		errs = append(errs, p.snapshots.Close())
	}
	return errors.Join(errs...)
}
