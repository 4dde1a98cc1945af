// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refold-io/refold/internal/shardcore/stored"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// JournalData describes the data of this package under one persistence ID of a journal.
type JournalData struct {
	// ID is the persistence ID, Type the entity type.
	ID, Type string
	// Kind is "coordinator", "shards" (the shards that ever had a remembered entity), "entities" (the
	// remembered entities of one shard), or "pendingshards" and "pending" for the index of Options.Wake.
	Kind string
	// Highest is the highest sequence number. Events and Snapshots are the numbers of stored events
	// and snapshots.
	Highest   uint64
	Events    int
	Snapshots int
	// Last is the time of the last event, Writer the ID of the store that wrote it. Both are zero
	// without events.
	Last   time.Time
	Writer string
	// Removed reports that RemoveData has removed the data.
	Removed bool
}

// FindData returns the data of this package in the journal for some entity types, or for all types
// if none is given, sorted by ID. Data that cannot be decoded is included. The error matches
// journal.ErrNoQueries if the journal cannot list its IDs.
func (c JournalStores) FindData(ctx context.Context, types ...string) ([]JournalData, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	var all []JournalData
	lister, ok := journal.As[journal.IDLister](c.Journal)
	if !ok {
		return nil, fmt.Errorf("sharding: list the persistence IDs: %w: %T", journal.ErrNoQueries, c.Journal)
	}
	for id, err := range lister.PersistenceIDs(ctx, JournalPrefix[:len(JournalPrefix)-1]) {
		if err != nil {
			return nil, fmt.Errorf("sharding: list the persistence IDs: %w", err)
		}
		if id > JournalPrefix && !strings.HasPrefix(id, JournalPrefix) {
			break
		}
		subject, typ, ok := parseID(id)
		if !ok || len(types) > 0 && !slices.Contains(types, typ) {
			continue
		}
		d := JournalData{ID: id, Type: typ, Kind: subject}
		if err := c.count(ctx, &d); err != nil {
			return nil, fmt.Errorf("sharding: read %q: %w", id, err)
		}
		all = append(all, d)
	}
	return all, nil
}

func parseID(id string) (subject, typ string, ok bool) {
	parts := strings.Split(strings.TrimPrefix(id, JournalPrefix), "|")
	if !strings.HasPrefix(id, JournalPrefix) || len(parts) < 2 || parts[1] == "" {
		return "", "", false
	}
	switch parts[0] {
	case "coordinator", "shards", "pendingshards":
	case "entities", "pending":
		if len(parts) < 3 {
			return "", "", false
		}
		if _, err := strconv.ParseUint(parts[2], 10, 32); err != nil {
			return "", "", false
		}
	default:
		return "", "", false
	}
	return parts[0], parts[1], true
}

func (c JournalStores) count(ctx context.Context, d *JournalData) (err error) {
	if d.Highest, err = c.Journal.HighestSequenceNr(ctx, d.ID); err != nil {
		return err
	}
	for e, err := range c.Journal.Replay(ctx, d.ID, 1, journal.MaxSequenceNr) {
		if err != nil {
			return err
		}
		d.Events++
		d.Last, d.Writer, d.Removed = e.Time, e.Writer, e.Manifest == stored.Removed
	}
	if c.Snapshots == nil {
		return nil
	}
	for _, err := range c.Snapshots.List(ctx, d.ID, snapshot.Latest()) {
		if err != nil {
			return err
		}
		d.Snapshots++
	}
	d.Removed = d.Removed && d.Snapshots == 0 && d.Events == 1
	return nil
}

// RemoveData removes data that FindData returned, so that the next coordinator or owner of the
// shard begins without this data. Use RemoveData for data that cannot be repaired, such as after
// two clusters have used one journal, and for types that no longer exist. No node that hosts the
// type may run, because this node would continue with its own state.
//
// First, RemoveData appends a record that begins an empty history. The record must follow the last
// event that FindData found. If the history has changed since, the error matches ErrConflict and
// nothing is removed. RemoveData then deletes the old records. If the deletion fails, call
// RemoveData again.
func (c JournalStores) RemoveData(ctx context.Context, d JournalData) error {
	if err := c.validate(); err != nil {
		return err
	}
	subject, typ, ok := parseID(d.ID)
	if !ok {
		return fmt.Errorf("%w: %q is not a persistence ID of this package", ErrInvalid, d.ID)
	}
	if d.Removed || d.Highest == 0 {
		return nil
	}
	open, err := c.ledgers(Scope{Type: typ})
	if err != nil {
		return err
	}
	l := open(subject, "", "", "", 0)
	l.id = d.ID // the ID may contain a shard and a role
	at := d.Highest
	last, err := c.lastRecord(ctx, d)
	if err == nil && last != stored.Removed {
		h := head{rev: d.Highest, time: d.Last}
		h, err = l.write(ctx, h, []journal.Event{{SequenceNr: h.rev + 1, Time: h.next(), Manifest: stored.Removed}})
		if errors.Is(err, journal.ErrConflict) {
			return fmt.Errorf("%w: %q has changed: a node runs", ErrConflict, d.ID)
		}
		at = h.rev
	}
	if err != nil {
		return fmt.Errorf("sharding: remove %q: %w", d.ID, err)
	}
	if at > 1 {
		if err := c.Journal.DeleteTo(ctx, d.ID, at-1); err != nil {
			return fmt.Errorf("sharding: remove the events of %q: %w", d.ID, err)
		}
	}
	if c.Snapshots != nil {
		if err := c.Snapshots.Delete(ctx, d.ID, snapshot.UpTo(at)); err != nil {
			return fmt.Errorf("sharding: remove the snapshots of %q: %w", d.ID, err)
		}
	}
	return nil
}

// lastRecord returns the manifest of the last record, empty if it was deleted.
func (c JournalStores) lastRecord(ctx context.Context, d JournalData) (manifest string, err error) {
	for e, err := range c.Journal.Replay(ctx, d.ID, d.Highest, d.Highest) {
		if err != nil {
			return "", err
		}
		manifest = e.Manifest
	}
	return manifest, nil
}
