// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/shardcore"
)

// entities is what a site needs of eventsourcing.Entities, whatever their commands and events are.
type entityHost interface {
	Deliver(m eventsourcing.Message) error
	Rouse(id string, done func(error)) error
	Passivate(id string) bool
	Drain(id string) bool
	Kill(id string) bool
	InMemory(id string) bool
}

// site is what a node runs of an entity type: the shell of a shardcore.Machine.
type shell struct {
	operatorState // by operators

	node          *cluster.Node
	router        *router
	name          string
	opts          Options
	commands      *codec.Registry
	entities      entityHost // nil of a proxy
	store         CoordinatorStore
	rememberStore RememberStore // nil: nothing is remembered
	log           *slog.Logger
	ctx           context.Context //nolint:containedctx // of all that the site does
	cancel        context.CancelFunc
	commandCtx    context.Context //nolint:containedctx // of commands that come from other nodes: it has nothing
	startedAt     time.Time
	inbox         *inbox
	paths         []fastPath
	stopping      atomic.Bool // the loop ends
	dropped       atomic.Uint64
	queuedTotal   atomic.Uint64 // commands

	unanswered atomic.Uint64 // asks

	mismatch atomic.Pointer[mismatch] // why it is refused, nil if it is not
	refusal  chan struct{}            // closed once it has been refused

	// Kind follows belongs to the loop.
	cfg                shardcore.Config
	machine            *shardcore.Machine
	sweepAt            time.Duration
	routeVersion       uint64
	openPaths          map[Shard]struct{} // gates
	pendingInputs      []shardcore.Input  // what follows from what was done
	localEntities      map[string]*localEntity
	storeCalls         map[Shard]chan struct{} // the last question to memory for a shard; closed when it is answered
	started            []*localEntity          // have no seat yet
	suspended          bool                    // the node must not host anything
	halted             bool                    // all was stopped for that
	stopped            bool                    // nothing of the region runs any more
	leaving            bool                    // for good
	coordinatorRuns    bool                    // the machine is appointed
	coordinatorWanted  bool                    // it is to be
	coordinatorStopped chan struct{}           // closed when it is not any more, if somebody waits
	refusalNotified    bool                    // that it is refused
	outageLogged       bool                    // no coordinator answers, and the log says so
	throttle           logThrottle

	background    sync.WaitGroup
	hooks         []func()
	ready         chan struct{} // closed once a coordinator has known the region
	regionStopped chan struct{} // closed when nothing of the region runs any more
	done          chan struct{}
}

// newShell returns one that does not run yet.
func newShell(ctx context.Context, node *cluster.Node, name string, commands *codec.Registry, opts Options, proxy bool) (*shell, error) {
	cfg := opts.machineConfig(node, name, proxy)
	machine, err := shardcore.New(cfg)
	if err != nil {
		return nil, errors.New(strings.NewReplacer("Config.", "Options: ", "\n", "; ").Replace(err.Error()))
	}
	s := &shell{
		node: node, router: routerOf(node), name: name, opts: opts, commands: commands, cfg: cfg, machine: machine,
		log: opts.Logger.With(slog.String("type", name)), startedAt: time.Now(), inbox: newInbox(opts.BufferSize), paths: make([]fastPath, opts.Shards),
		openPaths: map[Shard]struct{}{}, localEntities: map[string]*localEntity{}, storeCalls: map[Shard]chan struct{}{},
		refusal: make(chan struct{}), ready: make(chan struct{}), regionStopped: make(chan struct{}), done: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.commandCtx = context.Background()
	if proxy {
		return s, nil
	}
	scope := Scope{Type: name, Role: opts.Role, Shards: opts.Shards, Logger: s.log}
	if err = openStore(func() (any, error) { s.store, err = opts.State.OpenCoordinator(scope); return s.store, err }); err != nil {
		s.cancel()
		return nil, fmt.Errorf("Options.State: %w", err)
	}
	if opts.Remember == nil {
		return s, nil
	}
	if err = openStore(func() (any, error) {
		s.rememberStore, err = opts.Remember.OpenEntities(scope)
		return s.rememberStore, err
	}); err != nil {
		s.cancel()
		return nil, errors.Join(fmt.Errorf("Options.Remember: %w", err), catchPanic(s.store.Close))
	}
	return s, nil
}

// opened calls open, which is somebody else's, and returns an error unless it opens something.
func openStore(open func() (store any, err error)) error {
	return catchPanic(func() error {
		store, err := open()
		if err == nil && store == nil {
			err = errors.New("it opens nothing")
		}
		return err
	})
}

// singletonPrefix begins the names of the singletons that run coordinators.
const singletonPrefix = "sharding|"

// begin lets it run. Host makes the entities.
func (s *shell) launch(ctx context.Context, host func() error, r any) error {
	if err := s.router.reserve(s); err != nil {
		return errors.Join(err, s.abandon())
	}
	s.router.serve()
	if err := s.addHooks(); err != nil {
		s.router.remove(s)
		return errors.Join(err, s.abandon())
	}
	if err := host(); err != nil { // after it, nothing may fail: there is no way back
		s.router.remove(s)
		return errors.Join(err, s.abandon())
	}
	s.router.add(s, r)
	s.updateMembers() //nolint:contextcheck // the loop has a context of its own
	s.background.Go(func() { s.followMembers(s.ctx) })
	go s.run() //nolint:contextcheck // the loop has a context of its own
	if s.store == nil {
		return nil
	}
	// Not with a ctx that may end: the type could not be started again.
	err := s.node.Singleton(context.WithoutCancel(ctx), cluster.Singleton{Name: singletonPrefix + s.name, Role: s.opts.Role, Run: s.hostCoordinator})
	if err != nil { // the node has ended
		s.inbox.add(item{call: s.end})
		<-s.done
	}
	return err
}

// abandon gives up a site that has not run.
func (s *shell) abandon() error {
	s.removeHooks()
	s.cancel()
	close(s.done)
	return s.closeStores()
}

func (s *shell) closeStores() error {
	var errs []error
	if s.rememberStore != nil {
		errs = append(errs, catchPanic(s.rememberStore.Close))
	}
	if s.store != nil {
		errs = append(errs, catchPanic(s.store.Close))
	}
	return errors.Join(errs...)
}

func (s *shell) addHooks() error {
	for phase, f := range map[cluster.Phase]func(context.Context) error{
		cluster.PhaseStopRegions: func(ctx context.Context) error {
			if err := s.leave(ctx); err != nil { // too late: others may host soon what is here
				s.inbox.add(item{call: func() { s.endRegion(shardcore.Stop{}) }}) //nolint:contextcheck // the loop has a context of its own
				return fmt.Errorf("shards are stopped by force: %w", err)
			}
			return nil
		},
		cluster.PhaseBeforeTerminate: s.close,
	} {
		remove, err := s.node.OnShutdown(phase, "sharding "+s.name, f)
		if err != nil {
			return err
		}
		s.hooks = append(s.hooks, remove)
	}
	return nil
}

func (s *shell) removeHooks() {
	for _, remove := range s.hooks {
		remove()
	}
}

// follow tells the loop when somebody comes or goes.
func (s *shell) followMembers(ctx context.Context) {
	for range s.node.Events(ctx, cluster.MemberRemoved, cluster.MemberJoined, cluster.MemberWeaklyUp, cluster.MemberUp, cluster.MemberPreparing,
		cluster.MemberReady, cluster.MemberLeft, cluster.MemberExited, cluster.MemberDowned, cluster.MemberUnreachable, cluster.MemberReachable,
		cluster.ShuttingDown, cluster.Suspended, cluster.Resumed) {
		s.inbox.membersChanged()
	}
}

// leave gives all shards away, and waits for that.
func (s *shell) leave(ctx context.Context) error {
	s.inbox.add(item{call: func() { s.endRegion(shardcore.Leave{}) }}) //nolint:contextcheck // the loop has a context of its own
	return s.waitRegionStopped(ctx)
}

func (s *shell) waitRegionStopped(ctx context.Context) error {
	select {
	case <-s.regionStopped:
		return nil
	case <-s.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close ends it: what still runs is ended by force. It waits for that as long as ctx lasts.
func (s *shell) close(ctx context.Context) error {
	s.inbox.add(item{call: func() { s.endRegion(shardcore.Stop{}) }}) //nolint:contextcheck // the loop has a context of its own
	err := s.waitRegionStopped(ctx)
	s.inbox.add(item{call: s.end})
	<-s.done
	return err
}

// end lets the loop end.
func (s *shell) end() { s.stopping.Store(true) }

// halt stops all at once, since the node must not host anything for now: others may begin to.
func (s *shell) halt() {
	if !s.halted {
		s.halted = true
		s.step(shardcore.Stop{})
	}
}

// again begins anew when the node may host again, and all that was stopped has ended. For others it is another region.
func (s *shell) restartAfterHalt() {
	if !s.halted || s.suspended || !s.stopped || s.leaving {
		return
	}
	cfg := s.cfg
	cfg.Region.Instance++
	machine, err := shardcore.New(cfg)
	if err != nil { // can't be: it was checked
		return
	}
	machine.InheritMembers(s.machine)
	s.cfg, s.machine, s.routeVersion, s.halted, s.stopped = cfg, machine, 0, false, false
	s.restrictAllPaths()
	s.updateMembers()
	s.startCoordinator()
	if s.drained {
		s.step(shardcore.Leave{KeepRouting: true})
	}
}

// quit ends the region for good, with Leave or Stop.
func (s *shell) endRegion(in shardcore.Input) {
	s.leaving = true
	if s.stopped {
		s.markRegionStopped()
		return
	}
	s.step(in)
}

// handleStopped takes note that nothing of the region runs any more.
func (s *shell) handleStopped() {
	s.stopped = true
	if !s.halted || s.leaving {
		s.markRegionStopped()
	}
}

func (s *shell) markRegionStopped() {
	select {
	case <-s.regionStopped:
	default:
		close(s.regionStopped)
	}
}
