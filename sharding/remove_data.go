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

	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// removedEvent is the manifest of the record behind which a history begins anew. It never changes.
const removedEvent = "refold.sharding.removed"

// JournalData is what this package keeps under one persistence ID of a journal.
type JournalData struct {
	// ID is the persistence ID, Type the entity type that it is about.
	ID, Type string
	// Kind it is: "coordinator", "shards" (those that ever had a remembered entity), or "entities" (that are remembered, of one shard).
	Kind string
	// Highest is the highest sequence number. Events and Snapshots are how many there are.
	Highest   uint64
	Events    int
	Snapshots int
	// Last is when the last event was written, Writer which store has; none if there is no event.
	Last   time.Time
	Writer string
	// Removed says that nothing is kept any more.
	Removed bool
}

// FindData returns what this package keeps in the journal of some entity types, or of all if none is named, sorted by ID: where
// coordinators have put shards, and which entities are remembered. Kind cannot be understood is found as well. The error matches
// journal.ErrNoQueries if the journal can't list its IDs.
func (c JournalConfig) FindData(ctx context.Context, types ...string) ([]JournalData, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	var all []JournalData
	for id, err := range journal.CurrentIDs(ctx, c.Journal, JournalPrefix[:len(JournalPrefix)-1]) {
		if err != nil {
			return nil, fmt.Errorf("sharding: list the persistence IDs: %w", err)
		}
		if id > JournalPrefix && !strings.HasPrefix(id, JournalPrefix) {
			break
		}
		what, typ, ok := parseID(id)
		if !ok || len(types) > 0 && !slices.Contains(types, typ) {
			continue
		}
		d := JournalData{ID: id, Type: typ, Kind: what}
		if err := c.count(ctx, &d); err != nil {
			return nil, fmt.Errorf("sharding: look into %q: %w", id, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// parseID takes the ID of a ledger apart.
func parseID(id string) (what, typ string, ok bool) {
	parts := strings.Split(strings.TrimPrefix(id, JournalPrefix), "|")
	if !strings.HasPrefix(id, JournalPrefix) || len(parts) < 2 || parts[1] == "" {
		return "", "", false
	}
	switch parts[0] {
	case "coordinator", "shards":
	case "entities":
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

// count looks what there is.
func (c JournalConfig) count(ctx context.Context, d *JournalData) (err error) {
	if d.Highest, err = c.Journal.HighestSequenceNr(ctx, d.ID); err != nil {
		return err
	}
	for e, err := range c.Journal.Replay(ctx, d.ID, 1, journal.MaxSequenceNr) {
		if err != nil {
			return err
		}
		d.Events++
		d.Last, d.Writer, d.Removed = e.Time, e.Writer, e.Manifest == removedEvent
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

// RemoveData removes what FindData has found under an ID, for good, so that the next coordinator, or owner of the shard, begins with nothing. It is
// for what can't be repaired, such as after two clusters have run on one journal, and for types that are gone. No node that hosts the type
// may run: it would go on with what it knows.
//
// First a record is appended behind which the history begins anew, where it ended when it was found: the error matches ErrConflict if
// somebody has written since, and nothing is removed then. The rest is cleaning up, and is done again by a second call.
func (c JournalConfig) RemoveData(ctx context.Context, d JournalData) error {
	if err := c.validate(); err != nil {
		return err
	}
	what, typ, ok := parseID(d.ID)
	if !ok {
		return fmt.Errorf("%w: %q is not the persistence ID of anything that this package keeps", ErrInvalid, d.ID)
	}
	if d.Removed || d.Highest == 0 {
		return nil
	}
	open, _, err := c.ledgers(Scope{Type: typ})
	if err != nil {
		return err
	}
	l := open(what, "", "", "")
	l.id = d.ID // which may have a number and a role
	at := d.Highest
	last, err := c.lastRecord(ctx, d)
	if err == nil && last != removedEvent {
		h := head{rev: d.Highest, time: d.Last}
		h, err = l.write(ctx, h, []journal.Event{{SequenceNr: h.rev + 1, Time: h.next(), Manifest: removedEvent}})
		if errors.Is(err, journal.ErrConflict) {
			return fmt.Errorf("%w: somebody writes to %q: a node runs", ErrConflict, d.ID)
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
func (c JournalConfig) lastRecord(ctx context.Context, d JournalData) (manifest string, err error) {
	for e, err := range c.Journal.Replay(ctx, d.ID, d.Highest, d.Highest) {
		if err != nil {
			return "", err
		}
		manifest = e.Manifest
	}
	return manifest, nil
}
