// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/internal/replication"
)

// Replicator holds replicated data on this node. Its methods, and the functions that take a
// Replicator, are safe for concurrent use.
type Replicator struct {
	cfg    Config
	node   *cluster.Node
	router *router
	types  *crdt.Types
	self   *crdt.Self
	log    *slog.Logger
	start  time.Time
	base   context.Context //nolint:containedctx // the context of all work of the replicator
	inbox  *inbox
	values *values
	calls  calls
	subs   loop.Pending[*subscriber]
	writer *durableWriter // nil if no key is durable

	reads     readKeys
	replicas  atomic.Int64
	waiting   atomic.Int64           // requests that wait for other nodes or for the disk
	running   atomic.Bool            // the loop takes packets
	ended     atomic.Bool            // requests are no longer answered
	modifying atomic.Pointer[string] // the key whose update function is running

	throttle loop.Throttle[string]

	// The following fields are protected by turn, which the loop or a caller of runInline holds.
	turn            chan struct{} // capacity 1
	machine         *replication.Machine
	pending         map[uint64]*call
	inline          *call // the call of runInline
	count           Stats
	housekeepingDue time.Duration // time of the next housekeeping
	armed           time.Duration // latest time at which the loop wakes up
	waiters         []*replicaWaiter
	single          [1]replication.Input
	turnCompleted   bool // the turn has completed normally

	cancel     context.CancelFunc // cancels base
	background sync.WaitGroup     // see goBackground
	hooks      []func()           // remove the shutdown hooks of the node
	stop       sync.Once
	done       chan struct{}
	closeErr   error // error of closing the store

	mu               sync.Mutex
	endCause         error
	backgroundClosed bool
}

// Start starts a replicator on a node, which need not be a member of its cluster yet. If there are
// durable keys, Start returns when they are loaded. ctx limits only the start. The replicator ends
// with the node, with Close, or when the node is removed from its cluster. After that, a replicator
// of the same name cannot be started on this node: the node must restart. All members with
// Config.Roles should start a replicator of the same name, because they count in majorities as soon
// as they are Up.
//
// The error matches ErrInvalid, cluster.ErrShuttingDown if the node is shutting down, or an error
// of package durable.
func Start(ctx context.Context, node *cluster.Node, cfg Config) (*Replicator, error) {
	if node == nil {
		return nil, fmt.Errorf("ddata: start replicator %.64q: %w: node is nil", cmp.Or(cfg.Name, DefaultName), ErrInvalid)
	}
	cfg = cfg.withDefaults(node)
	r, err := prepare(ctx, node, cfg)
	if err != nil {
		return nil, fmt.Errorf("ddata: start replicator %.64q: %w", cfg.Name, err)
	}
	if err := r.open(ctx); err != nil {
		r.router.remove(r)
		r.cancel()
		return nil, fmt.Errorf("ddata: start replicator %q: %w", cfg.Name, err)
	}
	return r, nil
}

// prepare returns a replicator that does not run yet and reserves its name.
func prepare(ctx context.Context, node *cluster.Node, cfg Config) (*Replicator, error) {
	self, err := crdt.NewSelf(node.Self())
	if err != nil {
		return nil, err
	}
	started := time.Now()
	budget := loop.BudgetOf(node.Transport())
	machine, err := cfg.machine(self, started.Round(0), node.Transport().MaxMessage(), budget.Limit()/4)
	errs := cfg.validate(node)
	if errs.Join(err); len(errs) > 0 {
		return nil, errs.Err(ErrInvalid)
	}
	r := &Replicator{
		cfg: cfg, node: node, router: routerOf(node), types: cfg.Types, self: self,
		log: cfg.Logger.With(slog.String("replicator", cfg.Name)), start: started,
		inbox: newInbox(budget.Account("packets of " + cfg.Name)), values: newValues(), machine: machine, pending: map[uint64]*call{}, turn: make(chan struct{}, 1), done: make(chan struct{}),
	}
	r.base, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.reads.on = len(cfg.Expire) > 0
	return r, r.router.add(r)
}

func (r *Replicator) open(ctx context.Context) error {
	store, err := r.load(ctx)
	if err != nil {
		return err
	}
	if err := r.addHooks(); err != nil {
		r.removeHooks()
		if store != nil {
			err = errors.Join(err, store.Close())
		}
		return err
	}
	if store != nil {
		stored := func(s replication.Stored) { r.inbox.items.Add(item{in: s}) }
		r.writer = newDurableWriter(r.base, store, r.cfg.WriteBehind, stored, r.log) //nolint:contextcheck // the writer outlives ctx
	}
	r.applyEffects(r.machine.Step(r.now(), replication.Batch{Members: r.members()}))
	r.background.Go(func() { r.followMembers(r.base) })
	if r.cfg.StatsInterval > 0 && r.cfg.Observer.Stats != nil {
		r.background.Go(func() { r.report(r.base) })
	}
	r.running.Store(true)
	go r.run()
	return nil
}

// load opens the store and loads it. It returns nil if no key is durable.
func (r *Replicator) load(ctx context.Context) (durable.Store, error) {
	if r.cfg.Opener == nil {
		return nil, nil //nolint:nilnil // no key is durable
	}
	store, err := r.cfg.Opener.Open(ctx, durable.ID{Node: r.node.Self().Name, Replicator: r.cfg.Name})
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if err := r.loadAll(ctx, store); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

func (r *Replicator) loadAll(ctx context.Context, store durable.Store) error {
	began := time.Now()
	n := 0
	for record, err := range store.Load(ctx) {
		if err == nil {
			err = r.step(replication.Load{Key: record.Key, Data: record.Data})
		}
		if err != nil {
			return fmt.Errorf("load store: %w", err)
		}
		n++
	}
	if err := r.step(replication.Loaded{}); err != nil {
		return err
	}
	r.log.InfoContext(ctx, "loaded durable keys", slog.Int("keys", n), slog.Duration("took", time.Since(began)))
	return nil
}

// step passes an input to the machine before the loop runs.
func (r *Replicator) step(in replication.Input) error {
	e := r.machine.Step(r.now(), replication.Batch{Inputs: []replication.Input{in}})
	r.values.publish(e.Values)
	for _, n := range e.Notes {
		if n.Kind == replication.NoteLoad {
			return n.Err
		}
	}
	return nil
}

// addHooks ends the replicator with its node: it sends all pending changes before the node leaves,
// and serves requests until the node has left.
func (r *Replicator) addHooks() error {
	name := "replicator " + r.cfg.Name
	for phase, f := range map[cluster.Phase]func(context.Context) error{
		cluster.PhaseLeave: r.Flush,
		cluster.PhaseBeforeTerminate: func(ctx context.Context) error {
			return r.close(ctx, r.nodeEnded("the node has stopped"))
		},
	} {
		remove, err := r.node.OnShutdown(phase, name, f)
		if err != nil {
			return err
		}
		r.hooks = append(r.hooks, remove)
	}
	return nil
}

func (r *Replicator) removeHooks() {
	for _, remove := range r.hooks {
		remove()
	}
}

func (r *Replicator) members() *replication.Members {
	s := r.node.State()
	if s.Stopped {
		return &replication.Members{}
	}
	return &replication.Members{All: s.Members, Unreachable: s.Unreachable}
}

func (r *Replicator) followMembers(ctx context.Context) {
	for range r.node.Events(ctx, cluster.MemberRemoved, cluster.MemberJoined, cluster.MemberWeaklyUp, cluster.MemberUp, cluster.MemberPreparing,
		cluster.MemberReady, cluster.MemberLeft, cluster.MemberExited, cluster.MemberDowned, cluster.MemberUnreachable, cluster.MemberReachable, cluster.ShuttingDown) {
		r.inbox.members.Store(r.members())
		r.inbox.ready.Set()
	}
}

// Name returns the name of the replicator.
func (r *Replicator) Name() string { return r.cfg.Name }

// Node returns the node of the replicator.
func (r *Replicator) Node() *cluster.Node { return r.node }

// Self returns the Self with which values are changed on this node. Use it only in functions given
// to Update, see crdt.Self.
func (r *Replicator) Self() *crdt.Self { return r.self }

// Keys returns the keys of this node that are not deleted, sorted. It does not wait.
func (r *Replicator) Keys() []string { return r.values.keys() }

// ReplicaCount returns the number of nodes that count in a quorum, including this one. At the
// start, programs use AwaitReplicas instead.
func (r *Replicator) ReplicaCount() int { return int(r.replicas.Load()) }

// Flush notifies subscribers and sends pending changes to the other nodes without waiting for the
// next interval. It does not wait for the other nodes. The error is that of ctx, or matches
// ErrStopped.
func (r *Replicator) Flush(ctx context.Context) error {
	if err := r.call(ctx, func() {
		r.applyEffects(r.machine.Step(r.now(), replication.Batch{Inputs: []replication.Input{replication.Flush{}}}))
	}); err != nil {
		return fmt.Errorf("ddata: flush %q: %w", r.cfg.Name, err)
	}
	return nil
}

// Close ends the replicator on this node: open requests fail with ErrStopped, pending records are
// written to disk, the store is closed. Other nodes keep their data, and this node still counts in
// their majorities until it leaves the cluster. A replicator of the same name cannot be started on
// this node afterwards. Close waits at most until ctx ends. The error is that of the disk, or of
// ctx.
func (r *Replicator) Close(ctx context.Context) error {
	return r.close(ctx, errors.New("the replicator was closed"))
}

func (r *Replicator) close(ctx context.Context, why error) error {
	r.stop.Do(func() {
		r.end(why)
		r.inbox.items.Add(item{in: replication.Stop{}})
	})
	select {
	case <-r.done:
		return r.closeErr
	case <-ctx.Done():
	}
	if r.writer != nil {
		r.writer.cancelWrites()
	}
	return r.withBlockingUpdate(fmt.Errorf("ddata: close %q: %w", r.cfg.Name, causeOf(ctx)))
}

// Done returns a channel that is closed when the replicator has ended.
func (r *Replicator) Done() <-chan struct{} { return r.done }

// Err returns the reason why the replicator has ended, nil if it has not ended. The error matches
// ErrStopped. If the node has ended, the error also matches cluster.ErrShuttingDown. If the node
// lost its membership before, the error also matches the error of the node, such as
// cluster.ErrDowned.
func (r *Replicator) Err() error {
	select {
	case <-r.done:
		return fmt.Errorf("%w: %w", ErrStopped, r.cause())
	default:
		return nil
	}
}

// end records the reason for the end, unless there is one already.
func (r *Replicator) end(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.endCause == nil {
		r.endCause = why
	}
}

// nodeEnded returns the reason for the end after the node has stopped or has lost its membership.
func (r *Replicator) nodeEnded(text string) error {
	if why := r.node.State().Err; why != nil {
		return fmt.Errorf("%s: %w (%w)", text, why, cluster.ErrShuttingDown)
	}
	return fmt.Errorf("%s: %w", text, cluster.ErrShuttingDown)
}

func (r *Replicator) cause() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.endCause
}

// AwaitReplicas waits until this node sees at least the given number of replicas: nodes that count
// in a quorum, including this node. It also waits until this node has fetched the data that other
// nodes had when it joined. Programs call it after the start before they rely on majorities: a node
// that does not see other nodes yet is a majority of one. AwaitReplicas does not wait until the
// replicators of other nodes have started.
//
// The error is that of ctx, or matches ErrStopped. It matches ErrInvalid if replicas is below 1.
func (r *Replicator) AwaitReplicas(ctx context.Context, replicas int) error {
	if replicas < 1 {
		return fmt.Errorf("ddata: wait for replicas of %q: %w: %d replicas, want at least 1", r.cfg.Name, ErrInvalid, replicas)
	}
	w := &replicaWaiter{replicas: replicas, done: make(chan struct{})}
	defer w.over.Store(true)
	err := r.call(ctx, func() {
		r.waiters = append(r.waiters, w)
		r.notifyWaiters()
	})
	if err == nil {
		err = r.await(ctx, w.done)
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("ddata: wait for replicas of %q: got %d, want %d: %w", r.cfg.Name, r.ReplicaCount(), replicas, err)
}

type replicaWaiter struct {
	replicas int
	over     atomic.Bool // the call has returned
	done     chan struct{}
}

// notifyWaiters ends the calls of AwaitReplicas whose condition holds. It needs the turn.
func (r *Replicator) notifyWaiters() {
	if len(r.waiters) == 0 {
		return
	}
	p := r.machine
	count, synced := p.ReplicaCount(), p.Synced()
	rest := r.waiters[:0]
	for _, w := range r.waiters {
		switch {
		case w.over.Load():
		case synced && count >= w.replicas:
			close(w.done)
		default:
			rest = append(rest, w)
		}
	}
	clear(r.waiters[len(rest):])
	r.waiters = rest
}

// Durable reports whether a key matches Config.Durable.
func (r *Replicator) Durable(key string) bool {
	for _, pattern := range r.cfg.Durable {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasPrefix(key, prefix) || pattern == key {
			return true
		}
	}
	return false
}

// MaxEntry returns the maximum size of the encoded value that an update may produce, in bytes:
// Config.MaxEntry or its default.
func (r *Replicator) MaxEntry() int { return r.cfg.maxEntry(room(r.node.Transport().MaxMessage())) }
