// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
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
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/transport"
)

// Node is this process as a node of a cluster. Its methods are safe for concurrent use.
type Node struct {
	cfg       Config
	self      identity.Node
	plain     *slog.Logger
	log       *slog.Logger    // with the node
	base      context.Context //nolint:containedctx // of all that the node does
	start     time.Time
	transport *transport.Transport
	inputs    *queue
	calls     chan call
	hub       *hub
	outlet    *outlet
	leases    *leases
	hosts     hosts
	phases    phaseHooks
	asks      openAsks
	attached  attached
	services  adminServices
	beat      atomic.Int64 // when the loop has turned last, on the machine's clock

	// What follows belongs to the loop.
	machine  *node.Machine
	left     error // why the membership ended
	downed   bool
	complain time.Duration // when the next line about what can't be sent may be written
	parcels  parcels
	proxies  map[string]*Proxy

	strategy string         // of downing
	admins   sync.WaitGroup // what lets operators find this node
	quit     chan struct{}  // ends the loop
	ended    chan struct{}  // the loop has ended
	stopping sync.Once
	stopped  chan struct{} // the shutdown has begun
	done     chan struct{} // all has ended
	err      error         // why, once done is closed
}

// Start starts a node. It returns at once: the node joins through Config.Seeds, however long it takes until somebody
// answers. If the membership ends, because it leaves, because it is downed, or because it can't join, the node shuts itself
// down: see Done. The error matches ErrInvalid, or is one of the transport.
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
	settings.OnEvent = n.heard(settings.OnEvent)
	if n.transport, err = transport.Open(n.cfg.Carrier, settings); err != nil {
		n.leases.close(time.Second)
		n.outlet.close(time.Second)
		return nil, fmt.Errorf("cluster: %w", err)
	}
	n.listen()
	if len(n.cfg.Seeds) > 0 {
		n.inputs.add(node.Membership{Input: membership.JoinSeeds{Seeds: n.cfg.Seeds}})
	}
	n.admins.Go(n.serveAdmin) // before the loop, which may end at once and waits for it then
	go n.run()
	return n, nil
}

// Join starts a node and waits until it is a member. When it fails, or when ctx ends before, the node is shut down again. Besides
// the errors of Start there are ErrNameInUse, ErrIncompatible, ErrNoCluster and ErrDowned.
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

// prepare returns a node that does not run yet.
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
		Downing: settingsOf(cfg.Downing), ExitTimeout: cfg.PhaseTimeout[PhaseExiting],
	})
	if err != nil {
		return nil, fielderror.Rename(ErrInvalid, err, "Config.Membership.", "Config.", "Config.ExitTimeout", "Config.PhaseTimeout of exiting")
	}
	base := context.Background()
	out := newOutlet(base, cfg.Logger.With(slog.String("node", self.String())))
	// The transport and the leases say by themselves which node it is.
	plain := slog.New(lines{out, cfg.Logger.Handler()})
	if cfg.Transport.Logger == nil {
		cfg.Transport.Logger = plain
	}
	n := &Node{
		cfg: cfg, self: self, plain: plain, log: slog.New(lines{out, out.log.Handler()}), start: time.Now(), machine: machine,
		inputs: newQueue(cfg.MaxInputs), calls: make(chan call), outlet: out, base: base,
		strategy: string(machine.Config().Downing.Strategy),
		parcels:  parcels{open: map[uint64]*parcel{}}, proxies: map[string]*Proxy{},
		quit: make(chan struct{}), ended: make(chan struct{}), stopped: make(chan struct{}), done: make(chan struct{}),
	}
	n.hub = newHub(cfg.MaxEvents, n.look())
	n.leases, n.hosts.node = newLeases(n), n
	return n, nil
}

// Self returns this node.
func (n *Node) Self() identity.Node { return n.self }

// Cluster returns the name of the cluster.
func (n *Node) Cluster() string { return n.cfg.Cluster }

// Transport returns what carries messages between the nodes. Others may use it, with kinds of their own, until the
// node ends; they must not close it. Nodes that were removed are quarantined there.
func (n *Node) Transport() *transport.Transport { return n.transport }

// Logger returns the logger of the node, for others that belong to it. It does not block until the node has ended.
func (n *Node) Logger() *slog.Logger { return n.log }

// AwaitJoined waits until the node is a member. If it ends before, the error says why.
func (n *Node) AwaitJoined(ctx context.Context) error {
	return n.await(ctx, func(s *State) bool { return s.Joined })
}

// AwaitUp waits until the node is Up. If it ends before, the error says why.
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

// Done is closed when the node has ended, all phases of its shutdown included.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err returns why the node has ended, nil if it has not: ErrLeft if it left the cluster, ErrStopped if it was stopped without leaving,
// ErrDowned, ErrNameInUse, ErrIncompatible, ErrNoCluster or ErrFailed.
func (n *Node) Err() error {
	select {
	case <-n.done:
		return n.err
	default:
		return nil
	}
}

// JoinVia begins to join the cluster of a node of which only the name is known; that may be this node itself, which founds a
// cluster then. It does nothing if the node has joined, or joins already. The error matches ErrInvalid, or says why the node
// has ended.
func (n *Node) JoinVia(ctx context.Context, name string) error {
	if err := identity.CheckName(name); err != nil {
		return invalid("%w", err)
	}
	return n.call(ctx, func() { n.member(membership.JoinNode{Name: name}) })
}

// SetVersion tells the version of the application that Config.VersionPending has promised, and lets the node join. The error matches
// ErrInvalid, or says why the node has ended.
func (n *Node) SetVersion(ctx context.Context, version string) error {
	v, err := identity.ParseVersion(version)
	if err != nil {
		return invalid("%w", err)
	}
	return n.call(ctx, func() { n.member(membership.SetVersion{Version: v}) })
}

// Leave lets a member leave the cluster: it hands over what it hosts, and ends. It may be this node. A UID of 0 is whoever has
// the name. Leave returns when this node has noted it; the others follow. The error is ErrNotMember, or says
// why this node has ended.
func (n *Node) Leave(ctx context.Context, who identity.Node) error {
	return n.about(ctx, who, func() { n.member(membership.Leave{Node: who}) })
}

// Down says that a member is dead: it is removed, and what it hosted starts elsewhere. If it lives it ends as soon as it hears
// of that, which in a partition it can't: make sure that it is dead. A UID of 0 is whoever has the name. The error is that of
// Leave.
func (n *Node) Down(ctx context.Context, who identity.Node) error {
	return n.about(ctx, who, func() { n.member(membership.DownNode{Node: who}) })
}

// PrepareForShutdown announces that the whole cluster is going to stop: nobody joins any more, and nothing is
// handed over. The error says why the node has ended.
func (n *Node) PrepareForShutdown(ctx context.Context) error {
	return n.call(ctx, func() { n.member(membership.PrepareForShutdown{}) })
}

// about does something about a member.
func (n *Node) about(ctx context.Context, who identity.Node, f func()) error {
	known := false
	err := n.call(ctx, func() {
		s := n.hub.current()
		if who.UID == 0 {
			_, known = s.Named(who.Name)
		} else {
			_, known = s.Member(who)
		}
		if known {
			f()
		}
	})
	if err == nil && !known {
		err = fmt.Errorf("%w: %v", ErrNotMember, who)
		if who.UID == 0 {
			err = fmt.Errorf("%w: %s", ErrNotMember, who.Name)
		}
	}
	return err
}

// Watch waits until a node is surely gone: it was removed, or it is known to be dead. It returns nil then, also if that was before
// the call. The error is ErrNotMember if nothing is known of the node, or that of ctx, or says why this node has
// ended.
func (n *Node) Watch(ctx context.Context, who identity.Node) error {
	was := false
	s, err := n.until(ctx, func(s *State) bool {
		_, is := s.Member(who)
		was = was || is
		return s.Stopped || s.gone(who) || !is
	})
	switch {
	case err != nil:
		return fmt.Errorf("cluster: watch %v: %w", who, err)
	case s.Stopped:
		return s.Err
	case was || s.gone(who):
		return nil
	}
	return fmt.Errorf("%w: %v", ErrNotMember, who)
}

// attached is what other packages keep for a node.
type attached struct {
	mu sync.Mutex
	by map[any]any
}

// Attached returns what a package that stands on this one keeps for the node, by a key that nobody else has: a value of a type of its
// own. The first call for a key makes it, with the lock of all keys held.
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

// Roles returns what the node is for, as configured: sorted and without duplicates.
func (n *Node) Roles() []string {
	return slices.Compact(slices.Sorted(slices.Values(n.cfg.Roles)))
}

// RemovalMargin is how long after the removal of a node it is sure that the node has stopped what it hosted.
func (n *Node) RemovalMargin() time.Duration { return n.machine.Config().Downing.RemovalMargin }
