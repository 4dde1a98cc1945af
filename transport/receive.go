// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/internal/panics"
)

// inboxKey identifies an inbox. All incarnations of a sender's name share one inbox for messages to
// the bare name.
type inboxKey struct {
	from  identity.Node
	lane  Lane
	named bool
}

// inbox holds messages that are handled one after the other. It is in use while a message is queued
// or being handled, and is reused afterwards.
type inbox struct {
	key         inboxKey
	queue       []delivery
	spare       []delivery
	drain       func()
	quarantined atomic.Bool // the sender is quarantined
}

type delivery struct {
	from identity.Node
	link.Delivery
}

// enqueue adds a message to its inbox. The caller holds the lock.
func (t *Transport) enqueue(from identity.Node, lane Lane, d *link.Delivery) {
	key := inboxKey{from: from, lane: lane, named: d.Named}
	if d.Named {
		key.from.UID = 0
	}
	b := t.inboxes[key]
	fresh := b == nil
	if fresh {
		b = t.unusedInbox()
		b.key = key
	}
	b.queue = append(b.queue, delivery{from: from, Delivery: *d})
	if fresh {
		t.inboxes[key] = b
		t.pool.run(b.drain)
	}
}

func (t *Transport) unusedInbox() *inbox {
	if n := len(t.unusedInboxes); n > 0 {
		b := t.unusedInboxes[n-1]
		t.unusedInboxes = t.unusedInboxes[:n-1]
		return b
	}
	b := &inbox{}
	b.drain = func() { t.drain(b) }
	return b
}

// release ends the use of an inbox whose queue is empty. The caller holds the lock.
func (t *Transport) release(b *inbox) {
	delete(t.inboxes, b.key)
	if len(t.unusedInboxes) < maxUnusedInboxes {
		b.quarantined.Store(false)
		t.unusedInboxes = append(t.unusedInboxes, b)
	}
}

// maxUnusedInboxes limits the memory of inboxes that are kept for reuse.
const maxUnusedInboxes = 16

// drain handles the messages of an inbox until it is empty.
func (t *Transport) drain(b *inbox) {
	consumed := 0
	var batch []delivery
	next, handling := 0, false
	giveBack := func() {
		t.machine.Consume(b.key.from, link.Lane(b.key.lane), consumed)
		loop.BudgetOf(t).Links(t.machine.Held())
		t.wakeLocked()
		consumed = 0
	}
	defer func() {
		if !handling {
			return
		}
		// A handler has called runtime.Goexit. Another goroutine handles the messages that follow.
		t.mu.Lock()
		defer t.mu.Unlock()
		consumed += batch[next].Cost
		giveBack()
		b.queue = append(slices.Clone(batch[next+1:]), b.queue...)
		t.pool.run(b.drain)
	}()
	for {
		t.mu.Lock()
		if consumed > 0 {
			giveBack()
		}
		batch = b.queue
		b.queue, b.spare = b.spare[:0], nil
		if len(batch) == 0 {
			b.spare = batch
			t.release(b)
			t.mu.Unlock()
			return
		}
		if t.closed {
			delete(t.inboxes, b.key)
			t.mu.Unlock()
			t.counters.dropped[link.Closing].Add(uint64(len(batch)))
			return
		}
		t.mu.Unlock()
		for next = range batch {
			if !t.rejected(b, batch[next].from) {
				handling = true
				t.handle(b.key, &batch[next])
				handling = false
			}
			if consumed += batch[next].Cost; consumed >= consumeAt {
				t.mu.Lock()
				giveBack()
				t.mu.Unlock()
			}
			batch[next] = delivery{} // release the payload
		}
		if cap(batch) <= 1024 {
			b.spare = batch[:0]
		}
	}
}

// consumeAt is the number of handled bytes after which the sender gets new credit while more
// messages are queued.
const consumeAt = 64 << 10

func (t *Transport) handle(key inboxKey, d *delivery) {
	m := Message{From: d.from, Lane: key.lane, Kind: Kind(d.Kind)}
	if t.cfg.Accept != nil && !t.cfg.Accept(t.base, m) {
		t.dropUnhandled(m, link.Stranger, "dropped messages of strangers")
		return
	}
	m.Payload = d.Payload
	var r *Request
	if d.Type == link.Request {
		r = &Request{Message: m, t: t, correlation: d.Correlation}
	}
	ended := false
	defer t.recoverPanic(m, r, &ended)
	if d.Compressed {
		whole, err := decompress(d.Payload, t.cfg.MaxMessage)
		if err != nil {
			t.dropUndecompressed(m, r, err)
			ended = true
			return
		}
		m.Payload = whole
	}
	all := t.handlers.Load()
	messages := all.messages
	if key.named {
		messages = all.named
	}
	if r != nil {
		r.Payload = m.Payload
		if h := all.requests[m.Kind]; h != nil {
			h(t.base, r)
			ended = true
			return
		}
		r.reject(statusNoHandler)
	} else if h := messages[m.Kind]; h != nil {
		h(t.base, m)
		ended = true
		return
	}
	t.dropUnhandled(m, link.NoHandler, "dropped messages without a handler")
	ended = true
}

func (t *Transport) dropUnhandled(m Message, why link.Reason, line string) {
	t.counters.dropped[why].Add(1)
	t.throttle.Log(t.base, t.log, why, slog.LevelWarn, line, slog.Int("kind", int(m.Kind)), slog.String("peer", m.From.String()))
}

// rejected reports whether messages of a sender are no longer handled.
func (t *Transport) rejected(b *inbox, from identity.Node) bool {
	dead := b.quarantined.Load()
	if b.key.named {
		t.mu.Lock()
		dead = t.machine.IsQuarantined(from)
		t.mu.Unlock()
	}
	switch {
	case dead:
		t.counters.dropped[link.Quarantined].Add(1)
	case t.base.Err() != nil:
		t.counters.dropped[link.Closing].Add(1)
	default:
		return false
	}
	return true
}

// discardInboxes drops the unhandled messages of a quarantined sender. The caller holds the lock.
func (t *Transport) discardInboxes(from identity.Node) {
	for lane := range Lane(Lanes) {
		if b := t.inboxes[inboxKey{from: from, lane: lane}]; b != nil {
			b.quarantined.Store(true)
		}
	}
}

func (t *Transport) dropUndecompressed(m Message, r *Request, err error) {
	if r != nil {
		r.reject(statusFailed)
	}
	t.counters.dropped[link.Undecompressed].Add(1)
	t.throttle.Log(t.base, t.log, link.Undecompressed, slog.LevelWarn, "dropped messages that cannot be decompressed",
		slog.String("peer", m.From.String()), slog.Any("error", err))
}

// recoverPanic is deferred while a handler runs. ended reports whether the handler has returned.
func (t *Transport) recoverPanic(m Message, r *Request, ended *bool) {
	p := panics.New(recover())
	if p == nil && *ended {
		return
	}
	if r != nil {
		r.reject(statusFailed)
	}
	t.counters.dropped[link.Panicked].Add(1)
	if p == nil {
		t.throttle.Log(t.base, t.log, link.Panicked, slog.LevelError, "handler ended its goroutine", slog.Int("kind", int(m.Kind)), slog.String("peer", m.From.String()))
		return
	}
	t.throttle.Log(t.base, t.log, link.Panicked, slog.LevelError, "handler panicked", slog.Int("kind", int(m.Kind)), slog.String("peer", m.From.String()),
		slog.String("panic", panics.Text(p.Value)), slog.String("stack", string(p.Stack)))
}

// receiver is the Receiver that a Transport passes to its carrier.
type receiver struct{ t *Transport }

// Receive implements Receiver.
func (r receiver) Receive(lane Lane, from string, frame []byte) {
	t := r.t
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		t.counters.dropped[link.Closing].Add(1)
		return
	}
	t.machine.SetBudget(loop.BudgetOf(t).Links(t.machine.Held()))
	eff := t.machine.Receive(t.now(), link.Lane(lane), from, frame)
	if eff.Lost > 0 {
		t.report(Gap{From: eff.From, Lane: lane, Frames: eff.Lost})
	}
	for i := range eff.Deliver {
		d := &eff.Deliver[i]
		if d.Type == link.Reply {
			t.machine.Consume(eff.From, link.Lane(lane), d.Cost)
			t.completeRequest(eff.From, d.Message)
			continue
		}
		t.enqueue(eff.From, lane, d)
	}
	if eff.Quarantined {
		t.report(QuarantinedBy{From: eff.From})
	}
	loop.BudgetOf(t).Links(t.machine.Held())
	t.wakeLocked()
	t.mu.Unlock()
	if why := eff.Dropped; why != 0 && why != link.Old {
		t.throttle.Log(t.base, t.log, why, slog.LevelWarn, "dropped received frames", slog.String("reason", why.String()),
			slog.String("lane", lane.String()), slog.String("from", from), slog.String("peer", eff.From.String()))
	}
}

// Connection implements Receiver.
func (r receiver) Connection(err error) {
	if err != nil {
		r.t.down.Store(&err)
	} else {
		r.t.down.Store(nil)
	}
	r.t.report(Connection{Err: err})
}

// pool runs functions on reused goroutines. A new goroutine would have to grow its stack each time.
type pool struct {
	work    chan func()
	done    chan struct{}
	idle    atomic.Int32
	maxIdle int32
	workers sync.WaitGroup
}

func (p *pool) init() {
	p.work, p.done = make(chan func()), make(chan struct{})
	p.maxIdle = int32(4 * runtime.GOMAXPROCS(0)) //nolint:gosec // small
}

// run starts f immediately, on an idle worker or a new one. It must not be called after wait.
func (p *pool) run(f func()) {
	select {
	case p.work <- f:
	default:
		p.workers.Go(func() { p.worker(f) })
	}
}

func (p *pool) worker(f func()) {
	for {
		f()
		if p.idle.Add(1) > p.maxIdle {
			p.idle.Add(-1)
			return
		}
		select {
		case f = <-p.work:
			p.idle.Add(-1)
		case <-p.done:
			return
		}
	}
}

// wait ends the workers when they are idle.
func (p *pool) wait() {
	close(p.done)
	p.workers.Wait()
}
