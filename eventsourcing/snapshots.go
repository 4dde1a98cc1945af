// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// Snapshots configures when the state of an entity is saved, how, and what is deleted afterwards.
// The zero value saves none.
type Snapshots[S, E any] struct {
	// Every saves a snapshot with each event whose sequence number is a multiple of it; of a unit
	// of several events one snapshot, at its end. 0 means never.
	Every int
	// When, if it is not nil, saves a further snapshot after each event for which it returns true.
	// It is called after the event was applied.
	When func(state *S, event E, seqNr uint64) bool
	// Keep deletes, after a successful save, the snapshots that are Keep times Every events older,
	// or more. It needs Every. 0 keeps all.
	Keep int
	// DeleteEvents also deletes the events that the oldest kept snapshot covers. It needs Keep.
	DeleteEvents bool
	// Optional makes a recovery replay all events when the snapshot store fails. It excludes
	// DeleteEvents.
	Optional bool
	// Version is the version of the state, 1 by default. Raise it when the state gets another
	// meaning because Apply was changed: snapshots of other versions are ignored, and more events
	// replayed, all of them if need be. Where events were deleted the entity can't be recovered
	// then: use State there.
	Version int
	// State, if it is not nil, is the form in which snapshots hold the state, see StateAs. Defaults
	// to the state itself. Version does not concern it.
	State *StateForm[S]
}

// configured reports whether the policy saves or reads snapshots by itself.
func (p *Snapshots[S, E]) configured() bool {
	return p.Every != 0 || p.Keep != 0 || p.DeleteEvents || p.Optional
}

func (p *Snapshots[S, E]) validate() error {
	var errs []error
	add := func(ok bool, text string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: Type.Snapshots: %s", ErrInvalid, text))
		}
	}
	add(p.Every >= 0, "Every is negative")
	add(p.Keep >= 0, "Keep is negative")
	add(p.Version >= 0, "Version is negative")
	add(p.Keep == 0 || p.Every > 0, "Keep needs Every")
	add(!p.DeleteEvents || p.Keep > 0, "DeleteEvents needs Keep")
	add(!p.DeleteEvents || !p.Optional, "DeleteEvents excludes Optional")
	return errors.Join(errs...)
}

func (e *entity[S, E]) metadata(s *engine.State) snapshot.Metadata {
	return snapshot.Metadata{ID: e.pid, SequenceNr: s.SequenceNr, Time: s.Time}
}

// save stores a snapshot whose state is durable in the journal, and then deletes what retention
// does not keep.
func (e *entity[S, E]) save(s *engine.State) {
	rt := e.host.rt
	md := e.metadata(s)
	began := time.Now()
	err := ErrNoSnapshots
	if rt.snapshots != nil {
		err = rt.snapshots.Save(rt.ctx, snapshot.Snapshot{Metadata: md, Manifest: s.Manifest, Payload: s.Payload})
	}
	if rt.obs.Snapshot != nil {
		rt.obs.Snapshot(SnapshotInfo{PersistenceID: e.pid, SequenceNr: s.SequenceNr, Bytes: len(s.Payload), Duration: time.Since(began), Err: err})
	}
	if err != nil {
		err = fmt.Errorf("save the snapshot of %q at %d: %w", e.pid, s.SequenceNr, err)
		e.tell(SnapshotFailed{Metadata: md, Err: err}, err)
	} else {
		e.tell(SnapshotSaved{Metadata: md}, nil)
		if s.Retain > 0 {
			e.retain(s.Retain)
		}
	}
	if s.Request == nil {
		e.input(engine.Input{Kind: engine.Saved})
	}
}

// retain deletes what lies at or before a number: the snapshots, or the events and then the
// snapshots before it.
func (e *entity[S, E]) retain(upTo uint64) {
	if !e.host.model.typ.Snapshots.DeleteEvents {
		e.dropSnapshots(snapshot.UpTo(upTo))
		return
	}
	if e.dropEvents(DeleteEvents{UpTo: upTo}) {
		e.dropSnapshots(snapshot.UpTo(upTo - 1))
	}
}

// tell gives a signal to the aggregate, or the log what nobody would see.
func (e *entity[S, E]) tell(s Signal, err error) {
	if e.host.engine.Signals {
		e.signal(s)
		return
	}
	if err != nil {
		e.host.rt.log.Warn("background work of an entity failed", slog.String("persistence_id", e.pid), slog.Any("error", err))
	}
}

// dropSnapshots deletes snapshots and tells the aggregate.
func (e *entity[S, E]) dropSnapshots(c snapshot.Criteria) {
	if err := e.host.rt.deleteSnapshots(e.host.rt.ctx, e.pid, c); err != nil {
		e.tell(SnapshotsNotDeleted{Criteria: c, Err: err}, err)
		return
	}
	e.tell(SnapshotsDeleted{Criteria: c}, nil)
}

// dropEvents deletes events and tells the aggregate.
func (e *entity[S, E]) dropEvents(r DeleteEvents) bool {
	if err := e.host.rt.deleteEvents(e.host.rt.ctx, e.pid, r); err != nil {
		e.tell(EventsNotDeleted{Request: r, Err: err}, err)
		return false
	}
	e.tell(EventsDeleted{Request: r}, nil)
	return true
}

// deleteSnapshots deletes snapshots unless deleted events would stay without one that covers them.
func (r *Runtime) deleteSnapshots(ctx context.Context, pid string, c snapshot.Criteria) error {
	if r.snapshots == nil {
		return ErrNoSnapshots
	}
	if err := c.CheckDelete(); err != nil {
		return fmt.Errorf("%w: delete snapshots of %q: %w", ErrInvalid, pid, err)
	}
	defer r.deleting(pid)()
	deleted, err := r.deletedTo(ctx, pid)
	if err != nil {
		return fmt.Errorf("delete snapshots of %q: %w", pid, err)
	}
	covered := deleted == 0
	if !covered {
		for md, err := range r.snapshots.List(ctx, pid, snapshot.Latest()) {
			if err != nil {
				return fmt.Errorf("delete snapshots of %q: %w", pid, err)
			}
			if md.SequenceNr >= deleted && !c.Matches(md) {
				covered = true
				break
			}
		}
	}
	if !covered {
		return fmt.Errorf("delete snapshots of %q: events up to %d are deleted: %w", pid, deleted, ErrNotCovered)
	}
	if err := r.snapshots.Delete(ctx, pid, c); err != nil {
		return fmt.Errorf("delete snapshots of %q: %w", pid, err)
	}
	return nil
}

// deleting keeps deletions of one entity apart, so that what one of them found out still holds when
// it deletes. Some others wait, too.
func (r *Runtime) deleting(pid string) (done func()) {
	c := r.deletions[maphash.String(r.hash, pid)%uint64(len(r.deletions))]
	c <- struct{}{}
	return func() { <-c }
}

// deletedTo returns the number up to which events are deleted.
func (r *Runtime) deletedTo(ctx context.Context, pid string) (uint64, error) {
	if r.journal == nil {
		return 0, nil
	}
	for ev, err := range r.journal.Replay(ctx, pid, 1, journal.MaxSequenceNr) {
		if err != nil {
			return 0, err
		}
		return ev.SequenceNr - 1, nil
	}
	return r.journal.HighestSequenceNr(ctx, pid)
}

// deleteEvents deletes events that a stored snapshot covers. UpTo is set.
func (r *Runtime) deleteEvents(ctx context.Context, pid string, d DeleteEvents) error {
	if r.journal == nil {
		return ErrNoJournal
	}
	defer r.deleting(pid)()
	if !d.Abandon {
		if err := r.covered(ctx, pid, d.UpTo); err != nil {
			return fmt.Errorf("delete events of %q up to %d: %w", pid, d.UpTo, err)
		}
	}
	if err := r.journal.DeleteTo(ctx, pid, d.UpTo); err != nil {
		return fmt.Errorf("delete events of %q up to %d: %w", pid, d.UpTo, err)
	}
	return nil
}

// covered returns nil if a snapshot at or above the number is stored.
func (r *Runtime) covered(ctx context.Context, pid string, upTo uint64) error {
	if r.snapshots == nil {
		return ErrNotCovered
	}
	c := snapshot.Latest()
	c.MinSequenceNr = upTo
	for _, err := range r.snapshots.List(ctx, pid, c) {
		return err
	}
	return ErrNotCovered
}
