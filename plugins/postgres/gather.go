// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/refold-io/refold/journal"
)

const (
	// gatherFlights is the number of statements of a gatherer that are in flight at most. As many
	// again may be in flight that are repeated for one caller.
	gatherFlights = 4
	// gatherWorth is the number of waiting callers for which a further statement starts beside one that is
	// in flight. A statement costs the server more than to read for a few more callers.
	gatherWorth = 16
	// gatherPatience is the time after which a further statement starts for fewer callers, because those in
	// flight may be slow.
	gatherPatience = 50 * time.Millisecond
	// gatherCalls is the number of callers that one statement serves at most.
	gatherCalls = 100
	// gatherRecords is the number of events that one caller reads at most through a gatherer, each of
	// them small. Longer replays have a statement of their own.
	gatherRecords = 100
	// gatherSnapshot is the size of the largest snapshot that is read through a gatherer, in bytes.
	gatherSnapshot = 64 << 10
)

// gatherer executes a read-only statement for many callers. While none of its statements is in flight, a
// caller executes the statement itself, without a wait. Further callers wait, and the statement many reads
// for all of them at once. It starts after their calls, so that it sees what was committed before them. It
// starts when another statement ends, when gatherWorth callers wait, or after gatherPatience.
//
// The parameters of many are arrays of the parameters of the callers. Its rows have the number of the
// caller, from 1, before the columns of the caller's own statement. If many fails, or if the rows of a
// caller can't be decoded, the caller executes its own statement. So an error concerns only the callers
// whose own statement fails. The callers of a failed statement take turns, so that they leave
// connections of the pool to other calls.
//
// Slow statements delay the waiting callers: while each of the statements in flight takes a second, for
// example because it reads a snapshot of the largest size, the others of the same kind wait for the
// first one to end, or for the end of their contexts. Other kinds of reads, appends and longer replays
// do not wait.
type gatherer struct {
	db       *DB
	many     *statement
	flights  int
	patience time.Duration
	repeats  chan struct{}  // holds a value for each repeated statement
	running  sync.WaitGroup // statements for many callers

	mu       sync.Mutex
	inFlight int
	waiting  []*gathered
}

// gathered is a waiting call.
type gathered struct {
	params [][]byte
	row    func(values [][]byte) error
	bad    bool          // a row could not be decoded
	failed bool          // the caller must execute its own statement; valid when done is closed
	done   chan struct{} // closed with the end of the statement
	group  *group        // nil before the statement begins; guarded by gatherer.mu
}

// group is the callers of one statement.
type group struct {
	calls  []*gathered
	left   int             // callers that wait for the result; guarded by gatherer.mu
	ctx    context.Context //nolint:containedctx // ends when no caller waits any more
	cancel context.CancelFunc
}

func newGatherer(db *DB, many *statement) *gatherer {
	flights := min(gatherFlights, int(db.pool.Config().MaxConns))
	return &gatherer{db: db, many: many, flights: flights, patience: gatherPatience, repeats: make(chan struct{}, flights)}
}

// run executes a statement like DB.run. It calls reset before each attempt to read the rows. It returns
// when ctx ends; row may then still be called, on another goroutine.
func (g *gatherer) run(ctx context.Context, st *statement, params [][]byte, reset func(), row func(values [][]byte) error) error {
	reset()
	g.mu.Lock()
	if g.inFlight == 0 {
		g.inFlight++
		g.mu.Unlock()
		defer g.landed()
		return g.db.run(ctx, st, params, row)
	}
	c := &gathered{params: params, row: row, done: make(chan struct{})}
	g.waiting = append(g.waiting, c)
	g.startIf(len(g.waiting) >= gatherWorth)
	began := time.Now()
	patience := time.NewTimer(g.patience)
	defer patience.Stop()
	for {
		select {
		case <-c.done:
			if !c.failed {
				g.db.watch.logSlow(ctx, st.name, began)
				return nil
			}
			reset()
			return g.repeat(ctx, st, params, row)
		case <-patience.C:
			g.mu.Lock()
			g.startIf(c.group == nil)
			patience.Reset(g.patience) // all statements may have been in flight
		case <-ctx.Done():
			g.leave(c)
			return notStarted(ctx)
		}
	}
}

// startIf starts a further statement on a condition, if one may start. It unlocks mu.
func (g *gatherer) startIf(wanted bool) {
	start := wanted && g.inFlight < g.flights
	if start {
		g.inFlight++
	}
	g.mu.Unlock()
	if start {
		g.fly(g.next(true))
	}
}

// repeat executes the own statement of a caller after a failed one.
func (g *gatherer) repeat(ctx context.Context, st *statement, params [][]byte, row func(values [][]byte) error) error {
	select {
	case g.repeats <- struct{}{}:
		defer func() { <-g.repeats }()
		return g.db.run(ctx, st, params, row)
	case <-ctx.Done():
		return notStarted(ctx)
	}
}

// leave removes a caller whose context has ended. The last caller of a statement ends the statement.
func (g *gatherer) leave(c *gathered) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.group != nil {
		if c.group.left--; c.group.left == 0 {
			c.group.cancel()
		}
		return
	}
	for i, w := range g.waiting {
		if w == c {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			return
		}
	}
}

// landed is called at the end of a caller's own statement.
func (g *gatherer) landed() { g.fly(g.next(false)) }

// fly executes the statements for a group and for those that follow.
func (g *gatherer) fly(next *group) {
	if next != nil {
		g.running.Go(func() {
			for next != nil {
				next = g.send(next)
			}
		})
	}
}

// next returns the callers of the next statement, nil if none wait. Beside other statements in flight, it
// also returns nil for few callers, unless they have waited for long.
func (g *gatherer) next(late bool) *group {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), gatherCalls)
	if n == 0 || n < gatherWorth && g.inFlight > 1 && !late {
		g.inFlight--
		return nil
	}
	next := &group{calls: g.waiting[:n:n], left: n}
	next.ctx, next.cancel = context.WithCancel(context.Background())
	for _, c := range next.calls {
		c.group = next
	}
	g.waiting = append([]*gathered(nil), g.waiting[n:]...)
	return next
}

// send executes the statement for a group, and returns the next group.
func (g *gatherer) send(now *group) *group {
	defer now.cancel()
	err := g.db.run(now.ctx, g.many, g.arrays(now.calls), func(values [][]byte) error {
		if len(values) < 2 || len(values[0]) != 8 {
			return errRow
		}
		n := binary.BigEndian.Uint64(values[0])
		if n < 1 || n > uint64(len(now.calls)) {
			return errRow
		}
		c := now.calls[n-1]
		c.bad = c.bad || c.row(values[1:]) != nil
		return nil
	})
	next := g.next(false)
	for _, c := range now.calls {
		c.failed = err != nil || c.bad
		close(c.done)
	}
	return next
}

// arrays returns the parameters of many.
func (g *gatherer) arrays(calls []*gathered) [][]byte {
	params := make([][]byte, len(g.many.oids))
	for i := range params {
		var a array
		a.reset(elementOID(g.many.oids[i]))
		for _, c := range calls {
			a.bytes(c.params[i], false)
		}
		params[i] = a.value()
	}
	return params
}

// The pause between two looks at the appends in progress doubles from waitPause to maxWaitPause. A look
// fails after lookTimeout.
const (
	waitPause    = 4 * time.Millisecond // most appends have ended then
	maxWaitPause = 50 * time.Millisecond
	lookTimeout  = 10 * time.Second
)

var errLookTimeout = fmt.Errorf("%w: no reply in time about the appends in progress", journal.ErrUnavailable)

// appendLooks waits for appends. Deletions that wait at the same time share the looks at the locks of
// the server, each of which takes the server 0.1 ms. A look that takes longer than limit fails the
// deletions that it serves, so that a connection that hangs does not delay the deletions of others.
type appendLooks struct {
	db      *DB
	limit   time.Duration
	running sync.WaitGroup

	mu      sync.Mutex
	waiting []*appendWait
	served  []*appendWait      // those of waiting that the current look serves
	looking bool               // a goroutine looks until no deletion waits
	cancel  context.CancelFunc // ends the current look and the pause after it
}

// appendWait is a deletion that waits until the appends that were in progress at its first look have
// ended.
type appendWait struct {
	left map[string]bool // these appends; nil before the first look
	err  error           // of a look; valid when done is closed
	done chan struct{}
}

// wait starts to wait. The caller must call leave unless done is closed. The journal must be open during
// the call, because Close waits for the looks.
func (l *appendLooks) wait() *appendWait {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &appendWait{done: make(chan struct{})}
	l.waiting = append(l.waiting, w)
	if !l.looking {
		l.looking = true
		l.running.Go(l.run)
	}
	return w
}

// leave ends a wait. The last one that the current look serves ends this look, so that later deletions
// do not wait for it.
func (l *appendLooks) leave(w *appendWait) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := func(other *appendWait) bool { return other == w }
	l.waiting, l.served = slices.DeleteFunc(l.waiting, left), slices.DeleteFunc(l.served, left)
	if len(l.served) == 0 && l.cancel != nil {
		l.cancel()
	}
}

// run looks until no deletion waits.
func (l *appendLooks) run() {
	pause := waitPause
	for {
		ctx := l.begin()
		if ctx == nil {
			return
		}
		now := make(map[string]bool)
		err := l.db.run(ctx, &l.db.sql.underWay, nil, func(values [][]byte) error {
			if values[0] != nil {
				now[string(values[0])] = true
			}
			return nil
		})
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if pause = min(2*pause, maxWaitPause); l.end(now, err) {
			pause = waitPause
		}
		sleep(ctx, pause)
	}
}

// begin returns the context of the next look, which serves the deletions that wait now. It is nil if
// none wait.
func (l *appendLooks) begin() (ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel != nil {
		l.cancel()
		l.cancel = nil
	}
	if l.looking = len(l.waiting) > 0; !l.looking {
		return nil
	}
	l.served = slices.Clone(l.waiting)
	ctx, l.cancel = context.WithTimeoutCause(context.Background(), l.limit, errLookTimeout)
	return ctx
}

// end takes note of the appends in progress. It reports whether a deletion has had its first look and
// still waits.
func (l *appendLooks) end(now map[string]bool, err error) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.served = slices.DeleteFunc(l.served, func(w *appendWait) bool {
		if w.left == nil {
			w.left, first = maps.Clone(now), true
		} else {
			maps.DeleteFunc(w.left, func(name string, _ bool) bool { return !now[name] })
		}
		done := err != nil || len(w.left) == 0
		if done {
			l.waiting = slices.DeleteFunc(l.waiting, func(other *appendWait) bool { return other == w })
			w.err = err
			close(w.done)
		}
		return done
	})
	if len(l.waiting) == 0 {
		l.cancel()
	}
	return first
}
