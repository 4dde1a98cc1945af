// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
)

// Overflow says what happens to a command that finds the stash of its entity
// full.
type Overflow uint8

const (
	// OverflowDrop answers ErrStashFull.
	OverflowDrop = Overflow(engine.OverflowDrop)
	// OverflowFail answers ErrStashFull and restarts the entity.
	OverflowFail = Overflow(engine.OverflowFail)
	// OverflowReply answers HostOptions.OverflowValue.
	OverflowReply = Overflow(engine.OverflowReply)
)

// Recovery says how far an entity is refolded when it starts. The zero value is
// all of it.
type Recovery struct {
	// Disabled replays nothing: the entity starts empty, and its next event
	// follows the last stored one.
	Disabled bool
	// UpTo is the last number that is replayed; 0 means no bound. Unless it is
	// 0 the entity is read-only.
	UpTo uint64
	// AsOf is the last timestamp that is replayed; zero means no bound. Unless
	// it is zero the entity is read-only.
	AsOf time.Time
	// DisableSnapshots replays from the first event.
	DisableSnapshots bool
	// Snapshots, if it is not the zero value, narrows which snapshots count.
	Snapshots snapshot.Criteria
}

func (r Recovery) readOnly() bool { return r.UpTo > 0 || !r.AsOf.IsZero() }

// HostOptions configure the Entities that Host returns. The zero value holds the defaults.
type HostOptions struct {
	// Recovery says how far entities are refolded when they start.
	Recovery Recovery
	// StashCapacity bounds the commands that wait inside an entity, and those
	// that it put aside itself. Defaults to 4,096; negative means no bound.
	StashCapacity int
	// Overflow says what happens beyond it. Defaults to OverflowDrop.
	Overflow Overflow
	// OverflowValue is what OverflowReply answers with.
	OverflowValue any
	// MaxPending is how many commands of one entity may be handled before the
	// journal has stored their events. Defaults to 4,096.
	MaxPending int
	// MinBackoff and MaxBackoff bound the pause after a failure, which doubles
	// each time. They default to 3 s and 30 s.
	MinBackoff, MaxBackoff time.Duration
	// BackoffJitter draws a pause out by up to this share of it. Defaults to
	// 0.2; negative means none.
	BackoffJitter float64
	// PassivateAfter stops an entity that handled no command for this long and
	// has nothing to do, such as a delivery that is not confirmed.
	// Defaults to never.
	PassivateAfter time.Duration
	// Route, if it is not nil, gets all commands for entities of this type, also those that entities send, in place of the
	// entities: they may be on other nodes. What is for this one it hands to Entities.Deliver. It must not block. An error
	// says that the message was not handed over, and that nobody will answer it.
	Route func(Message) error
	// Gone is told of each entity that has left memory. It must not block. Passivated says that
	// the entity asked for it with Context.Passivate, or was asked to by Entities.Passivate. A command that comes meanwhile
	// starts the entity anew, and Gone is told of it again.
	Gone func(id string, passivated bool)
	// Busy is told of each entity that was asked to stop by Entities.Passivate and goes on, since it has something to do. It must not
	// block.
	Busy func(id string)
	// Killed is what the commands are answered that an entity had not handled when it was stopped by Entities.Kill. It must match
	// ErrStopped. Defaults to ErrStopped.
	Killed error
}

func (o HostOptions) withDefaults() HostOptions {
	o.StashCapacity = cmp.Or(o.StashCapacity, 4096)
	o.MaxPending = cmp.Or(o.MaxPending, 4096)
	o.MinBackoff = cmp.Or(o.MinBackoff, 3*time.Second)
	o.MaxBackoff = cmp.Or(o.MaxBackoff, max(30*time.Second, o.MinBackoff))
	o.BackoffJitter = max(0, cmp.Or(o.BackoffJitter, 0.2))
	return o
}

func (o HostOptions) validate() error {
	var errs []error
	if o.MaxPending < 1 {
		errs = append(errs, fmt.Errorf("%w: HostOptions.MaxPending is %d, at least 1 is needed", ErrInvalid, o.MaxPending))
	}
	if o.MinBackoff < 0 || o.MaxBackoff < o.MinBackoff {
		errs = append(errs, fmt.Errorf("%w: HostOptions.MinBackoff %v and MaxBackoff %v are no range", ErrInvalid, o.MinBackoff, o.MaxBackoff))
	}
	if o.PassivateAfter < 0 {
		errs = append(errs, fmt.Errorf("%w: HostOptions.PassivateAfter is negative", ErrInvalid))
	}
	if o.Killed != nil && !errors.Is(o.Killed, ErrStopped) {
		errs = append(errs, fmt.Errorf("%w: HostOptions.Killed is %q, which does not match ErrStopped", ErrInvalid, o.Killed.Error()))
	}
	if o.Overflow > OverflowReply {
		errs = append(errs, fmt.Errorf("%w: HostOptions.Overflow %d is unknown", ErrInvalid, o.Overflow))
	}
	return errors.Join(errs...)
}

// Entities runs the entities of one type on this node. It is safe for
// concurrent use.
type Entities[C, E any] struct {
	rt     *Runtime
	model  *model[C, E]
	opts   HostOptions
	engine engine.Config
	seed   maphash.Seed
	shards [hostShards]hostShard[C, E]
	sweep  *time.Timer
	count  atomic.Int64  // entities in the shards
	empty  chan struct{} // closed when the host is closed and no entity is left
	once   sync.Once
}

const hostShards = 64

type hostShard[C, E any] struct {
	mu       sync.Mutex
	entities map[string]*entity[C, E]
	closed   bool
}

// Host makes a type of entity available in a runtime. A type has one host.
func Host[C, E any](rt *Runtime, typ Type[C, E], opts HostOptions) (*Entities[C, E], error) {
	m, err := newModel(typ)
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("host type %q: %w", typ.Name, err)
	}
	if typ.Events != nil && rt.journal == nil {
		return nil, fmt.Errorf("host type %q: %w", typ.Name, ErrNoJournal)
	}
	if p := typ.Snapshots; p.set && rt.snapshots == nil {
		rt.log.Warn("the type asks for snapshots, but the runtime has no store for them", slog.String("type", typ.Name))
	}
	h := &Entities[C, E]{rt: rt, model: m, opts: opts, seed: maphash.MakeSeed(), empty: make(chan struct{})}
	for i := range h.shards {
		h.shards[i].entities = make(map[string]*entity[C, E])
	}
	_, handlesSignals := typ.New("").(SignalHandler[C, E])
	h.engine = engine.Config{
		StashCapacity: opts.StashCapacity,
		Overflow:      engine.Overflow(opts.Overflow),
		OverflowReply: opts.OverflowValue,
		MaxPending:    opts.MaxPending,
		Sequential:    typ.DisablePipelining,
		MinBackoff:    opts.MinBackoff,
		MaxBackoff:    opts.MaxBackoff,
		Jitter:        opts.BackoffJitter,
		BackoffStash:  1000,
		PanicLimit:    5,
		PanicWindow:   10 * time.Second,
		Signals:       handlesSignals,
		Seed:          rt.seed,
	}
	if rt.snapshots != nil && !opts.Recovery.readOnly() {
		h.engine.SnapshotEvery = uint64(typ.Snapshots.every) //nolint:gosec // not negative, see validate
		h.engine.KeepSnapshots = uint64(typ.Snapshots.keep)  //nolint:gosec // see above
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	switch {
	case rt.closed:
		return nil, fmt.Errorf("host type %q: %w", typ.Name, ErrClosed)
	case rt.hosts[typ.Name] != nil:
		return nil, fmt.Errorf("%w: host type %q: it has a host already", ErrInvalid, typ.Name)
	}
	rt.hosts[typ.Name] = h
	if opts.PassivateAfter > 0 {
		first := &h.shards[0]
		first.mu.Lock() // the first sweep may come at once
		h.sweep = time.AfterFunc(h.sweepInterval(), h.passivateIdle)
		first.mu.Unlock()
	}
	return h, nil
}

// Ref addresses the entity with this ID. It need not exist: the first command
// starts it. IDs are checked when a command is sent.
func (h *Entities[C, E]) Ref(id string) Ref[C] { return Ref[C]{id: id, to: h} }

// Resident returns how many entities are in memory.
func (h *Entities[C, E]) Resident() int { return int(h.count.Load()) }

func (h *Entities[C, E]) typeName() string { return h.model.typ.Name }

func (h *Entities[C, E]) calls() *callPool { return &h.rt.calls }

func (h *Entities[C, E]) shard(id string) *hostShard[C, E] {
	return &h.shards[maphash.String(h.seed, id)%hostShards]
}

// deliver is part of target.
func (h *Entities[C, E]) deliver(id string, env *engine.Envelope) error {
	return h.route(Message{id: id, env: env})
}

// place puts a message into the mailbox of its entity, which it makes if it is
// not there. A mailbox that is full turns away all but the entity's own messages.
func (h *Entities[C, E]) place(id string, env *engine.Envelope, own bool) error {
	most := h.opts.StashCapacity
	if own {
		most = -1
	}
	s := h.shard(id)
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return fmt.Errorf("%s|%s: %w", h.model.typ.Name, id, ErrClosed)
		}
		e := s.entities[id]
		if e == nil {
			pid := journal.JoinID(h.model.typ.Name, id)
			if err := checkIDs(id, pid); err != nil {
				s.mu.Unlock()
				return err
			}
			e = newEntity(h, pid)
			s.entities[e.id()] = e
			h.count.Add(1)
		}
		s.mu.Unlock()
		if h.rt.watched {
			h.rt.begin(e.pid, env)
		}
		switch e.accept(env, most) {
		case mailboxTook:
			return nil
		case mailboxFull:
			return h.turnAway(e.pid, env)
		case mailboxGone:
		}
	}
}

// turnAway answers a message that found the mailbox full.
func (h *Entities[C, E]) turnAway(pid string, env *engine.Envelope) error {
	if r, waits := env.Caller.(replier); waits && h.opts.Overflow == OverflowReply && r.Take() {
		if h.rt.watched {
			h.rt.begin(pid, env)
			observing(env).end(nil)
		}
		r.reply(h.opts.OverflowValue, nil)
		return nil
	}
	return fmt.Errorf("%s: %w", pid, ErrStashFull)
}

// checkID checks an entity's own ID.
func checkID(id string) error {
	if err := journal.CheckID(id); err != nil {
		return fmt.Errorf("%w: entity ID: %w", ErrInvalid, err)
	}
	return nil
}

// checkIDs checks an entity's own ID and the persistence ID made of it.
func checkIDs(id, pid string) error {
	if err := checkID(id); err != nil {
		return err
	}
	if err := journal.CheckID(pid); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// receive is part of receiver.
func (h *Entities[C, E]) receive(id string, env *engine.Envelope) error {
	if _, ok := env.Message.(C); !ok {
		return fmt.Errorf("%w: %T is no command of type %q", ErrInvalid, env.Message, h.model.typ.Name)
	}
	return h.deliver(id, env)
}

// remove takes an entity that has stopped out of the host, unless a message has
// come meanwhile.
func (h *Entities[C, E]) remove(e *entity[C, E]) {
	s := h.shard(e.id())
	s.mu.Lock()
	gone, closed := e.leave(), s.closed
	if gone {
		delete(s.entities, e.id())
		h.count.Add(-1)
	}
	s.mu.Unlock()
	if gone && h.opts.Gone != nil {
		h.opts.Gone(e.id(), e.passivates)
	}
	if gone && closed {
		h.checkEmpty()
	}
}

// Passivate asks an entity to stop if it has nothing to do. It reports whether the entity is in memory; HostOptions.Gone
// is told when it has stopped, and HostOptions.Busy if it does not.
func (h *Entities[C, E]) Passivate(id string) bool { return h.want(id, wantIdle) }

// Drain stops an entity when it has handled the commands that it has. The rest is as in Passivate.
func (h *Entities[C, E]) Drain(id string) bool { return h.want(id, wantDrain) }

// Kill stops an entity without waiting for that: the commands that it has are answered HostOptions.Killed, but for those whose events
// are being stored. The rest is as in Passivate.
func (h *Entities[C, E]) Kill(id string) bool { return h.want(id, wantForce) }

// InMemory reports whether an entity is in memory. HostOptions.Gone may still have to be told that an earlier one has left.
func (h *Entities[C, E]) InMemory(id string) bool { return h.find(id) != nil }

func (h *Entities[C, E]) find(id string) *entity[C, E] {
	s := h.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entities[id]
}

func (h *Entities[C, E]) want(id string, w wants) bool {
	e := h.find(id)
	if e != nil {
		e.want(w)
	}
	return e != nil
}

// each calls f for every entity.
func (h *Entities[C, E]) each(f func(*entity[C, E])) {
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		all := make([]*entity[C, E], 0, len(s.entities))
		for _, e := range s.entities {
			all = append(all, e)
		}
		s.mu.Unlock()
		for _, e := range all {
			f(e)
		}
	}
}

func (h *Entities[C, E]) close() {
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
	}
	if h.sweep != nil {
		h.sweep.Stop()
	}
	h.each(func(e *entity[C, E]) { e.want(wantDrain) })
	h.checkEmpty()
}

func (h *Entities[C, E]) checkEmpty() {
	if h.Resident() == 0 {
		h.once.Do(func() { close(h.empty) })
	}
}

func (h *Entities[C, E]) drained(ctx context.Context) error {
	select {
	case <-h.empty:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain type %q: %d entities left: %w", h.model.typ.Name, h.Resident(), context.Cause(ctx))
	}
}

func (h *Entities[C, E]) kill() {
	h.each(func(e *entity[C, E]) { e.want(wantKill) })
	<-h.empty
}

// sweepInterval is how often idle entities are looked for.
func (h *Entities[C, E]) sweepInterval() time.Duration {
	return max(h.opts.PassivateAfter/4, time.Millisecond)
}

func (h *Entities[C, E]) passivateIdle() {
	before := h.rt.steady().Add(-h.opts.PassivateAfter).UnixNano()
	h.each(func(e *entity[C, E]) {
		if e.lastUsed.Load() <= before {
			e.want(wantIdle)
		}
	})
	s := &h.shards[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		h.sweep.Reset(h.sweepInterval())
	}
}
