// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/snapshot"
)

// Snapshots configures when and in which form snapshots of an entity are saved, and which snapshots
// and events are deleted afterwards. The zero value saves no snapshots.
type Snapshots[S, E any] struct {
	// Every is the interval of snapshots in events: a snapshot is saved after each event whose
	// sequence number is a multiple of Every. Events that are persisted together cause at most one
	// snapshot, after the last of them. A snapshot that is due while the entity still saves another
	// one is skipped. 0 means never.
	Every int
	// When, if it is not nil, saves a further snapshot after each event for which it returns true.
	// It is called after the event was applied.
	When func(state *S, event E, seqNr uint64) bool
	// Keep is the number of snapshots that are kept. A save at the sequence number N deletes the
	// snapshots up to N - Keep*Every. Keep requires Every. 0 keeps all snapshots. With DeleteEvents,
	// the snapshot at N - Keep*Every is kept as well, because it replaces the deleted events.
	Keep int
	// DeleteEvents also deletes the events up to N - Keep*Every, which the oldest kept snapshot covers.
	// It requires Keep. A projection that has not handled these events yet does not receive them, and
	// reports no error.
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

// errPartial refuses a snapshot or a deletion of events by an instance with an incomplete state. The
// snapshot would replace the events that are missing in it.
var errPartial = fmt.Errorf("%w: the entity was recovered without its events (Recovery.Disabled), so it saves no snapshots and deletes no events", ErrInvalid)

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
	if e.host.snapshots != nil {
		err = e.host.snapshots.Save(rt.ctx, snapshot.Snapshot{Metadata: md, Manifest: s.Manifest, Payload: s.Payload})
	}
	if rt.obs.Snapshot != nil {
		info := SnapshotInfo{PersistenceID: e.pid(), SequenceNr: s.SequenceNr, Bytes: len(s.Payload), Duration: time.Since(began), Err: err}
		rt.observe(func() { rt.obs.Snapshot(info) })
	}
	if err != nil {
		e.snapshotFailed(s, fmt.Errorf("save the snapshot of %q at %d: %w", e.pid(), s.SequenceNr, err))
	} else {
		e.notify(SnapshotSaved{Metadata: md})
		if s.Retain > 0 {
			e.retain(s.Retain)
		}
	}
	if s.Awaited {
		e.post(engine.Input{Kind: engine.Saved, Saved: s})
	}
}

// snapshotFailed reports a failed save to the entity, or to the log if the entity waits for the save
// to stop.
func (e *entity) snapshotFailed(s *engine.State, err error) {
	failed := SnapshotFailed{Metadata: e.metadata(s), Err: err}
	if s.Awaited && s.Request != nil {
		e.unhandledSignal(failed)
		return
	}
	e.notify(failed)
}

// retain deletes the snapshots up to a sequence number. With DeleteEvents, it deletes the events up
// to this number, and then the snapshots before this number.
func (e *entity) retain(upTo uint64) {
	if !e.host.model.snapshots.deleteEvents {
		e.removeSnapshots(snapshot.UpTo(upTo), e.deleteSnapshots)
		return
	}
	if e.removeEvents(DeleteEvents{UpTo: upTo}) {
		e.removeSnapshots(snapshot.UpTo(upTo-1), e.deleteOlderSnapshots)
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
func (e *entity) removeSnapshots(c snapshot.Criteria, remove func(context.Context, snapshot.Criteria) error) {
	if err := catchPanic(e.pid(), func() error { return remove(e.host.rt.ctx, c) }); err != nil {
		e.notify(SnapshotsNotDeleted{Criteria: c, Err: fmt.Errorf("delete snapshots of %q: %w", e.pid(), err)})
		return
	}
	e.notify(SnapshotsDeleted{Criteria: c})
}

// removeEvents deletes events and reports the outcome to the entity.
func (e *entity) removeEvents(r DeleteEvents) bool {
	remove := func() error { return e.deleteEvents(e.host.rt.ctx, r) }
	if err := catchPanic(e.pid(), remove); err != nil {
		err = fmt.Errorf("delete events of %q up to %d: %w", e.pid(), r.UpTo, err)
		e.notify(EventsNotDeleted{Request: r, Err: err})
		return false
	}
	e.notify(EventsDeleted{Request: r})
	return true
}

// deleteSnapshots deletes snapshots. It fails with ErrNotCovered if events are deleted and no
// remaining snapshot would cover them. It restores the newest snapshot if another process has
// deleted events in the meantime that only this snapshot covers.
func (e *entity) deleteSnapshots(ctx context.Context, c snapshot.Criteria) error {
	h := e.host
	if h.snapshots == nil {
		return ErrNoSnapshots
	}
	if bad := c.CheckDelete(); bad != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, bad)
	}
	defer h.rt.lockDeletions(e.pid())()
	remains := func(md snapshot.Metadata) bool { return !c.Matches(md) }
	covered, err := e.coverDeleted(ctx, remains)
	if err != nil {
		return err
	}
	var newest snapshot.Snapshot // if it is to be deleted
	for md, err := range h.snapshots.List(ctx, e.pid(), snapshot.Latest()) {
		if err == nil && c.Matches(md) {
			newest, err = h.snapshots.Load(ctx, e.pid(), c)
		}
		if err != nil && !errors.Is(err, snapshot.ErrCorrupt) && !errors.Is(err, snapshot.ErrNotFound) {
			return err
		}
		break
	}
	if err = h.snapshots.Delete(ctx, e.pid(), c); err != nil || newest.SequenceNr == 0 {
		return err
	}
	complete, err := h.complete(ctx, e.pid(), covered)
	if err == nil && !complete {
		if _, err = e.coverDeleted(ctx, remains); err != nil {
			err = cmp.Or(h.snapshots.Save(ctx, newest), err)
		}
	}
	return err
}

// deleteOlderSnapshots deletes snapshots before a sequence number up to which deleteEvents has deleted
// the events. It checks nothing: deleteEvents has found a newer snapshot that can be decoded. Other
// deletions delete that snapshot only if another one covers the same events. A snapshot that covers
// these events is not before the number.
func (e *entity) deleteOlderSnapshots(ctx context.Context, c snapshot.Criteria) error {
	defer e.host.rt.lockDeletions(e.pid())()
	return e.host.snapshots.Delete(ctx, e.pid(), c)
}

// lockDeletions serializes the deletions of one entity, so that no other deletion of this process
// runs between the check and the deletion. Entities with the same hash share a lock.
func (r *Runtime) lockDeletions(pid string) (unlock func()) {
	c := r.deletions[maphash.String(r.hash, pid)%uint64(len(r.deletions))]
	c <- struct{}{}
	return func() { <-c }
}

// coverDeleted returns a number with which complete is true: 0 if no event is deleted, and otherwise
// that of the newest snapshot that counts and can be decoded. The error matches ErrNotCovered if this
// snapshot does not cover the deleted events.
func (e *entity) coverDeleted(ctx context.Context, counts func(snapshot.Metadata) bool) (upTo uint64, err error) {
	h := e.host
	if stored, failed := h.stored(ctx, e.pid(), 1); failed != nil || stored {
		return 0, failed
	}
	s, err := e.cover(ctx, 1, counts)
	switch {
	case err == nil:
		upTo = s.SequenceNr
	case !errors.Is(err, ErrNotCovered):
		return 0, err
	}
	complete, failed := h.complete(ctx, e.pid(), upTo)
	switch {
	case failed != nil:
		return 0, failed
	case complete:
		return upTo, nil
	case err == nil:
		err = fmt.Errorf("%w: the newest remaining snapshot is at %d", ErrNotCovered, upTo)
	}
	return 0, fmt.Errorf("events after %d are deleted: %w", upTo, err)
}

// complete reports whether the journal has all events after a sequence number. Deletions begin with the
// first event, so complete reads one record, or none at the end of a history.
func (s *storage) complete(ctx context.Context, pid string, after uint64) (bool, error) {
	stored, err := s.stored(ctx, pid, after+1)
	if err != nil || stored {
		return stored, err
	}
	highest, err := s.journal.HighestSequenceNr(ctx, pid)
	if err != nil || highest <= after {
		return err == nil, err
	}
	return s.stored(ctx, pid, after+1) // it may have been stored after the first look
}

// stored reports whether the journal has an event that is not deleted. Without a journal, there is
// nothing to delete, and it returns true.
func (s *storage) stored(ctx context.Context, pid string, seqNr uint64) (bool, error) {
	if s.journal == nil {
		return true, nil
	}
	for _, err := range s.journal.Replay(ctx, pid, seqNr, seqNr) {
		return err == nil, err
	}
	return false, nil
}

// deleteEvents deletes the events up to d.UpTo. Unless d.Abandon is set, a stored snapshot must
// cover them. deleteEvents restores this snapshot if another process has deleted it in the
// meantime.
func (e *entity) deleteEvents(ctx context.Context, d DeleteEvents) error {
	h := e.host
	if h.journal == nil {
		return ErrNoJournal
	}
	defer h.rt.lockDeletions(e.pid())()
	if d.Abandon {
		return h.journal.DeleteTo(ctx, e.pid(), d.UpTo)
	}
	s, err := e.cover(ctx, d.UpTo, snapshot.Latest().Matches)
	if err != nil {
		return err
	}
	err = h.journal.DeleteTo(ctx, e.pid(), d.UpTo)
	for _, failed := range h.snapshots.List(ctx, e.pid(), snapshot.At(s.SequenceNr)) {
		return cmp.Or(err, failed)
	}
	return cmp.Or(err, h.snapshots.Save(ctx, s))
}

// cover returns the newest snapshot that counts, that covers the events up to a sequence number,
// and that can be decoded. If there is none, the error matches ErrNotCovered. A recovery tries as
// many snapshots.
func (e *entity) cover(ctx context.Context, upTo uint64, counts func(snapshot.Metadata) bool) (s snapshot.Snapshot, failed error) {
	h, c, tried, failed := e.host, snapshot.Latest(), 0, ErrNotCovered
	if h.snapshots == nil || h.nodeLocal {
		return s, failed
	}
	c.MinSequenceNr = upTo
	decode := func() error {
		_, err := h.model.restore(e.id(), e.pid(), s.Manifest, s.Payload)
		return err
	}
	var err error
	if s, err = h.snapshots.Load(ctx, e.pid(), c); errors.Is(err, snapshot.ErrNotFound) {
		return s, failed
	}
	if err == nil && counts(s.Metadata) && decode() == nil {
		return s, nil // the usual case needs no list
	}
	for md, err := range h.snapshots.List(ctx, e.pid(), c) {
		switch {
		case err != nil:
			return s, err
		case !counts(md):
			continue
		case tried == maxSnapshotAttempts:
			return s, failed
		}
		if s, err = h.snapshots.Load(ctx, e.pid(), snapshot.At(md.SequenceNr)); err == nil {
			err = decode()
		}
		if err == nil {
			return s, nil
		}
		tried, failed = tried+1, fmt.Errorf("%w: snapshot at %d: %w", ErrNotCovered, md.SequenceNr, err)
	}
	return s, failed
}
