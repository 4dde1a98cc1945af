// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/store"
)

// Region is the access of a node to the entities of a type. It hosts the share of the shards that
// the coordinator allocates to the node. It implements eventsourcing.Entities. Its methods are safe
// for concurrent use.
type Region[S any] struct {
	shell    *shell
	entities eventsourcing.Entities[S]
	tenancy  *tenancy
}

// Host starts a region: the node hosts entities of a type together with all other nodes that call
// Host for it. On a node without Options.Role, and with Options.ProxyOnly, Host starts a proxy. It
// does not wait until the node is a member or a coordinator is found: see Region.AwaitReady. The
// runtime runs the entities of this node; close it after the node.
//
// The region ends with the node, or by Region.Close. When the node shuts down, its shards are handed
// off to other regions first, without loss if other regions exist and cluster.PhaseStopRegions is
// long enough.
// The error matches ErrInvalid or cluster.ErrShuttingDown, or is that of ctx if it had already
// ended.
func Host[S, E any](ctx context.Context, node *cluster.Node, rt *eventsourcing.Runtime, typ eventsourcing.Type[S, E], opts Options) (*Region[S], error) {
	if node != nil && opts.Role != "" && !slices.Contains(node.Roles(), opts.Role) {
		return Proxy(ctx, node, rt, typ.Protocol(), opts)
	}
	opts.hasWork = hasWork(typ, &opts.Host)
	r, err := start(ctx, node, rt, typ.Protocol(), opts, false, func(s *shell, t *tenancy) (entities eventsourcing.Entities[S], err error) { //nolint:contextcheck // the runtime has its own context
		if opts.ProxyOnly {
			return remoteEntities(s, rt, typ.Protocol(), opts.Host.Store), nil
		}
		hooks := hosting.Hooks{
			Route: s.route, Gone: s.entityGone, Busy: s.entityBusy, Killed: ErrHandOff, Remembered: s.opts.Remember != nil,
			Escalated: func(cause error) { s.escalate(t, cause) },
		}
		if s.loadMeter != nil {
			hooks.Meter = s.loadMeter.of
		}
		if s.wakeStore != nil {
			hooks.PendingWork, hooks.WorkSettled = s.pendingWork, s.workSettled
		}
		connection, options := &hosting.Sharding{Hooks: hooks, Follow: s.follow()}, opts.Host
		hosting.Shard(&options, connection)
		if entities, err = eventsourcing.HostWith(rt, typ, options); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		t.host = connection.Host
		s.startFollowing(t)
		return entities, nil
	})
	if err != nil {
		return nil, fmt.Errorf("sharding: host type %q: %w", typ.Name, err)
	}
	return r, nil
}

// hasWork reports whether entities of a type can have pending work. Entities with a limited recovery
// are read-only, or begin without their work.
func hasWork[S, E any](typ eventsourcing.Type[S, E], host *eventsourcing.HostOptions) bool {
	r := &host.Recovery
	limited := host.RecoveryOf != nil || r.Disabled || r.UpTo > 0 || !r.AsOf.IsZero()
	return !limited && typ.Events != nil && (len(typ.Parts) > 0 || typ.Deadline != nil)
}

// Proxy starts a proxy on a node that hosts no entities of the type. On a node with Options.Role,
// call Host instead, because the oldest of these nodes runs the coordinator; Proxy returns an error
// that matches ErrInvalid there. Options.ProxyOnly lets such a node host no entities. If
// Options.Role is empty, every node must call Host. Options.State is ignored. The runtime propagates
// the trace context and lists the IDs; it may be nil.
func Proxy[S any](ctx context.Context, node *cluster.Node, rt *eventsourcing.Runtime, protocol eventsourcing.Protocol[S], opts Options) (*Region[S], error) {
	if node != nil && (opts.Role == "" || slices.Contains(node.Roles(), opts.Role)) {
		return nil, fmt.Errorf(
			"sharding: start a proxy of type %q: %w: the node may host the type and must call Host: set Options.ProxyOnly there, or set Options.Role to a role that this node does not have", protocol.Name, ErrInvalid)
	}
	r, err := start(ctx, node, rt, protocol, opts, true, func(s *shell, _ *tenancy) (eventsourcing.Entities[S], error) {
		return remoteEntities(s, rt, protocol, opts.Host.Store), nil
	})
	if err != nil {
		return nil, fmt.Errorf("sharding: start a proxy of type %q: %w", protocol.Name, err)
	}
	return r, nil
}

// remoteEntities returns the entities of a type for a node that hosts none.
func remoteEntities[S any](s *shell, rt *eventsourcing.Runtime, protocol eventsourcing.Protocol[S], db store.DB) eventsourcing.Entities[S] {
	return remoteOf(protocol).Entities(rt, hosting.Listing{Type: protocol.Name, Store: db, EntityID: protocol.EntityID}, s.route)
}

func remoteOf[S any](protocol eventsourcing.Protocol[S]) hosting.Remote[eventsourcing.Entities[S], *eventsourcing.Runtime] {
	return hosting.RemoteOf[eventsourcing.Entities[S], *eventsourcing.Runtime](protocol)
}

// start starts a region or a proxy. The argument host creates the entities.
func start[S any](
	ctx context.Context, node *cluster.Node, rt *eventsourcing.Runtime, typ eventsourcing.Protocol[S], opts Options, proxy bool,
	host func(*shell, *tenancy) (eventsourcing.Entities[S], error),
) (*Region[S], error) {
	if node == nil {
		return nil, fmt.Errorf("%w: nil node", ErrInvalid)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	opts = opts.withDefaults(node, rt)
	var errs fielderror.Errors
	if rt == nil && !proxy {
		errs.Addf("the runtime", "is nil")
	}
	opts.validate(&errs, proxy)
	if opts.Lease && !proxy {
		_, err := node.NewLease(leaseName(node.Cluster(), typ.Name, coordinator.MaxShards))
		errs.Add("Options.Lease", err)
	}
	if !hasNames(typ.Commands) {
		errs.Addf("Type.Commands", "is missing: it names the commands that travel between nodes")
	} else {
		errs.Add("Type.Commands", typ.Commands.Err())
	}
	errs.Join(Scope{Type: typ.Name, Role: opts.Role}.validate(), "Scope.Type", "Type.Name", "Scope.Role", "Options.Role")
	if most := singleton.MaxNameLength - len(singletonPrefix); len(typ.Name) > most {
		errs.Addf("Type.Name", "has %d bytes, at most %d are allowed", len(typ.Name), most)
	}
	if journal.IsReserved(typ.Name) {
		errs.Addf("Type.Name", "is %q, which is reserved", typ.Name)
	}
	if err := errs.Err(ErrInvalid); err != nil {
		return nil, err
	}
	r := &Region[S]{tenancy: &tenancy{done: make(chan struct{})}}
	if s := routerOf(node).find(typ.Name); s != nil {
		r.shell = s
		return r, s.reopen(ctx, opts, proxy, r.tenancy, func() (err error) { r.entities, err = host(s, r.tenancy); return err }, r)
	}
	s, err := newShell(ctx, node, rt, typ.Name, typ.Commands, opts, proxy)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	s.carrier = remoteOf(typ)
	r.shell = s
	s.hosted.Store(r.tenancy)
	if err := s.launch(ctx, func() (err error) { r.entities, err = host(s, r.tenancy); return err }, r); err != nil {
		return nil, err
	}
	s.log.LogAttrs(ctx, slog.LevelInfo, "region started", slog.Bool("proxy", proxy), slog.Int("shards", opts.Shards))
	return r, nil
}

// RegionOf returns the region or proxy of a type that runs on a node. The error matches ErrInvalid
// if there is none, or if its state type is not S.
func RegionOf[S any](node *cluster.Node, typ string) (*Region[S], error) {
	if node == nil {
		return nil, fmt.Errorf("%w: region of type %q: nil node", ErrInvalid, typ)
	}
	b := routerOf(node)
	b.mu.RLock()
	found := b.regions[typ]
	b.mu.RUnlock()
	switch r := found.(type) {
	case *Region[S]:
		return r, nil
	case nil:
		return nil, fmt.Errorf("%w: region of type %q: none was started on %v", ErrInvalid, typ, node.Self())
	}
	return nil, fmt.Errorf("%w: region of type %q: it is a %T, with another state type", ErrInvalid, typ, found)
}

// Ref returns a reference to the entity with this ID, wherever it runs. It stays valid while the
// entity starts, stops and moves. The ID must be valid for journal.CheckID. The ID and the name of
// the type together have at most journal.MaxIDLength bytes. This is checked when a command is sent.
//
// An Ask should have a deadline: a command or a reply that the network loses is not sent again.
func (r *Region[S]) Ref(id string) eventsourcing.Ref[S] { return r.entities.Ref(id) }

// Start starts an entity on the node that hosts its shard, and waits until it is recovered. It
// returns the errors of an Ask. As for an Ask, the context should have a deadline.
func (r *Region[S]) Start(ctx context.Context, id string) error { return r.entities.Start(ctx, id) }

// IDs implements eventsourcing.Entities. It lists the journal of the type on this node, and thus the
// entities of all nodes that share it: that of Options.Host.Store, or of the runtime.
func (r *Region[S]) IDs(ctx context.Context) iter.Seq2[string, error] { return r.entities.IDs(ctx) }

// Wake implements eventsourcing.Entities. It computes the state of every entity of the journal and
// starts those with unconfirmed deliveries or a deadline. With Options.Wake it is needed only for
// entities that are not in the index: once after an upgrade from a release without the index, or after
// the number of shards has changed.
//
// Wake waits until the region is registered with a coordinator. It covers the shards that this node
// hosts and the shards without a home, so all entities are covered if each node calls Wake. A proxy
// does nothing.
func (r *Region[S]) Wake(ctx context.Context) (started int, err error) {
	s := r.shell
	if s.proxy {
		return 0, nil
	}
	if err := r.AwaitReady(ctx); err != nil {
		return 0, err
	}
	elsewhere := make([]bool, s.opts.Shards)
	if err := s.call(ctx, func() {
		for n := range elsewhere {
			home, known := s.machine.Home(Shard(n))
			elsewhere[n] = known && home != s.node.Self()
		}
	}); err != nil {
		return 0, fmt.Errorf("sharding: wake the entities of type %q: %w", s.name, err)
	}
	return s.host().Wake(ctx, func(id string) bool {
		n, err := s.shardOf(id)
		return err == nil && !elsewhere[n]
	})
}

// ShardOf returns the shard of an entity. The error matches ErrInvalid if the ID is invalid, or if
// Options.ShardOf returns an invalid number or panics.
func (r *Region[S]) ShardOf(id string) (Shard, error) {
	n, err := r.shell.shardOf(id)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return n, nil
}

// AwaitReady waits until the region is registered with a coordinator, so that entities can be
// reached. The error is that of ctx, or matches ErrMismatch or ErrStopped. If the region has
// stopped, it always matches ErrStopped. If the node has ended, it also matches the reason, for
// example cluster.ErrNameInUse.
func (r *Region[S]) AwaitReady(ctx context.Context) error {
	select {
	case <-r.shell.ready:
	case <-r.shell.refusal:
	case <-r.shell.nodeEnded: // the region ends later, when its commands have ended
	case <-ctx.Done():
	case <-r.shell.done:
	}
	// Several channels may be ready; the order of these cases decides.
	switch {
	case isClosed(r.shell.done), isClosed(r.shell.nodeEnded) && !r.Ready():
		return fmt.Errorf("sharding: wait for a coordinator of type %q: %w", r.shell.name, r.shell.stopped())
	case r.Ready():
		return nil
	case isClosed(r.shell.refusal):
		return cmp.Or(r.shell.mismatchErr(), ErrMismatch)
	}
	if !r.shell.node.State().Joined {
		return fmt.Errorf("sharding: wait for a coordinator of type %q: node %v has not joined the cluster: %w", r.shell.name, r.shell.node.Self(), context.Cause(ctx))
	}
	return fmt.Errorf("sharding: wait for a coordinator of type %q: %w", r.shell.name, context.Cause(ctx))
}

// Ready reports whether the region has ever been registered with a coordinator, for a readiness
// probe. It stays true.
func (r *Region[S]) Ready() bool { return isClosed(r.shell.ready) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Done is closed when the region has ended: with the node, by Close, or because an entity has failed
// and HostOptions.Supervise has returned eventsourcing.Escalate.
func (r *Region[S]) Done() <-chan struct{} { return r.tenancy.done }

// State is the state of a region or a proxy on a node.
type State struct {
	// Registered reports whether the region is registered with a coordinator, and Coordinator is
	// the node of that coordinator.
	Registered  bool
	Coordinator identity.Node
	// Mismatch is not nil if the coordinator rejects the region. It matches ErrMismatch.
	Mismatch error
	// Shards are the shards that this node hosts, sorted by number.
	Shards []ShardState
	// Prepared is how many states this node keeps as a standby, see Options.Standbys.
	Prepared int
	// Waiting is how many commands wait for homes, shards or entities.
	Waiting int
	// Asks is how many replies of other nodes are outstanding, for all types.
	Asks int
	// Queued is how many commands went through the queue of the region since the start. The others
	// went directly to their entity, or to the node that hosts it.
	Queued uint64
	// Unanswered is how many callers stopped waiting before the reply of another node arrived,
	// since the start.
	Unanswered uint64
	// Dropped is how many commands were not delivered since the start.
	Dropped uint64
	// OverBudget is how many commands were refused since the start because their sender, this node or
	// another one, had used up its share of transport.Config.MemoryBudget.
	OverBudget uint64
	// Ignored is how many messages of other nodes the node has ignored, for all types: malformed
	// messages, messages for no region of the node, messages to a coordinator that it does not
	// expect, and replies without an outstanding ask.
	Ignored uint64
}

// ShardState is the state of a hosted shard.
type ShardState struct {
	Shard Shard
	// Entities are the IDs of the running entities, sorted.
	Entities []string
	// Tracked counts the running entities and those that are about to start.
	Tracked int
}

// State returns the state of the region. The error is that of ctx, or ErrStopped.
func (r *Region[S]) State(ctx context.Context) (state State, err error) {
	s := r.shell
	err = s.call(ctx, func() {
		m := s.machine
		state.Registered = m.Registered()
		if node, ok := m.Coordinator(); ok {
			state.Coordinator = node
		}
		for _, n := range m.Hosted() {
			state.Shards = append(state.Shards, ShardState{n, m.Running(n), m.Tracked(n)})
		}
		state.Waiting = m.Waiting()
	})
	if err != nil {
		return State{}, fmt.Errorf("sharding: state of type %q: %w", s.name, err)
	}
	if s.standbys != nil {
		_, state.Prepared = s.host().Followed()
	}
	state.Mismatch = s.mismatchErr()
	state.Unanswered = s.unanswered.Load()
	state.OverBudget = s.overBudget.Load()
	state.Ignored = s.router.undeliverable.Load() + s.router.lateReplies.Load()
	state.Asks, state.Queued, state.Dropped = s.router.asks.len(), s.queuedTotal.Load(), s.dropped.Load()
	return state, nil
}

// Home returns the home of a shard, if this node has learned it. The error is that of ctx, or
// ErrStopped.
func (r *Region[S]) Home(ctx context.Context, shard Shard) (home identity.Node, known bool, err error) {
	if err = r.shell.call(ctx, func() { home, known = r.shell.machine.Home(shard) }); err != nil {
		err = fmt.Errorf("sharding: home of shard %d of type %q: %w", shard, r.shell.name, err)
	}
	return home, known, err
}

// call runs f on the loop and waits for its return. The function must not block. If call returns an
// error, f has not run and will not run, so that the caller owns its variables again.
func (s *shell) call(ctx context.Context, f func()) error {
	return callLoop(ctx, s.post, s.stopped, f)
}

// callLoop posts f to a loop and waits until the loop has called it. After an error f is not called.
func callLoop(ctx context.Context, post func(func()) bool, ended func() error, f func()) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var taken atomic.Bool // decides between the loop and a ctx that ends
	called := make(chan struct{})
	if !post(func() {
		defer close(called)
		if taken.CompareAndSwap(false, true) {
			f()
		}
	}) {
		return ended()
	}
	select {
	case <-called:
		return nil
	case <-ctx.Done():
		if taken.CompareAndSwap(false, true) {
			return context.Cause(ctx)
		}
		<-called
		return nil
	}
}

// hasNames reports whether the registry gives a wire name to a command. It returns true for a
// faulty registry: another check reports its error.
func hasNames(commands *codec.Registry) bool {
	if commands.Err() != nil {
		return true
	}
	for range commands.GoTypes() {
		return true
	}
	return false
}

// Drain hands off all shards of this node without loss and waits until the node hosts none. The
// region continues to route commands, and the node may still run the coordinator. The node is
// allocated no shards until it restarts or Undrain is called. If there is no other region, the
// shards have no home and their commands wait. The error is that of ctx; in this case, the
// hand-offs continue. It matches ErrUndrained if Undrain was called before the end.
func (r *Region[C]) Drain(ctx context.Context) error {
	s := r.shell
	drained := s.beginDrain() //nolint:contextcheck // the loop uses its own context
	var err error
	select {
	case err = <-drained:
	case <-s.done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("sharding: drain type %q on %v: %w", s.name, s.node.Self(), err)
	}
	return nil
}

// ErrUndrained reports that Undrain ended a Drain.
var ErrUndrained = errors.New("sharding: the drain was canceled")

// Undrain cancels Drain: the next rebalance may allocate shards to the node again. Shards that have
// not moved stay. It does nothing without a Drain. The error is that of ctx, ErrStopped, or ErrInvalid
// after Close.
func (r *Region[C]) Undrain(ctx context.Context) error {
	if err := r.shell.undrain(ctx); err != nil {
		return fmt.Errorf("sharding: undrain type %q on %v: %w", r.shell.name, r.shell.node.Self(), err)
	}
	return nil
}

func (s *shell) undrain(ctx context.Context) error {
	var refused error
	err := s.call(ctx, func() { //nolint:contextcheck // the loop uses its own context
		if s.closing {
			refused = fmt.Errorf("%w: the region is closed: call Host", ErrInvalid)
			return
		}
		if !s.machine.Drained() {
			return
		}
		s.step(shardcore.Undrain{})
		for _, waits := range s.drainWaiters {
			waits <- ErrUndrained
		}
		s.drainWaiters = nil
	})
	return cmp.Or(err, refused)
}

// beginDrain starts a drain. The channel is closed at its end, or receives an error.
func (s *shell) beginDrain() <-chan error {
	drained := make(chan error, 1)
	s.post(func() {
		s.drainWaiters = append(s.drainWaiters, drained)
		s.step(shardcore.Leave{KeepRouting: true})
	})
	return drained
}

// notifyDrained ends the waiting calls of Drain if this node hosts nothing.
func (s *shell) notifyDrained() {
	if len(s.drainWaiters) == 0 || len(s.machine.Hosted()) > 0 {
		return
	}
	for _, waits := range s.drainWaiters {
		close(waits)
	}
	s.drainWaiters = nil
}
