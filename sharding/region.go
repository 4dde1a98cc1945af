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
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/singleton"
)

// Region is how this node reaches the entities of a type, and hosts its share of them. Its methods are safe for concurrent
// use.
type Region[C any] struct {
	shell *shell
	ref   func(id string) eventsourcing.Ref[C]
}

// Start lets a node host entities of a type, together with all other nodes that do the same, and returns the way to all of them. On a
// node that does not have Options.Role it starts a proxy. It does not wait until the node is a member, or a
// coordinator is found: see Region.AwaitReady.
//
// The region ends with the node: when that shuts down, its shards move to other nodes before, in order and without a loss, as far as there
// are others and cluster.PhaseStopRegions is long enough. The error matches ErrInvalid or cluster.ErrShuttingDown, or is that of ctx if it had ended
// before.
func Start[C, E any](ctx context.Context, node *cluster.Node, typ eventsourcing.Type[C, E], opts Options) (*Region[C], error) {
	if node != nil && opts.Role != "" && !slices.Contains(node.Roles(), opts.Role) {
		return StartProxy(ctx, node, typ, opts)
	}
	var entities *eventsourcing.Entities[C, E]
	r, err := start(ctx, node, typ, opts, false, func(s *shell, r *Region[C]) (err error) {
		host := s.opts.Host
		host.Route, host.Gone, host.Busy, host.Killed = s.route, s.entityGone, s.entityBusy, ErrHandOff
		if entities, err = eventsourcing.Host(s.opts.Runtime, typ, host); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		s.entities, r.ref = entities, entities.Ref
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sharding: start type %q: %w", typ.Name, err)
	}
	return r, nil
}

// StartProxy gives a node that hosts no entities of a type the way to them. A node that has Options.Role must not have a proxy but a
// region: the oldest of those nodes runs the coordinator. Without a role that is every node, and the error matches ErrInvalid. Options.State is not needed, and Options.Runtime only so that
// the context of traces travels.
func StartProxy[C, E any](ctx context.Context, node *cluster.Node, typ eventsourcing.Type[C, E], opts Options) (*Region[C], error) {
	if node != nil && (opts.Role == "" || slices.Contains(node.Roles(), opts.Role)) {
		return nil, fmt.Errorf(
			"sharding: start a proxy of type %q: %w: a node that may host the type needs Start, not a proxy: set Options.Role to what this node lacks", typ.Name, ErrInvalid)
	}
	r, err := start(ctx, node, typ, opts, true, func(s *shell, r *Region[C]) error {
		r.ref = eventsourcing.NewRoute[C](typ.Name, s.route).Ref
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sharding: start a proxy of type %q: %w", typ.Name, err)
	}
	return r, nil
}

// begin starts a region or a proxy. Host makes the entities and the way to them.
func start[C, E any](
	ctx context.Context, node *cluster.Node, typ eventsourcing.Type[C, E], opts Options, proxy bool, host func(*shell, *Region[C]) error,
) (*Region[C], error) {
	if node == nil {
		return nil, fmt.Errorf("%w: there is no node", ErrInvalid)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	opts = opts.withDefaults(node)
	err := opts.validate(proxy)
	if typ.Commands == nil {
		err = errors.Join(err, errors.New("Type.Commands is missing: commands travel between nodes under the names that it has"))
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
		err = errors.Join(err, fmt.Errorf("Type.Name is %q, which this package has for itself", typ.Name))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	s, err := newShell(ctx, node, typ.Name, typ.Commands, opts, proxy)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	r := &Region[C]{shell: s}
	if err := s.launch(ctx, func() error { return host(s, r) }, r); err != nil {
		return nil, err
	}
	s.log.LogAttrs(ctx, slog.LevelInfo, "the region has started", slog.Bool("proxy", proxy), slog.Int("shards", opts.Shards))
	return r, nil
}

// RegionOf returns what Start or StartProxy has started for a type on a node. The error matches ErrInvalid if there is none, or if its
// commands are no C.
func RegionOf[C any](node *cluster.Node, typ string) (*Region[C], error) {
	if node == nil {
		return nil, fmt.Errorf("%w: region of type %q: there is no node", ErrInvalid, typ)
	}
	b := routerOf(node)
	b.mu.RLock()
	found := b.regions[typ]
	b.mu.RUnlock()
	switch r := found.(type) {
	case *Region[C]:
		return r, nil
	case nil:
		return nil, fmt.Errorf("%w: region of type %q: none was started on %v", ErrInvalid, typ, node.Self())
	}
	return nil, fmt.Errorf("%w: region of type %q: it has other commands: it is a %T", ErrInvalid, typ, found)
}

// Ref addresses the entity with this ID, on whatever node it is: it stays valid while the entity starts, stops and moves. The ID has
// with the name of the type at most journal.MaxIDLength bytes, and is checked when a command is sent.
//
// An Ask should have a deadline: a command or an answer that the network loses is not sent again.
func (r *Region[C]) Ref(id string) eventsourcing.Ref[C] { return r.ref(id) }

// ShardOf returns the shard of an entity. The error matches ErrInvalid if Options.ShardOf does not say.
func (r *Region[C]) ShardOf(id string) (Shard, error) {
	n, err := r.shell.shardOf(id)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return n, nil
}

// AwaitReady waits until a coordinator knows the region, so that entities can be reached. The error is that of ctx, or matches
// ErrMismatch, or ErrStopped, also if the region was ready before it ended.
func (r *Region[C]) AwaitReady(ctx context.Context) error {
	select {
	case <-r.shell.ready:
	case <-r.shell.refusal:
	case <-ctx.Done():
	case <-r.shell.done:
	}
	// Several may be so, and chance must not say which one counts.
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

// Ready reports whether a coordinator has known the region, for a readiness probe. It stays true.
func (r *Region[C]) Ready() bool { return isClosed(r.shell.ready) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Done is closed when the region has ended.
func (r *Region[C]) Done() <-chan struct{} { return r.shell.done }

// State is what a region on a node knows and runs.
type State struct {
	// Registered says that a coordinator knows the region, Coordinator on which node that is.
	Registered  bool
	Coordinator identity.Node
	// Mismatch is why the coordinator does not let the region register, nil unless that is so. It matches ErrMismatch.
	Mismatch error
	// Shards are those that this node hosts, sorted by number.
	Shards []ShardState
	// Waiting is how many commands wait, for homes, shards or entities.
	Waiting int
	// Asks is how many answers from other nodes are awaited, of all types.
	Asks int
	// Queued is how many commands have waited for the region to look at them since it was started. The others went straight to their
	// entity, or to the node that has it.
	Queued uint64
	// Unanswered is how many callers have left before the answer of another node came, since it was started.
	Unanswered uint64
	// Dropped is how many commands have reached nobody since the region was started.
	Dropped uint64
}

// ShardState is a shard on a node.
type ShardState struct {
	Shard Shard
	// Entities are those that run, sorted.
	Entities []string
	// Tracked is how many there are together with those that will run.
	Tracked int
}

// State returns what the region knows and runs. The error is that of ctx, or ErrStopped.
func (r *Region[C]) State(ctx context.Context) (state State, err error) {
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

// Home returns the node that has a shard, as far as this node knows. The error is that of ctx, or ErrStopped.
func (r *Region[C]) Home(ctx context.Context, shard Shard) (home identity.Node, known bool, err error) {
	if err = r.shell.call(ctx, func() { home, known = r.shell.machine.Home(shard) }); err != nil {
		err = fmt.Errorf("sharding: home of shard %d of type %q: %w", shard, r.shell.name, err)
	}
	return home, known, err
}

// call lets the loop call f, which must not block, and waits for that. If it fails f is not called, now or later: what it would set belongs to
// the caller again.
func (s *shell) call(ctx context.Context, f func()) error {
	var taken atomic.Bool // by who comes first: the loop, or a ctx that ends
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
