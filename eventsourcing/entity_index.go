// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"time"

	"github.com/refold-io/refold/internal/engine"
)

// indexState is what an instance knows about its entry in the index of entities with pending work, see
// hosting.Hooks.PendingWork.
type indexState uint8

const (
	notIndexed     indexState = iota // there may be an entry
	indexNeeded                      // events in flight, or to be appended, give the entity work
	indexRequested                   // nothing is appended until the entry exists
	indexed                          // the entry exists until the instance reports the end of its work
)

// indexEntry is the entry in the index that an instance has, or has requested.
type indexEntry struct {
	worked bool        // the entity had work since the timer was set
	timer  *time.Timer // see settleWork; nil while the entity has work
}

// settleAfter is the time without work after which an entity may be removed from the index. It is long
// compared with the time of a delivery, so that a busy sender stays in the index.
const settleAfter = time.Minute

// hasWork reports whether the state, including events that are not stored yet, has an unconfirmed
// delivery or a deadline.
func (e *entity) hasWork() (has bool) {
	defer func() {
		if recover() != nil { // updateDeadline logs it
			has = false
		}
	}()
	if d := e.host.model.deadline; d != nil && !d(e.instance.state).IsZero() {
		return true
	}
	for _, p := range e.instance.parts() {
		if p.HasWork() {
			return true
		}
	}
	return false
}

// mayAppend reports whether units may be passed to the writer. If the entity needs an entry in the
// index, mayAppend requests it.
func (e *entity) mayAppend() bool {
	if e.index == indexNeeded {
		e.requestEntry()
	}
	return e.index != indexRequested
}

func (e *entity) requestEntry() {
	entry := &indexEntry{}
	e.index, e.needExtra().entry = indexRequested, entry
	e.host.hooks.PendingWork(e.id(), func() {
		e.do(func(out *engine.Effects) { e.indexGranted(entry, out) })
	})
}

// indexGranted passes on the units that have waited for the entry. An entry that another instance, or
// this one before WorkSettled, has requested is ignored.
func (e *entity) indexGranted(entry *indexEntry, out *engine.Effects) {
	if e.index != indexRequested || e.extra == nil || e.extra.entry != entry {
		return
	}
	e.index = indexed
	if len(e.extra.unsent) > 0 {
		e.submitUnsent(out)
	}
	e.watchWork()
}

// startIndexed is called for an instance that was started because the entity is in the index.
func (e *entity) startIndexed() {
	if e.host.indexes && e.index == notIndexed {
		e.index, e.needExtra().entry = indexed, &indexEntry{}
		e.watchWork()
	}
}

// watchRecovered is called for a recovered instance.
func (e *entity) watchRecovered() {
	switch {
	case !e.host.indexes:
	case e.index == notIndexed || e.index == indexNeeded:
		e.index = notIndexed
		if e.hasWork() { // from a time without an index
			e.requestEntry()
		}
	case e.index == indexed:
		e.watchWork()
	}
}

// leaveIndex ends the entry of an instance that stops. It reports the end of the work only if the state
// is certain to be the stored one, and not for an entity that moves.
func (e *entity) leaveIndex(out *engine.Effects) {
	e.index = notIndexed
	if out.Cause == nil && !out.Recover && !e.machine.Draining() && e.instance.state != nil && e.machine.DurableNr() == e.machine.SequenceNr() && !e.hasWork() {
		e.host.hooks.WorkSettled(e.id())
	}
}

// watchWork records whether an entity in the index has work. If not, it sets the timer.
func (e *entity) watchWork() {
	entry := e.extra.entry
	switch {
	case e.hasWork():
		entry.worked = true
	case entry.timer == nil:
		e.settleLater(entry)
	}
}

func (e *entity) settleLater(entry *indexEntry) {
	entry.timer = time.AfterFunc(settleAfter, func() { e.do(func(*engine.Effects) { e.settleWork(entry) }) })
}

// settleWork gives up the entry of an entity that had no work for some time. If an event is in flight,
// or if the instance has failed, the stored state may have work.
func (e *entity) settleWork(entry *indexEntry) {
	if e.index != indexed || e.extra == nil || e.extra.entry != entry {
		return
	}
	entry.timer = nil
	switch {
	case !e.machine.Resting():
		e.settleLater(entry)
	case e.hasWork(): // the end of the work sets the timer again
	case entry.worked:
		entry.worked = false
		e.settleLater(entry)
	default:
		e.index, e.extra.entry = notIndexed, nil
		e.host.hooks.WorkSettled(e.id())
	}
}
