// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"sync"
	"time"

	"github.com/refold-io/refold/journal"
)

// slowAnswer is how long the journal may take for an answer before Status says that
// the lag is not known.
const slowAnswer = 5 * time.Second

// figures are what is shown of a worker.
type figures struct {
	mu     sync.Mutex
	now    WorkerStatus
	blind  time.Time // since when the journal is not looked at; zero while it is
	asked  time.Time // since when the journal owes an answer, zero if it does not
	lost   time.Time // when a question was asked that it did not answer, zero if it did
	oldest time.Time // of what the worker holds
	next   time.Time // of the page that the reader holds
	page   int       // its number
	end    bool
}

func (f *figures) status(now time.Time) WorkerStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.now
	if !f.blind.IsZero() && s.State == Running {
		s.State = Starting
	}
	oldest := f.oldest
	if oldest.IsZero() {
		oldest = f.next
	}
	switch {
	case !oldest.IsZero():
		s.Lag = max(0, now.Sub(oldest))
		return s
	case !f.blind.IsZero():
		s.LagUnknownSince = f.blind
	case !f.asked.IsZero() && now.Sub(f.asked) >= slowAnswer:
		s.LagUnknownSince = f.asked
	}
	s.CaughtUp = f.end && (s.LagUnknownSince.IsZero() || s.State == Stopped && s.Err == nil)
	return s
}

// create is called once, first.
func (f *figures) create(slices journal.Slices) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.Slices, f.now.State, f.blind = slices, Starting, time.Now()
}

// begin is called before the journal is read.
func (f *figures) begin(stored journal.Offset) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.State, f.now.NextTry, f.now.Offset = Running, time.Time{}, start(stored)
	f.next, f.page = time.Time{}, 0
}

// asks is called before the journal is asked, and answered behind it.
func (f *figures) asks() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = time.Now()
}

func (f *figures) answered(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = time.Time{}
	if err != nil {
		f.lost = f.asked
	}
	f.asked = time.Time{}
}

// ahead is called by the reader, with the number of its page and the time of the
// first event in it.
func (f *figures) ahead(page int, first time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.page, f.next = page, first
}

// taken is called by the worker when it has got a page. The reader may hold the
// next one already.
func (f *figures) taken(page int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.page == page {
		f.next = time.Time{}
	}
}

// pending is called when the worker has something else to do: the time of its
// oldest event, zero if it has none, and whether the journal showed no more.
func (f *figures) pending(oldest time.Time, end bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blind = time.Time{}
	f.oldest, f.end = oldest, end
}

// state is called when the worker does something else, all being well.
func (f *figures) state(s State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.State, f.now.NextTry = s, time.Time{}
}

// retry is called before a pause in which an event waits to be tried again.
func (f *figures) retry(err error, pause time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.State, f.now.Err, f.now.NextTry = Retrying, err, time.Now().Add(pause)
}

// fail is called when the worker has failed for the nth time in a row and waits
// for a while.
func (f *figures) fail(err error, n int, pause time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look(false)
	f.now.State, f.now.Err, f.now.Failures, f.now.NextTry = Waiting, err, n, time.Now().Add(pause)
}

// stop is called in the end, with an error if the worker gives up.
func (f *figures) stop(err error, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look(err == nil && f.end)
	f.now.State, f.now.NextTry = Stopped, time.Time{}
	if err != nil {
		f.now.Err, f.now.Failures = err, n
	}
}

// look notes that the journal is not looked at any more.
func (f *figures) look(end bool) {
	if f.blind.IsZero() {
		f.blind = f.lost
	}
	if f.blind.IsZero() {
		f.blind = time.Now()
	}
	f.end = end
}

// recover is called when the worker gets on.
func (f *figures) recover() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.Err, f.now.Failures = nil, 0
}

func (f *figures) handled(events int, last time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.Handled += uint64(events) //nolint:gosec // a count
	f.now.LastEvent = last
}

func (f *figures) skipped() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.Skipped++
}

func (f *figures) stored(offset journal.Offset) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.Offset = start(offset)
}
