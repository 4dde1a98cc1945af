// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"context"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// Snapshots configures when and in which form snapshots of an entity are saved, and which snapshots
// and events are deleted afterwards. The zero value saves no snapshots.
type Snapshots[S, E any] struct {
	// Every is the interval of snapshots in events: a snapshot is saved after each event whose
	// sequence number is a multiple of Every. Events that are persisted together cause at most one
	// snapshot, after the last of them. 0 means never.
	Every int
	// When, if it is not nil, saves a further snapshot after each event for which it returns true.
	// It is called after the event was applied.
	When func(state *S, event E, seqNr uint64) bool
	// Keep is the number of snapshots that are kept. A save at the sequence number N deletes the
	// snapshots up to N - Keep*Every. Keep requires Every. 0 keeps all snapshots.
	Keep int
	// DeleteEvents also deletes the events that the oldest kept snapshot covers. It requires Keep.
	DeleteEvents bool
	// Optional makes a recovery replay all events when the snapshot store fails. It cannot be
	// combined with DeleteEvents.
	Optional bool
	// Version is the version of the state, 1 by default. Increase it when a change of Apply changes
	// the meaning of the state. Snapshots of other versions are then ignored, and the events that
	// they cover are replayed. An entity whose events were deleted cannot be recovered in this way:
	// convert its snapshots with State instead.
	Version int
	// State, if it is not nil, is the form in which snapshots store the state, see StateAs. If it
	// is nil, snapshots store the state itself. The form has its own version; Version does not
	// apply to it.
	State *StateForm[S]
}

// snapshotRules are the fields of Snapshots that do not depend on its type parameters.
type snapshotRules struct {
	every, keep, version   int
	deleteEvents, optional bool
}

func (p *Snapshots[S, E]) rules() snapshotRules {
	return snapshotRules{p.Every, p.Keep, p.Version, p.DeleteEvents, p.Optional}
}

// configured reports whether a field is set that saves snapshots automatically or requires a
// snapshot store.
func (r *snapshotRules) configured() bool {
	return r.every != 0 || r.keep != 0 || r.deleteEvents || r.optional
}

func (r *snapshotRules) check(errs *fielderror.Errors) {
	require := func(ok bool, field, problem string) {
		if !ok {
			errs.Addf("Type.Snapshots."+field, "%s", problem)
		}
	}
	require(r.every >= 0, "Every", "is negative")
	require(r.keep >= 0, "Keep", "is negative")
	require(r.version >= 0, "Version", "is negative")
	require(r.keep == 0 || r.every > 0, "Keep", "needs Every")
	require(!r.deleteEvents || r.keep > 0, "DeleteEvents", "needs Keep")
	require(!r.deleteEvents || !r.optional, "DeleteEvents", "excludes Optional")
}

func (e *entity) metadata(s *engine.State) snapshot.Metadata {
	return snapshot.Metadata{ID: e.pid(), SequenceNr: s.SequenceNr, Time: s.Time}
}

// save stores a snapshot, and then deletes the snapshots and events that it makes obsolete. All
// events that the snapshot covers are durable.
func (e *entity) save(s *engine.State) {
	rt := e.host.rt
	md := e.metadata(s)
	began := time.Now()
	err := ErrNoSnapshots
	if rt.snapshots != nil {
		err = rt.snapshots.Save(rt.ctx, snapshot.Snapshot{Metadata: md, Manifest: s.Manifest, Payload: s.Payload})
	}
	if rt.obs.Snapshot != nil {
		rt.obs.Snapshot(SnapshotInfo{PersistenceID: e.pid(), SequenceNr: s.SequenceNr, Bytes: len(s.Payload), Duration: time.Since(began), Err: err})
	}
	if err != nil {
		e.notify(SnapshotFailed{Metadata: md, Err: fmt.Errorf("save the snapshot of %q at %d: %w", e.pid(), s.SequenceNr, err)})
	} else {
		e.notify(SnapshotSaved{Metadata: md})
		if s.Retain > 0 {
			e.retain(s.Retain)
		}
	}
	if s.Request == nil {
		e.post(engine.Input{Kind: engine.Saved})
	}
}

// retain deletes the snapshots up to a sequence number. With DeleteEvents, it deletes the events up
// to this number, and then the snapshots before this number.
func (e *entity) retain(upTo uint64) {
	if !e.host.model.snapshots.deleteEvents {
		e.removeSnapshots(snapshot.UpTo(upTo))
		return
	}
	if e.removeEvents(DeleteEvents{UpTo: upTo}) {
		e.removeSnapshots(snapshot.UpTo(upTo - 1))
	}
}

// notify sends a signal to the entity. If its type handles no signals, the signal is logged.
func (e *entity) notify(s Signal) {
	if e.host.engine.Signals {
		e.signal(s)
		return
	}
	e.unhandledSignal(s)
}

// removeSnapshots deletes snapshots and reports the outcome to the entity.
func (e *entity) removeSnapshots(c snapshot.Criteria) {
	if err := e.host.rt.deleteSnapshots(e.host.rt.ctx, e.pid(), c); err != nil {
		e.notify(SnapshotsNotDeleted{Criteria: c, Err: err})
		return
	}
	e.notify(SnapshotsDeleted{Criteria: c})
}

// removeEvents deletes events and reports the outcome to the entity.
func (e *entity) removeEvents(r DeleteEvents) bool {
	if err := e.host.rt.deleteEvents(e.host.rt.ctx, e.pid(), r); err != nil {
		e.notify(EventsNotDeleted{Request: r, Err: err})
		return false
	}
	e.notify(EventsDeleted{Request: r})
	return true
}

// deleteSnapshots deletes snapshots. It fails with ErrNotCovered if events are deleted and no
// remaining snapshot would cover them.
func (r *Runtime) deleteSnapshots(ctx context.Context, pid string, c snapshot.Criteria) (err error) {
	if r.snapshots == nil {
		return ErrNoSnapshots
	}
	defer r.lockDeletions(pid)()
	defer func() {
		if err != nil {
			err = fmt.Errorf("delete snapshots of %q: %w", pid, err)
		}
	}()
	if bad := c.CheckDelete(); bad != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, bad)
	}
	deleted, err := r.deletedTo(ctx, pid)
	if err != nil {
		return err
	}
	if deleted > 0 {
		if err = r.covered(ctx, pid, deleted, func(md snapshot.Metadata) bool { return !c.Matches(md) }); err != nil {
			return fmt.Errorf("events up to %d are deleted: %w", deleted, err)
		}
	}
	return r.snapshots.Delete(ctx, pid, c)
}

// lockDeletions serializes the deletions of one entity, so that no other deletion runs between the
// check and the deletion. Entities with the same hash share a lock.
func (r *Runtime) lockDeletions(pid string) (unlock func()) {
	c := r.deletions[maphash.String(r.hash, pid)%uint64(len(r.deletions))]
	c <- struct{}{}
	return func() { <-c }
}

// deletedTo returns the sequence number of the last deleted event.
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

// deleteEvents deletes the events up to d.UpTo. Unless d.Abandon is set, a stored snapshot must
// cover them.
func (r *Runtime) deleteEvents(ctx context.Context, pid string, d DeleteEvents) error {
	if r.journal == nil {
		return ErrNoJournal
	}
	defer r.lockDeletions(pid)()
	var err error
	if !d.Abandon {
		err = r.covered(ctx, pid, d.UpTo, func(snapshot.Metadata) bool { return true })
	}
	if err == nil {
		err = r.journal.DeleteTo(ctx, pid, d.UpTo)
	}
	if err != nil {
		return fmt.Errorf("delete events of %q up to %d: %w", pid, d.UpTo, err)
	}
	return nil
}

// covered returns nil if a snapshot is stored whose sequence number is at least upTo and for which
// counts returns true. Otherwise it returns ErrNotCovered.
func (r *Runtime) covered(ctx context.Context, pid string, upTo uint64, counts func(snapshot.Metadata) bool) error {
	if r.snapshots == nil {
		return ErrNotCovered
	}
	c := snapshot.Latest()
	c.MinSequenceNr = upTo
	for md, err := range r.snapshots.List(ctx, pid, c) {
		if err != nil || counts(md) {
			return err
		}
	}
	return ErrNotCovered
}
