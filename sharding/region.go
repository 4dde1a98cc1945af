// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/singleton"
)

// Region is the access of a node to the entities of a type. It hosts the share of the shards that
// the coordinator allocates to the node. Its methods are safe for concurrent use.
type Region[S any] struct {
	shell *shell
	ref   func(id string) eventsourcing.Ref[S]
}

// Start starts a region: the node hosts entities of a type together with all other nodes that start
// it. On a node without Options.Role it starts a proxy. It does not wait until the node is a member
// or a coordinator is found: see Region.AwaitReady.
//
// The region ends with the node. When the node shuts down, its shards are handed off to other
// regions first, without loss if other regions exist and cluster.PhaseStopRegions is long enough.
// The error matches ErrInvalid or cluster.ErrShuttingDown, or is that of ctx if it had already
// ended.
func Start[S, E any](ctx context.Context, node *cluster.Node, typ eventsourcing.Type[S, E], opts Options) (*Region[S], error) {
	if node != nil && opts.Role != "" && !slices.Contains(node.Roles(), opts.Role) {
		return StartProxy(ctx, node, typ.Protocol(), opts)
	}
	r, err := start(ctx, node, typ.Protocol(), opts, false, func(s *shell, r *Region[S]) error {
		hooks := hosting.Hooks{Route: s.route, Gone: s.entityGone, Busy: s.entityBusy, Killed: ErrHandOff}
		connection, options := &hosting.Sharding{Hooks: hooks}, s.opts.Host
		hosting.Shard(&options, connection)
		local, err := eventsourcing.HostWith(s.opts.Runtime, typ, options)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		s.entities, r.ref = connection.Host, local.Ref
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sharding: start type %q: %w", typ.Name, err)
	}
	return r, nil
}

// StartProxy starts a proxy on a node that hosts no entities of the type. A node with Options.Role
// must start a region, because the oldest of these nodes runs the coordinator; without a role that
// is every node. The error matches ErrInvalid then. Options.State is ignored. Options.Runtime is
// optional and propagates the trace context.
func StartProxy[S any](ctx context.Context, node *cluster.Node, protocol eventsourcing.Protocol[S], opts Options) (*Region[S], error) {
	if node != nil && (opts.Role == "" || slices.Contains(node.Roles(), opts.Role)) {
		return nil, fmt.Errorf(
			"sharding: start a proxy of type %q: %w: a node that may host the type needs Start, not a proxy: set Options.Role to what this node lacks", protocol.Name, ErrInvalid)
	}
	r, err := start(ctx, node, protocol, opts, true, func(s *shell, r *Region[S]) error {
		r.ref = hosting.RemoteOf[eventsourcing.Ref[S]](protocol).Refs(protocol.Name, s.route)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sharding: start a proxy of type %q: %w", protocol.Name, err)
	}
	return r, nil
}

// start starts a region or a proxy. The argument host creates the entities and the function of
// Region.Ref.
func start[S any](
	ctx context.Context, node *cluster.Node, typ eventsourcing.Protocol[S], opts Options, proxy bool, host func(*shell, *Region[S]) error,
) (*Region[S], error) {
	if node == nil {
		return nil, fmt.Errorf("%w: nil node", ErrInvalid)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	opts = opts.withDefaults(node)
	err := opts.validate(proxy)
	if !hasNames(typ.Commands) {
		err = errors.Join(err, errors.New("Type.Commands is missing: it names the commands that travel between nodes"))
	} else if bad := typ.Commands.Err(); bad != nil {
		err = errors.Join(err, fmt.Errorf("Type.Commands: %w", bad))
	}
	if bad := (Scope{Type: typ.Name, Role: opts.Role}).validate(); bad != nil {
		err = errors.Join(err, errors.New(strings.NewReplacer(ErrInvalid.Error()+": ", "", "Scope.Type", "Type.Name", "Scope.Role", "Options.Role").Replace(bad.Error())))
	}
	if most := singleton.MaxNameLength - len(singletonPrefix); len(typ.Name) > most {
		err = errors.Join(err, fmt.Errorf("Type.Name has %d bytes, at most %d are allowed", len(typ.Name), most))
	}
	if strings.HasPrefix(typ.Name+"|", JournalPrefix) {
		err = errors.Join(err, fmt.Errorf("Type.Name is %q, which is reserved", typ.Name))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	s, err := newShell(ctx, node, typ.Name, typ.Commands, opts, proxy)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	s.carrier = hosting.RemoteOf[eventsourcing.Ref[S]](typ)
	r := &Region[S]{shell: s}
	if err := s.launch(ctx, func() error { return host(s, r) }, r); err != nil {
		return nil, err
	}
	s.log.LogAttrs(ctx, slog.LevelInfo, "region started", slog.Bool("proxy", proxy), slog.Int("shards", opts.Shards))
	return r, nil
}

// RegionOf returns the region or proxy of a type that runs on a node. The error matches ErrInvalid
// if there is none, or if its commands do not have type C.
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
	return nil, fmt.Errorf("%w: region of type %q: it is a %T, with commands of another type", ErrInvalid, typ, found)
}

// Ref returns a reference to the entity with this ID, wherever it runs. It stays valid while the
// entity starts, stops and moves. The ID and the name of the type together have at most
// journal.MaxIDLength bytes, which is checked when a command is sent.
//
// An Ask should have a deadline: a command or a reply that the network loses is not sent again.
func (r *Region[S]) Ref(id string) eventsourcing.Ref[S] { return r.ref(id) }

// ShardOf returns the shard of an entity. The error matches ErrInvalid if Options.ShardOf returns
// an invalid number or panics.
func (r *Region[S]) ShardOf(id string) (Shard, error) {
	n, err := r.shell.shardOf(id)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return n, nil
}

// AwaitReady waits until the region is registered with a coordinator, so that entities can be
// reached. The error is that of ctx, or matches ErrMismatch, or ErrStopped, which takes precedence.
func (r *Region[S]) AwaitReady(ctx context.Context) error {
	select {
	case <-r.shell.ready:
	case <-r.shell.refusal:
	case <-ctx.Done():
	case <-r.shell.done:
	}
	// Several channels may be ready; the order of these cases decides.
	switch {
	case isClosed(r.shell.done):
		return fmt.Errorf("%w: type %q", ErrStopped, r.shell.name)
	case r.Ready():
		return nil
	case isClosed(r.shell.refusal):
		return cmp.Or(r.shell.mismatchErr(), ErrMismatch)
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

// Done is closed when the region has ended.
func (r *Region[S]) Done() <-chan struct{} { return r.shell.done }

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
	// Waiting is how many commands wait for homes, shards or entities.
	Waiting int
	// Asks is how many replies of other nodes are outstanding, for all types.
	Asks int
	// Queued is how many commands went through the queue of the region since the start. The others
	// went directly to their entity, or to the node that hosts it.
	Queued uint64
	// Unanswered is how many callers gave up before the reply of another node arrived, since the
	// start.
	Unanswered uint64
	// Dropped is how many commands were not delivered since the start.
	Dropped uint64
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
		if boss, ok := m.Coordinator(); ok {
			state.Coordinator = boss
		}
		for _, n := range m.Hosted() {
			state.Shards = append(state.Shards, ShardState{n, m.Running(n), m.Tracked(n)})
		}
		state.Waiting = m.Waiting()
	})
	if err != nil {
		return State{}, fmt.Errorf("sharding: state of type %q: %w", s.name, err)
	}
	state.Mismatch = s.mismatchErr()
	state.Unanswered = s.unanswered.Load()
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
	var taken atomic.Bool // decides between the loop and a ctx that ends
	called := make(chan struct{})
	if !s.inbox.add(item{call: func() {
		defer close(called)
		if taken.CompareAndSwap(false, true) {
			f()
		}
	}}) {
		return ErrStopped
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

// hasNames reports whether a command has a name on the wire, or the registry is faulty.
func hasNames(commands *codec.Registry) bool {
	if commands.Err() != nil {
		return true
	}
	for range commands.GoTypes() {
		return true
	}
	return false
}
