// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"log/slog"
	"maps"
	"math"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/internal/engine"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/store"
)

// Overflow is the reaction to a command that arrives while the stash of its entity is full.
type Overflow uint8

const (
	// OverflowDrop answers ErrStashFull.
	OverflowDrop = Overflow(engine.OverflowDrop)
	// OverflowFail answers ErrStashFull and restarts the entity.
	OverflowFail = Overflow(engine.OverflowFail)
)

// Recovery limits the events that an entity replays when it starts. The zero value is no limit.
type Recovery struct {
	// Disabled replays nothing: the entity starts empty, and its next event follows the last stored
	// one. If the entity has events, the state of this instance is incomplete. So the instance saves no
	// snapshots and deletes no events: Effect.SaveSnapshot and Effect.DeleteEvents, also with Abandon,
	// lead to SnapshotFailed and EventsNotDeleted. The next instance without Disabled replays all events.
	Disabled bool
	// UpTo is the last sequence number that is replayed; 0 means no limit. Unless it is 0, the
	// entity is read-only.
	UpTo uint64
	// AsOf is the last timestamp that is replayed; zero means no limit. Unless it is zero, the
	// entity is read-only.
	AsOf time.Time
	// DisableSnapshots replays from the first event.
	DisableSnapshots bool
	// Snapshots limits the snapshots from which the recovery may start.
	Snapshots snapshot.Criteria
}

// complete reports whether the recovered state is that of all events.
func (r Recovery) complete() bool { return !r.Disabled && !r.readOnly() }

func (r Recovery) readOnly() bool { return r.UpTo > 0 || !r.AsOf.IsZero() }

// HostOptions configure HostWith. The zero value holds the defaults.
type HostOptions struct {
	hostOption

	// Store holds the events and the snapshots of the type. Types with the same Store share the writer
	// that batches their events. The runtime does not close the Store. Close it after the runtime. With
	// package sharding, all nodes must use the same store. Defaults to Config.Store.
	Store store.DB
	// Recovery limits the events that entities replay when they start.
	Recovery Recovery
	// RecoveryOf replaces Recovery and returns the limits of one entity. It is called before each recovery
	// of the entity, by several goroutines, and must not block. It excludes SharedJournal, and standbys of
	// package sharding. Defaults to none.
	RecoveryOf func(id string) Recovery
	// StashCapacity is the number of commands that may wait in an entity, and the number of
	// commands that an entity may stash itself. Defaults to 4,096; negative means no limit. While an
	// entity pauses after a failure, another limit applies to waiting commands: 1,000 may arrive in addition
	// to those that wait when the pause begins.
	StashCapacity int
	// Overflow is the reaction to further commands. Defaults to OverflowDrop.
	Overflow Overflow
	// MaxPending is the number of commands of one entity that may be handled before the journal has
	// stored their events. Defaults to 4,096.
	MaxPending int
	// MinBackoff and MaxBackoff are the limits of the pause after a failure, which doubles each
	// time. They default to 3 s and 30 s.
	MinBackoff, MaxBackoff time.Duration
	// BackoffJitter extends a pause by a random fraction of up to this value. Defaults to 0.2;
	// negative means none.
	BackoffJitter float64
	// Supervise decides what follows a failure of an entity: a panic of its code (*PanicError), a write
	// that was not stored (ErrConflict, ErrRejected or another error of the journal) or may not be stored
	// (ErrOutcomeUnknown), a recovery that failed (ErrRecovery), or a full stash with OverflowFail. It must
	// not block, and it is called by several goroutines. A panic of Supervise counts as Restart. It is not
	// called for an entity that stops anyway. Defaults to Restart in all cases.
	Supervise func(error) Directive
	// PanicLimit is the number of panics within PanicWindow after which an entity pauses before its
	// restart. They default to 5 and 10 s.
	PanicLimit  int
	PanicWindow time.Duration
	// WorkersOnly handles all commands on the goroutines of Config.Workers. Otherwise Ask handles its
	// command on its own goroutine if the entity is idle. If the journal is local (see snapshot.Local) and
	// stores nothing else, Ask also appends the events. Such an Ask returns when the handler and the append
	// have ended, even if its context ends earlier. A disk that hangs delays one such Ask for each Store.
	// runtime.Goexit in the handler ends the caller's goroutine. If the handlers of two entities ask each
	// other, neither returns before the context of the inner Ask ends.
	WorkersOnly bool
	// SharedJournal lets several runtimes without package sharding host the type over one journal.
	// Without it, a runtime that does not write answers from a state that other runtimes have
	// outdated, and a write after one of theirs fails with ErrConflict.
	//
	// With SharedJournal, the runtime reads the sequence number of the entity's last event before
	// each command (once for all commands that wait), and applies newer events first. A command
	// whose write conflicts is handled again, up to 100 times. So replies are as exact as with one
	// runtime, at the price of one read per command. Set it in all runtimes that host the type.
	//
	// Timers, stashed commands and replies of ReplyLater stay within one runtime. Each runtime with the
	// entity in memory sends StateTimeout, until an event changes the deadline. SharedJournal excludes
	// package sharding, Type.Parts and a limited Recovery.
	SharedJournal bool
	// PassivateAfter stops an entity that has handled no command for this time and has no work, such
	// as a timer, a deadline or an unconfirmed delivery. Defaults to 2 minutes, as with package
	// sharding; negative means never.
	//
	// An entity without events leaves memory as soon as it has handled its commands and has no work,
	// whatever PassivateAfter is. So commands to unknown IDs occupy no memory.
	PassivateAfter time.Duration
}

// hostOption lets package sharding connect to the entities.
type hostOption = hosting.HostOption

func (o HostOptions) withDefaults() HostOptions {
	o.StashCapacity = cmp.Or(o.StashCapacity, 4096)
	o.MaxPending = cmp.Or(o.MaxPending, 4096)
	o.MinBackoff = cmp.Or(o.MinBackoff, 3*time.Second)
	o.MaxBackoff = cmp.Or(o.MaxBackoff, max(30*time.Second, o.MinBackoff))
	o.BackoffJitter = max(0, cmp.Or(o.BackoffJitter, 0.2))
	o.PanicLimit = cmp.Or(o.PanicLimit, 5)
	o.PanicWindow = cmp.Or(o.PanicWindow, 10*time.Second)
	if hosting.ShardingOf(o.hostOption) == nil { // sharding passivates its entities itself
		o.PassivateAfter = cmp.Or(o.PassivateAfter, 2*time.Minute)
	}
	return o
}

func (o HostOptions) validate() error {
	var errs fielderror.Errors
	if o.MaxPending < 1 {
		errs.Addf("HostOptions.MaxPending", "is %d, it must be at least 1", o.MaxPending)
	}
	if o.MinBackoff < 0 || o.MaxBackoff < o.MinBackoff {
		errs.Addf("HostOptions.MinBackoff", "is %v and MaxBackoff is %v, want 0 <= MinBackoff <= MaxBackoff", o.MinBackoff, o.MaxBackoff)
	}
	if o.PanicLimit < 1 || o.PanicLimit > math.MaxUint16 {
		errs.Addf("HostOptions.PanicLimit", "is %d, it must be from 1 to %d", o.PanicLimit, math.MaxUint16)
	}
	fielderror.NotNegative(&errs, "HostOptions.PanicWindow", o.PanicWindow)
	if o.SharedJournal && (!o.Recovery.complete() || o.RecoveryOf != nil) {
		errs.Addf("HostOptions.SharedJournal", "is set, but Recovery or RecoveryOf limits the events")
	}
	if o.Overflow > OverflowFail {
		errs.Addf("HostOptions.Overflow", "is %d, which is unknown", o.Overflow)
	}
	return errs.Err(ErrInvalid)
}

// Entities are the entities of one type with state S: on this node (Local), or in a cluster
// (sharding.Region). The methods are safe for concurrent use.
type Entities[S any] interface {
	// Ref returns the reference to the entity with this ID. The entity need not exist: the first
	// message starts it. IDs are checked when a message is sent.
	Ref(id string) Ref[S]
	// Start starts an entity and waits until it is recovered. A message also starts its entity, so
	// Start is needed only for an entity that acts without messages. The errors are those of Ask.
	Start(ctx context.Context, id string) error
	// IDs yields the IDs of all entities of the type that the journal contains, in bytewise order,
	// without starting any. An error is yielded once and ends the iteration.
	IDs(ctx context.Context) iter.Seq2[string, error]
	// Wake starts the entities that have unconfirmed deliveries or a deadline, and returns their
	// number. A program on one node calls Wake at its start. In a cluster, the region starts such
	// entities itself: see sharding.Options.Wake and sharding.Region.Wake.
	Wake(ctx context.Context) (started int, err error)
}

// Local runs the entities of one type on this node. It is safe for concurrent use.
type Local[S, E any] struct{ host *host }

// host is a Local without its type parameters.
type host struct {
	*storage

	rt     *Runtime
	model  *model
	opts   HostOptions
	hooks  hosting.Hooks
	engine engine.Config
	seed   maphash.Seed
	shards [hostShards]hostShard
	sweep  *time.Timer
	sweeps atomic.Int32 // the number of calls of passivateIdle
	// nodeLocal is set if entities move to nodes that cannot read the snapshots.
	nodeLocal bool
	offers    bool          // entities accept the offers of callers to take a turn
	leaves    bool          // an entity without events does not stay in memory
	indexes   bool          // entities with pending work have entries in the index of package sharding
	farewells bool          // the type handles Stopping
	count     atomic.Int64  // entities in the shards
	empty     chan struct{} // closed when the host is closed and no entity is left
	once      sync.Once
	reason    atomic.Pointer[error] // of an escalation; nil for none

	standby    *standby // nil unless the host follows entities of other nodes
	unreturned sync.Map // types of messages whose lost effects were logged: reflect.Type to nil
}

const hostShards = 64

type hostShard struct {
	mu       sync.Mutex
	entities map[string]*entity
	closed   bool
}

// Host runs the entities of a type in a runtime, with the default options. A type can be hosted once
// in a runtime.
//
// If several processes host the type over one journal, an entity may be in the memory of more than one
// of them. Its events stay consistent, but the replies of a process that does not write may be outdated,
// without an error. Use package sharding or HostOptions.SharedJournal, or send all commands for an
// entity to one process.
func Host[S, E any](rt *Runtime, typ Type[S, E]) (*Local[S, E], error) {
	return HostWith(rt, typ, HostOptions{})
}

// HostWith is Host with options.
func HostWith[S, E any](rt *Runtime, typ Type[S, E], opts HostOptions) (*Local[S, E], error) {
	m, err := newModel(typ)
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	h, err := newHost(rt, m, opts)
	if err != nil {
		return nil, fmt.Errorf("host type %q: %w", typ.Name, err)
	}
	return &Local[S, E]{h}, nil
}

func newHost(rt *Runtime, m *model, opts HostOptions) (*host, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	db := cmp.Or(opts.Store, rt.Store())
	var j journal.Journal
	var saved snapshot.Store
	if db != nil {
		j, saved = db.Journal(), db.Snapshots()
	}
	if m.events != nil && j == nil {
		return nil, ErrNoJournal
	}
	if m.snapshots.configured() && saved == nil {
		rt.log.Warn("eventsourcing: the type saves snapshots, but its store has no snapshot store", slog.String("type", m.name))
	}
	h := &host{rt: rt, model: m, opts: opts, seed: maphash.MakeSeed(), empty: make(chan struct{})}
	s := hosting.ShardingOf(opts.hostOption)
	if s != nil {
		h.hooks, s.Host = s.Hooks, shardedHost{h}
	}
	if opts.SharedJournal && (s != nil || len(m.parts) > 0) {
		return nil, fmt.Errorf("%w: HostOptions.SharedJournal: package sharding, and types with Type.Parts, need one owner of each entity", ErrInvalid)
	}
	h.nodeLocal = (s != nil || opts.SharedJournal) && hosting.NodeLocal(j, saved)
	if h.nodeLocal && m.snapshots.deleteEvents {
		return nil, fmt.Errorf("%w: Type.Snapshots.DeleteEvents: the snapshot store is local to this node, and the journal is not: "+
			"an entity that moves to another node would lose its deleted events", ErrInvalid)
	}
	h.indexes = h.hooks.PendingWork != nil && m.mayHaveWork() && opts.RecoveryOf == nil && opts.Recovery.complete()
	h.offers = !opts.WorkersOnly
	h.leaves = m.events != nil && !h.hooks.Remembered
	h.farewells = m.signals[reflect.TypeFor[Stopping]()] != nil
	for i := range h.shards {
		h.shards[i].entities = make(map[string]*entity)
	}
	h.engine = engine.Config{
		StashCapacity: opts.StashCapacity,
		Overflow:      engine.Overflow(opts.Overflow),
		MaxPending:    opts.MaxPending,
		Sequential:    m.sequential,
		Shared:        opts.SharedJournal && j != nil,
		MinBackoff:    opts.MinBackoff,
		MaxBackoff:    opts.MaxBackoff,
		Jitter:        opts.BackoffJitter,
		BackoffStash:  1000,
		PanicLimit:    opts.PanicLimit,
		PanicWindow:   opts.PanicWindow,
		Signals:       len(m.signals) > 0 || len(m.parts) > 0,
		Seed:          rt.seed,
	}
	if saved != nil && !opts.Recovery.readOnly() {
		h.engine.SnapshotEvery = uint64(m.snapshots.every) //nolint:gosec // not negative, see validate
		h.engine.KeepSnapshots = uint64(m.snapshots.keep)  //nolint:gosec // see above
	}
	if opts.Supervise != nil {
		h.engine.Supervise = h.supervise
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	switch {
	case rt.closed:
		return nil, ErrClosed
	case rt.hosts[m.name] != nil:
		return nil, fmt.Errorf("%w: the runtime already hosts this type", ErrInvalid)
	}
	var err error
	if h.storage, err = rt.storageFor(opts.Store); err != nil {
		return nil, err
	}
	if s != nil && s.Follow != nil {
		if h.standby, err = newStandby(h, *s.Follow); err != nil {
			return nil, err
		}
	}
	rt.hosts[m.name] = h
	if opts.PassivateAfter > 0 {
		first := &h.shards[0]
		first.mu.Lock() // passivateIdle uses h.sweep and may run at once
		h.sweep = time.AfterFunc(h.sweepInterval(), h.passivateIdle)
		first.mu.Unlock()
	}
	return h, nil
}

// Ref implements Entities.
func (h *Local[S, E]) Ref(id string) Ref[S] { return Ref[S]{id: id, to: h.host} }

// Resident returns the number of entities in memory.
func (h *Local[S, E]) Resident() int { return h.host.resident() }

func (h *host) resident() int { return int(h.count.Load()) }

func (h *host) typeName() string { return h.model.name }

func (h *host) calls() *callPool { return &h.rt.calls }

func (h *host) shard(id string) *hostShard {
	return &h.shards[maphash.String(h.seed, id)%hostShards]
}

// deliver implements target.
func (h *host) deliver(id string, env *engine.Envelope) error {
	return h.route(hosting.NewMessage(id, env, false))
}

// enqueue puts a message into the mailbox of its entity, which is created if it is not in memory. A
// full mailbox accepts only the entity's own messages.
func (h *host) enqueue(id string, env *engine.Envelope, own bool) error {
	limit := h.opts.StashCapacity
	if own {
		limit = -1
	}
	s := h.shard(id)
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return fmt.Errorf("%s: %w", h.model.naming.display(id), ErrClosed)
		}
		e := s.entities[id]
		if e == nil {
			pid, err := h.model.naming.persistenceID(id)
			if err != nil {
				s.mu.Unlock()
				return err
			}
			e = newEntity(h, id, pid)
			s.entities[e.id()] = e
			h.count.Add(1)
		}
		s.mu.Unlock()
		if h.rt.watched {
			h.rt.begin(e.pid(), env)
		}
		switch e.accept(env, limit) {
		case accepted:
			return nil
		case mailboxFull:
			return fmt.Errorf("%s: %w", e.pid(), ErrStashFull)
		case entityGone: // try again with a new one
		}
	}
}

func checkIDs(id, pid string) error { return cmp.Or(checkID(id), checkID(pid)) }

func checkID(id string) error {
	if err := journal.CheckID(id); err != nil {
		return fmt.Errorf("%w: entity ID: %w", ErrArgument, err)
	}
	return nil
}

// remove removes a stopped entity from the host, unless it has input. Messages that a drained or
// killed entity has not received go to a new entity, which starts after the call of Hooks.Gone. A
// closed host rejects them.
func (h *host) remove(e *entity, out *engine.Effects) {
	s := h.shard(e.id())
	s.mu.Lock()
	rest, requested, gone := e.leave()
	closed := s.closed
	var next *entity
	switch {
	case !gone:
	case rest.Len() > 0 && !closed:
		next = newEntity(h, e.id(), e.pid())
		next.mailbox, next.stops, next.queued = rest, requested, true
		s.entities[next.id()] = next
	default:
		delete(s.entities, e.id())
		h.count.Add(-1)
	}
	s.mu.Unlock()
	if gone && h.hooks.Gone != nil {
		h.hooks.Gone(e.id(), e.passivates)
	}
	if next != nil {
		h.rt.workers.push(next)
	}
	if gone && closed {
		e.reject(&rest, out)
		h.checkEmpty()
	}
}

func (h *host) find(id string) *entity {
	s := h.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entities[id]
}

// stop requests a stop of an entity and reports whether the entity is in memory.
func (h *host) stop(id string, s stops) bool {
	shard := h.shard(id)
	shard.mu.Lock() // remove may replace the entity
	defer shard.mu.Unlock()
	e := shard.entities[id]
	if e != nil {
		e.stop(s)
	}
	return e != nil
}

func (h *host) each(f func(*entity)) {
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		all := slices.Collect(maps.Values(s.entities))
		s.mu.Unlock()
		for _, e := range all {
			f(e)
		}
	}
}

func (h *host) close() {
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
	}
	if h.sweep != nil {
		h.sweep.Stop()
	}
	h.each(func(e *entity) { e.stop(stopClosed) })
	h.checkEmpty()
}

// checkEmpty ends a closed host without entities: the runtime may host the type again.
func (h *host) checkEmpty() {
	if h.resident() > 0 {
		return
	}
	h.once.Do(func() {
		h.rt.mu.Lock()
		defer h.rt.mu.Unlock()
		if !h.rt.closed {
			delete(h.rt.hosts, h.model.name)
		}
		close(h.empty)
	})
}

func (h *host) drained(ctx context.Context) error {
	select {
	case <-h.empty:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain type %q: %d entities left: %w", h.model.name, h.resident(), context.Cause(ctx))
	}
}

func (h *host) sweepInterval() time.Duration {
	return max(h.opts.PassivateAfter/4, time.Millisecond)
}

// passivateIdle stops the entities that were idle for PassivateAfter. An entity that was last used
// after the n-th call was idle for k intervals at the call n+1+k.
func (h *host) passivateIdle() {
	interval := h.sweepInterval()
	k := (h.opts.PassivateAfter + interval - 1) / interval
	before := h.sweeps.Add(1) - 1 - int32(k) //nolint:gosec // small
	h.each(func(e *entity) {
		if before-e.lastUsed.Load() >= 0 { // also after an overflow
			e.stop(stopIdle)
		}
	})
	s := &h.shards[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		h.sweep.Reset(h.sweepInterval())
	}
}
