// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/inbox"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/splitbrain"
	"github.com/refold-io/refold/transport"
)

// Node is this process as a node of a cluster. Its methods are safe for concurrent use.
type Node struct {
	cfg       Config
	self      identity.Node
	rootLog   *slog.Logger
	log       *slog.Logger    // adds the attribute node
	base      context.Context //nolint:containedctx // the parent of all contexts of the node
	start     time.Time
	transport *transport.Transport
	inputs    *loop.Mailbox[node.Input]
	calls     chan call
	events    *broadcaster
	out       *loop.Dispatcher
	leases    *leases
	instances instanceHost
	phases    shutdownHooks
	asks      loop.Calls
	attached  attached
	services  sync.Map // handlers of operators' requests, by service
	strangers strangers
	lastTurn  atomic.Int64 // machine time at which the loop last finished a turn

	adminDenied atomic.Uint64
	adminLog    loop.Throttle[adminKind]

	// Only the loop accesses the fields of this block.
	machine         *node.Machine
	left            error // why the membership ended
	downed          bool
	nextSendWarning time.Duration                 // when the next failed send may be logged
	pending         loop.Pending[*pendingMessage] // messages that the machine has not routed yet, by number
	proxies         map[string]*Proxy

	strategy string         // the downing strategy
	admins   sync.WaitGroup // goroutines that register the node for operators
	quit     chan struct{}  // ends the loop
	ended    chan struct{}  // the loop has ended
	stopping sync.Once
	stopped  chan struct{} // the shutdown has begun
	done     chan struct{} // the node has ended, including its shutdown
	err      error         // set before done is closed
}

// Start starts a node and returns at once. The node joins through Config.Seeds and retries until a
// member replies. If the membership ends, because the node leaves, is downed or cannot join, the
// node shuts itself down: see Done. The error matches ErrInvalid, or is an error of the transport.
func Start(cfg Config) (*Node, error) {
	if cfg.Carrier == nil {
		return nil, invalid("Config.Carrier is missing")
	}
	n, err := prepare(cfg)
	if err != nil {
		return nil, errors.Join(err, cfg.Carrier.Close())
	}
	settings := n.cfg.Transport
	settings.Silent = append(append([]transport.Kind{}, settings.Silent...), silent...)
	settings.OnEvent = n.transportEvents(settings.OnEvent)
	settings.Accept = n.accepts
	if n.transport, err = transport.Open(n.cfg.Carrier, settings); err != nil {
		n.leases.close(n.base, time.Second)
		n.out.Close(time.Second)
		return nil, fmt.Errorf("cluster: %w", err)
	}
	n.listen()
	if len(n.cfg.Seeds) > 0 {
		n.inputs.Add(node.Membership{Input: membership.JoinSeeds{Seeds: n.cfg.Seeds}})
	}
	n.admins.Go(n.serveAdmin) // start before the loop: the loop may end at once, and the shutdown waits for this goroutine
	go n.run()
	return n, nil
}

// Join starts a node and waits until it is a member. If joining fails or ctx ends, the node is shut
// down again. In addition to the errors of Start, the error may match ErrNameInUse,
// ErrIncompatible, ErrNoCluster or ErrDowned.
func Join(ctx context.Context, cfg Config) (*Node, error) {
	if len(cfg.Seeds) == 0 {
		err := invalid("Config.Seeds is missing")
		if cfg.Carrier != nil {
			err = errors.Join(err, cfg.Carrier.Close())
		}
		return nil, err
	}
	n, err := Start(cfg) //nolint:contextcheck // the node outlives the call
	if err != nil {
		return nil, err
	}
	if err := n.AwaitJoined(ctx); err != nil {
		n.Stop()
		<-n.done
		return nil, err
	}
	return n, nil
}

// prepare returns a node whose loop does not run yet.
func prepare(cfg Config) (*Node, error) {
	cfg = cfg.withDefaults()
	version, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	self := cfg.Carrier.Self()
	machine, err := node.New(node.Config{
		Cluster: cfg.Cluster,
		Membership: membership.Config{
			Self: self, Roles: cfg.Roles, Version: version, VersionPending: cfg.VersionPending,
			Check:    convert(cfg.Check, func(s Setting) membership.Setting { return membership.Setting(s) }),
			Settings: membership.Settings(cfg.Settings), Started: time.Now(), Rand: rand.New(rand.NewPCG(rand.Uint64(), self.UID)),
		},
		Downing: splitbrain.Settings(cfg.Downing), ExitTimeout: cfg.PhaseTimeout[PhaseExiting],
	})
	if err != nil {
		return nil, fielderror.Rename(ErrInvalid, err, "Config.Membership.", "Config.", "Config.ExitTimeout", "Config.PhaseTimeout of exiting")
	}
	base := context.Background()
	named := cfg.Logger.With(slog.String("node", self.String()))
	out := loop.NewDispatcher(base, named)
	// Loggers of the transport and of leases add the node themselves.
	rootLog := slog.New(out.Handler(cfg.Logger.Handler()))
	if cfg.Transport.Logger == nil {
		cfg.Transport.Logger = rootLog
	}
	n := &Node{
		cfg: cfg, self: self, rootLog: rootLog, log: slog.New(out.Handler(named.Handler())), start: time.Now(), machine: machine,
		inputs: loop.NewMailbox[node.Input](loop.NewSignal(), loop.Limit{Count: cfg.MaxInputs, Bytes: cmp.Or(cfg.Transport.MemoryBudget, defaultBudget) / 4}), calls: make(chan call), out: out, base: base,
		strategy:  string(machine.Config().Downing.Strategy),
		proxies:   map[string]*Proxy{},
		strangers: strangers{until: map[identity.Node]time.Time{}},
		quit:      make(chan struct{}), ended: make(chan struct{}), stopped: make(chan struct{}), done: make(chan struct{}),
	}
	n.events = &broadcaster{limit: cfg.MaxEvents, changed: make(chan struct{}), subscribers: map[*subscriber]struct{}{}}
	n.events.state.Store(n.currentState())
	n.leases = &leases{node: n, held: map[string]*leaser{}}
	n.leases.ctx, n.leases.cancel = context.WithCancel(base)
	n.instances = instanceHost{node: n, known: map[string]*Singleton{}, running: map[node.Instance]*instance{}, inboxes: map[string]*inbox.Inbox{}}
	return n, nil
}

// Self returns this node.
func (n *Node) Self() identity.Node { return n.self }

// Cluster returns the name of the cluster.
func (n *Node) Cluster() string { return n.cfg.Cluster }

// Transport returns the transport between the nodes. Other packages may use it with their own
// message kinds until the node ends. They must not close it. The node quarantines removed nodes in
// this transport.
func (n *Node) Transport() *transport.Transport { return n.transport }

// Logger returns the logger of the node. While the node runs, logging does not block.
func (n *Node) Logger() *slog.Logger { return n.log }

// AwaitJoined waits until the node is a member. If the node ends first, the error is that of Err.
func (n *Node) AwaitJoined(ctx context.Context) error {
	return n.await(ctx, func(s *State) bool { return s.Joined })
}

// AwaitUp waits until the status of the node is Up, PreparingForShutdown or ReadyForShutdown. If
// the node ends first, the error is that of Err.
func (n *Node) AwaitUp(ctx context.Context) error {
	return n.await(ctx, func(s *State) bool {
		status := s.Status(n.self)
		return status == Up || status == PreparingForShutdown || status == ReadyForShutdown
	})
}

func (n *Node) await(ctx context.Context, ok func(*State) bool) error {
	s, err := n.until(ctx, func(s *State) bool { return s.Stopped || ok(s) })
	switch {
	case err != nil:
		return fmt.Errorf("cluster: wait for %v to join %q: %w", n.self, n.cfg.Cluster, err)
	case !ok(s):
		return s.Err
	}
	return nil
}

// Done returns a channel that is closed when the node has ended, including all phases of its
// shutdown.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err returns why the node has ended, or nil while it runs: ErrLeft if it left the cluster,
// ErrStopped if it was stopped without leaving, ErrDowned, ErrNameInUse, ErrIncompatible,
// ErrNoCluster or ErrFailed.
func (n *Node) Err() error {
	select {
	case <-n.done:
		return n.err
	default:
		return nil
	}
}

// JoinVia joins a cluster through the node with the given name. If the name is that of this node,
// the node founds a cluster. JoinVia does nothing if the node has joined or is joining. The error
// matches ErrInvalid, or is the reason why the node has ended.
func (n *Node) JoinVia(ctx context.Context, name string) error {
	if err := identity.CheckName(name); err != nil {
		return invalid("%w", err)
	}
	return n.call(ctx, func() { n.member(membership.JoinNode{Name: name}) })
}

// SetVersion sets the version of the application if Config.VersionPending is set, and lets the node
// join. The error matches ErrInvalid, or is the reason why the node has ended.
func (n *Node) SetVersion(ctx context.Context, version string) error {
	v, err := identity.ParseVersion(version)
	if err != nil {
		return invalid("%w", err)
	}
	return n.call(ctx, func() { n.member(membership.SetVersion{Version: v}) })
}

// Leave lets a member, possibly this node, leave the cluster. The member hands over its singletons
// and shards and ends. A UID of 0 matches any node with the name. Leave returns when this node has
// recorded the change; the other nodes follow. The error is ErrNotMember, or the reason why this
// node has ended.
func (n *Node) Leave(ctx context.Context, member identity.Node) error {
	return n.about(ctx, member, func() { n.member(membership.Leave{Node: member}) })
}

// Down declares a member dead: it is removed, and its singletons and shards start elsewhere. A live
// node ends when it receives this change. A partitioned node does not receive it, so make sure that
// the node is dead. Down does not revoke the credential of the node: a process that has it can join
// again. The argument and the error are those of Leave.
func (n *Node) Down(ctx context.Context, member identity.Node) error {
	return n.about(ctx, member, func() { n.member(membership.DownNode{Node: member}) })
}

// PrepareForShutdown announces that the whole cluster is about to stop: no node can join, and
// nothing is handed over. The error is the reason why the node has ended.
func (n *Node) PrepareForShutdown(ctx context.Context) error {
	return n.call(ctx, func() { n.member(membership.PrepareForShutdown{}) })
}

// about calls f in the loop. The error matches ErrNotMember if the given node is not a member.
func (n *Node) about(ctx context.Context, member identity.Node, f func()) error {
	return n.try(ctx, func() error {
		s := n.events.current()
		_, known := s.Member(member)
		if member.UID == 0 {
			if _, known = s.Named(member.Name); !known {
				return fmt.Errorf("%w: %s", ErrNotMember, member.Name)
			}
		} else if !known {
			return fmt.Errorf("%w: %v", ErrNotMember, member)
		}
		f()
		return nil
	})
}

// Watch returns nil once a node is removed or is known to be dead. If either happened before the
// call, Watch returns at once. The error is ErrNotMember if the node is unknown, the error of ctx,
// or the reason why this node has ended.
func (n *Node) Watch(ctx context.Context, member identity.Node) error {
	was := false
	s, err := n.until(ctx, func(s *State) bool {
		_, is := s.Member(member)
		was = was || is
		return s.Stopped || s.gone(member) || !is
	})
	switch {
	case err != nil:
		return fmt.Errorf("cluster: watch %v: %w", member, err)
	case s.Stopped:
		return s.Err
	case was || s.gone(member):
		return nil
	}
	return fmt.Errorf("%w: %v", ErrNotMember, member)
}

type attached struct {
	mu sync.Mutex
	by map[any]any
}

// Attached returns the value that another package keeps for the node under a key. The key should be
// of a private type of that package. The first call for a key calls make. Calls for all keys wait
// until make returns, so make must not call Attached.
func (n *Node) Attached(key any, make func() any) any {
	n.attached.mu.Lock()
	defer n.attached.mu.Unlock()
	if v, ok := n.attached.by[key]; ok {
		return v
	}
	v := make()
	if n.attached.by == nil {
		n.attached.by = map[any]any{}
	}
	n.attached.by[key] = v
	return v
}

// Roles returns the configured roles, sorted and without duplicates.
func (n *Node) Roles() []string {
	return slices.Compact(slices.Sorted(slices.Values(n.cfg.Roles)))
}

// MinMembers returns how many members with a role must have joined before any member becomes Up:
// Settings.MinMembersOfRole, or Settings.MinMembers for the empty role. It is at least 1.
func (n *Node) MinMembers(role string) int {
	if role == "" {
		return max(1, n.cfg.Settings.MinMembers)
	}
	return max(1, n.cfg.Settings.MinMembersOfRole[role])
}

// RemovalMargin returns how long the other nodes wait, after the removal of a downed node from a
// cluster with a number of members, before they start its singletons and shards.
func (n *Node) RemovalMargin(members int) time.Duration { return n.machine.RemovalMargin(members) }
