// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groupcommit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/internal/groupcommit"
	"github.com/refold-io/refold/internal/testkit/effort"
	"github.com/refold-io/refold/journal"
)

// TestWriterModel runs many clients that write through a Writer to a journal with random failures,
// and checks the calls on both sides of the Writer.
func TestWriterModel(t *testing.T) {
	t.Parallel()
	for seed := range effort.Count[uint64](20, 60, 1000) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { runModel(t, seed) })
		})
	}
}

func runModel(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	m := &model{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), limit: []int{1, 1, 2, 4}[rng.IntN(4)],
		inFlight: map[string]bool{}, dead: map[string]bool{}, sent: map[string]bool{},
		highest: map[string]uint64{}, stored: map[string]bool{},
	}
	cfg := journal.WriterConfig{MaxQueuedWrites: 1 + rng.IntN(40), MaxBatchWrites: 1 + rng.IntN(30)}
	m.bound.Store(int64(cfg.MaxQueuedWrites + m.limit*cfg.MaxBatchWrites))
	w := newWriter(t, &parallel{max: m.limit, fake: fake{append: m.append}}, cfg)
	clients := make([]*client, 30)
	for i := range clients {
		clients[i] = &client{
			m: m, w: w, name: fmt.Sprint("c", i), id: fmt.Sprint("id", i*2/3), // every other ID has two owners
			rng:   rand.New(rand.NewPCG(seed, uint64(i)+2)),
			inbox: make(chan outcome, 1000), done: make(chan struct{}),
		}
		go clients[i].run(150)
	}
	if rng.IntN(2) == 0 { // close while clients submit
		time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(10))*time.Millisecond)
		m.bound.Store(1 << 30) // a closed Writer accepts and rejects any number of requests
		_ = w.Close(ctx)
		cancel()
	}
	answered := map[string]error{}
	for _, c := range clients {
		<-c.done
		for _, o := range c.answers {
			name := unit(&o.r.Write)
			if _, twice := answered[name]; twice {
				t.Errorf("%s was answered twice", name)
			}
			answered[name] = o.err
		}
	}
	closeWriter(t, w)
	for name, err := range answered {
		switch stored := m.stored[name]; {
		case err == nil && !stored:
			t.Errorf("%s is not stored, but its outcome was nil", name)
		case journal.NotStored(err) && stored:
			t.Errorf("%s is stored, but its outcome was %v", name, err)
		}
	}
	for name := range m.sent {
		if _, ok := answered[name]; !ok {
			t.Errorf("%s was sent but not answered", name)
		}
	}
}

// model is a journal with random faults that checks the calls of a Writer.
type model struct {
	t      *testing.T
	limit  int          // of calls in flight
	bound  atomic.Int64 // of requests that were accepted and not sent
	queued atomic.Int64 // their number

	mu       sync.Mutex
	rng      *rand.Rand
	calls    int
	inFlight map[string]bool
	highest  map[string]uint64
	stored   map[string]bool // by unit
	sent     map[string]bool // by unit
	dead     map[string]bool // terms of clients in which a write failed
}

var errLost = errors.New("lost")

// unit returns a unique name of a write. The writer name identifies one term of one client.
func unit(w *journal.Write) string { return fmt.Sprintf("%s/%s@%d", w.ID, w.Writer, w.Expect) }

func (m *model) append(_ context.Context, writes []journal.Write) []error {
	m.queued.Add(int64(-len(writes)))
	ids := map[string]bool{}
	for i := range writes {
		ids[writes[i].ID] = true
	}
	time.Sleep(m.arrive(writes, ids))
	return m.depart(writes, ids)
}

func (m *model) arrive(writes []journal.Write, ids map[string]bool) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls++; m.calls > m.limit {
		m.t.Errorf("%d calls are in flight, want at most %d", m.calls, m.limit)
	}
	for i := range writes {
		name := unit(&writes[i])
		if m.sent[name] {
			m.t.Errorf("%s was sent twice", name)
		}
		m.sent[name] = true
		if m.dead[writes[i].Writer] {
			m.t.Errorf("%s was sent after a failed write of the same term", name)
		}
	}
	for id := range ids {
		if m.inFlight[id] {
			m.t.Errorf("two calls in flight hold %s", id)
		}
		m.inFlight[id] = true
	}
	return time.Duration(m.rng.IntN(3)) * time.Millisecond
}

func (m *model) depart(writes []journal.Write, ids map[string]bool) []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls--
	for id := range ids {
		delete(m.inFlight, id)
	}
	broken := m.rng.IntN(40) == 0 // its result is meaningless
	slots, failed := make([]error, len(writes)), map[string]bool{}
	for i := range writes {
		w := &writes[i]
		slots[i] = m.write(w, failed[w.ID])
		if slots[i] != nil {
			failed[w.ID] = true
		}
		if slots[i] != nil || broken {
			m.dead[w.Writer] = true
		}
	}
	switch {
	case broken && m.rng.IntN(2) == 0:
		panic("broken")
	case broken:
		return append(slots, nil)
	case len(failed) == 0:
		return nil
	}
	return slots
}

// write stores a write, or not.
func (m *model) write(w *journal.Write, skip bool) error {
	switch highest, fate := m.highest[w.ID], m.rng.IntN(50); {
	case skip:
		return journal.ErrSkipped
	case highest != w.Expect:
		return &journal.ConflictError{ID: w.ID, Expected: w.Expect, Highest: highest}
	case fate == 0:
		return &journal.RejectedError{ID: w.ID, Reason: errLost}
	case fate == 1:
		return errLost
	case fate == 2:
		m.store(w)
		return errLost
	}
	m.store(w)
	return nil
}

func (m *model) store(w *journal.Write) {
	m.highest[w.ID] += uint64(len(w.Events))
	m.stored[unit(w)] = true
}

// client is an owner that writes to one ID, several writes ahead.
type client struct {
	m      *model
	w      *groupcommit.Writer
	name   string
	id     string
	rng    *rand.Rand
	stream groupcommit.Stream
	inbox  chan outcome
	done   chan struct{}

	pending []*groupcommit.Request // accepted, in order
	answers []outcome
	next    uint64
	term    int
	failed  bool // in this term
	closed  bool // the Writer is closed
}

type outcome struct {
	r   *groupcommit.Request // nil for a call of Room
	err error
}

func (c *client) Written(r *groupcommit.Request, err error) {
	c.m.mu.Lock()
	if !c.m.sent[unit(&r.Write)] {
		c.m.queued.Add(-1)
	}
	c.m.mu.Unlock()
	c.inbox <- outcome{r, err}
}

func (c *client) Room() { c.inbox <- outcome{} }

func (c *client) writer() string { return fmt.Sprintf("%s.%d", c.name, c.term) }

// run submits n writes, or fewer if the Writer is closed, and waits for the answers.
func (c *client) run(n int) {
	defer close(c.done)
	for n > 0 || len(c.pending) > 0 {
		switch {
		case c.closed:
			n = 0
		case n > 0 && len(c.pending) < 5 && c.rng.IntN(4) > 0:
			n--
			if !c.submit() {
				c.awaitRoom() // afterwards the client may not submit
			}
			continue
		}
		if len(c.pending) > 0 {
			c.answer(<-c.inbox)
		}
	}
}

func (c *client) submit() bool {
	r := &groupcommit.Request{
		Write:  journal.Write{ID: c.id, Writer: c.writer(), Expect: c.next},
		Stream: &c.stream, Owner: c,
	}
	next := c.next
	for range 1 + c.rng.IntN(3) {
		next++
		r.Write.Events = append(r.Write.Events, journal.Event{SequenceNr: next, Manifest: "m"})
	}
	if c.rng.IntN(60) == 0 {
		r.Write.Events[0].SequenceNr = 0 // the Writer rejects it
	}
	submit := c.w.Submit
	if c.rng.IntN(2) == 0 {
		submit = c.w.Leave
		defer func() { c.w.Commit(&c.stream, c.rng.IntN(10) > 0) }()
	}
	if !submit(r) {
		return false
	}
	if queued, bound := c.m.queued.Add(1), c.m.bound.Load(); queued > bound {
		c.m.t.Errorf("%d requests wait, want at most %d", queued, bound)
	}
	c.next = next
	c.pending = append(c.pending, r)
	return true
}

func (c *client) awaitRoom() {
	for o := range c.inbox {
		if o.r == nil {
			return
		}
		c.answer(o)
	}
}

func (c *client) answer(o outcome) {
	if len(c.pending) == 0 || c.pending[0] != o.r {
		c.m.t.Errorf("%s was answered out of order", unit(&o.r.Write))
	} else {
		c.pending = c.pending[1:]
	}
	c.answers = append(c.answers, o)
	current := o.r.Write.Writer == c.writer()
	switch {
	case errors.Is(o.err, journal.ErrClosed):
		c.closed = true
	case current && !c.failed:
		c.failed = o.err != nil
	// A journal that violates its contract does so for a whole call.
	case !errors.Is(o.err, journal.ErrSkipped) && !errors.Is(o.err, journal.ErrContract):
		c.m.t.Errorf("%s was submitted after a failure, and its outcome is %v, want ErrSkipped", unit(&o.r.Write), o.err)
	}
	if c.failed && (len(c.pending) == 0 || c.rng.IntN(3) == 0) {
		c.recover()
	}
}

// recover begins a new term, while writes of the old one may still be queued.
func (c *client) recover() {
	c.m.mu.Lock()
	c.m.dead[c.writer()] = true
	c.next = c.m.highest[c.id]
	c.m.mu.Unlock()
	c.term++
	c.failed = false
	c.w.Reset(&c.stream)
}
