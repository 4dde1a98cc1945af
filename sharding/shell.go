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
type entities interface {
	Deliver(m eventsourcing.Message) error
	Rouse(id string, done func(error)) error
	Passivate(id string) bool
	Drain(id string) bool
	Kill(id string) bool
	InMemory(id string) bool
}

// site is what a node runs of an entity type: the shell of a shardcore.Machine.
type site struct {
	tended // by operators

	node     *cluster.Node
	board    *switchboard
	name     string
	opts     Options
	commands *codec.Registry
	entities entities // nil of a proxy
	store    CoordinatorStore
	memory   RememberStore // nil: nothing is remembered
	log      *slog.Logger
	base     context.Context //nolint:containedctx // of all that the site does
	cancel   context.CancelFunc
	root     context.Context //nolint:containedctx // of commands that come from other nodes: it has nothing
	start    time.Time
	inbox    *inbox
	gates    []gate
	over     atomic.Bool // the loop ends
	dropped  atomic.Uint64
	looped   atomic.Uint64 // commands

	unanswered atomic.Uint64 // asks

	mismatch atomic.Pointer[mismatch] // why it is refused, nil if it is not
	refusal  chan struct{}            // closed once it has been refused

	// What follows belongs to the loop.
	cfg       shardcore.Config
	machine   *shardcore.Machine
	sweepAt   time.Duration
	turn      uint64
	opened    map[Shard]struct{} // gates
	todo      []shardcore.Input  // what follows from what was done
	residents map[string]*resident
	asked     map[Shard]chan struct{} // the last question to memory for a shard; closed when it is answered
	fresh     []*resident             // have no seat yet
	suspended bool                    // the node must not host anything
	halted    bool                    // all was stopped for that
	empty     bool                    // nothing of the region runs any more
	leaving   bool                    // for good
	holds     bool                    // the machine is appointed
	presides  bool                    // it is to be
	dismissed chan struct{}           // closed when it is not any more, if somebody waits
	told      bool                    // that it is refused
	outage    bool                    // no coordinator answers, and the log says so
	lines     lines

	work  sync.WaitGroup
	hooks []func()
	ready chan struct{} // closed once a coordinator has known the region
	left  chan struct{} // closed when nothing of the region runs any more
	done  chan struct{}
}

// newSite returns one that does not run yet.
func newSite(ctx context.Context, node *cluster.Node, name string, commands *codec.Registry, opts Options, proxy bool) (*site, error) {
	cfg := opts.machine(node, name, proxy)
	machine, err := shardcore.New(cfg)
	if err != nil {
		return nil, errors.New(strings.NewReplacer("Config.", "Options: ", "\n", "; ").Replace(err.Error()))
	}
	s := &site{
		node: node, board: switchboardOf(node), name: name, opts: opts, commands: commands, cfg: cfg, machine: machine,
		log: opts.Logger.With(slog.String("type", name)), start: time.Now(), inbox: newInbox(opts.BufferSize), gates: make([]gate, opts.Shards),
		opened: map[Shard]struct{}{}, residents: map[string]*resident{}, asked: map[Shard]chan struct{}{},
		refusal: make(chan struct{}), ready: make(chan struct{}), left: make(chan struct{}), done: make(chan struct{}),
	}
	s.base, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.root = context.Background()
	if proxy {
		return s, nil
	}
	scope := Scope{Type: name, Role: opts.Role, Shards: opts.Shards, Logger: s.log}
	if err = opened(func() (any, error) { s.store, err = opts.State.OpenCoordinator(scope); return s.store, err }); err != nil {
		s.cancel()
		return nil, fmt.Errorf("Options.State: %w", err)
	}
	if opts.Remember == nil {
		return s, nil
	}
	if err = opened(func() (any, error) { s.memory, err = opts.Remember.OpenEntities(scope); return s.memory, err }); err != nil {
		s.cancel()
		return nil, errors.Join(fmt.Errorf("Options.Remember: %w", err), contained(s.store.Close))
	}
	return s, nil
}

// opened calls open, which is somebody else's, and returns an error unless it opens something.
func opened(open func() (store any, err error)) error {
	return contained(func() error {
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
func (s *site) begin(ctx context.Context, host func() error, r any) error {
	if err := s.board.reserve(s); err != nil {
		return errors.Join(err, s.abandon())
	}
	s.board.serve()
	if err := s.addHooks(); err != nil {
		s.board.remove(s)
		return errors.Join(err, s.abandon())
	}
	if err := host(); err != nil { // after it, nothing may fail: there is no way back
		s.board.remove(s)
		return errors.Join(err, s.abandon())
	}
	s.board.add(s, r)
	s.see() //nolint:contextcheck // the loop has a context of its own
	s.work.Go(func() { s.follow(s.base) })
	go s.run() //nolint:contextcheck // the loop has a context of its own
	if s.store == nil {
		return nil
	}
	// Not with a ctx that may end: the type could not be started again.
	err := s.node.Singleton(context.WithoutCancel(ctx), cluster.Singleton{Name: singletonPrefix + s.name, Role: s.opts.Role, Run: s.preside})
	if err != nil { // the node has ended
		s.inbox.add(item{do: s.end})
		<-s.done
	}
	return err
}

// abandon gives up a site that has not run.
func (s *site) abandon() error {
	s.removeHooks()
	s.cancel()
	close(s.done)
	return s.closeStores()
}

func (s *site) closeStores() error {
	var errs []error
	if s.memory != nil {
		errs = append(errs, contained(s.memory.Close))
	}
	if s.store != nil {
		errs = append(errs, contained(s.store.Close))
	}
	return errors.Join(errs...)
}

func (s *site) addHooks() error {
	for phase, f := range map[cluster.Phase]func(context.Context) error{
		cluster.PhaseStopRegions: func(ctx context.Context) error {
			if err := s.leave(ctx); err != nil { // too late: others may host soon what is here
				s.inbox.add(item{do: func() { s.quit(shardcore.Stop{}) }}) //nolint:contextcheck // the loop has a context of its own
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

func (s *site) removeHooks() {
	for _, remove := range s.hooks {
		remove()
	}
}

// follow tells the loop when somebody comes or goes.
func (s *site) follow(ctx context.Context) {
	for range s.node.Events(ctx, cluster.MemberRemoved, cluster.MemberJoined, cluster.MemberWeaklyUp, cluster.MemberUp, cluster.MemberPreparing,
		cluster.MemberReady, cluster.MemberLeft, cluster.MemberExited, cluster.MemberDowned, cluster.MemberUnreachable, cluster.MemberReachable,
		cluster.ShuttingDown, cluster.Suspended, cluster.Resumed) {
		s.inbox.see()
	}
}

// leave gives all shards away, and waits for that.
func (s *site) leave(ctx context.Context) error {
	s.inbox.add(item{do: func() { s.quit(shardcore.Leave{}) }}) //nolint:contextcheck // the loop has a context of its own
	return s.awaitLeft(ctx)
}

func (s *site) awaitLeft(ctx context.Context) error {
	select {
	case <-s.left:
		return nil
	case <-s.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close ends it: what still runs is ended by force. It waits for that as long as ctx lasts.
func (s *site) close(ctx context.Context) error {
	s.inbox.add(item{do: func() { s.quit(shardcore.Stop{}) }}) //nolint:contextcheck // the loop has a context of its own
	err := s.awaitLeft(ctx)
	s.inbox.add(item{do: s.end})
	<-s.done
	return err
}

// end lets the loop end.
func (s *site) end() { s.over.Store(true) }

// halt stops all at once, since the node must not host anything for now: others may begin to.
func (s *site) halt() {
	if !s.halted {
		s.halted = true
		s.step(shardcore.Stop{})
	}
}

// again begins anew when the node may host again, and all that was stopped has ended. For others it is another region.
func (s *site) again() {
	if !s.halted || s.suspended || !s.empty || s.leaving {
		return
	}
	cfg := s.cfg
	cfg.Region.Instance++
	machine, err := shardcore.New(cfg)
	if err != nil { // can't be: it was checked
		return
	}
	machine.Follow(s.machine)
	s.cfg, s.machine, s.turn, s.halted, s.empty = cfg, machine, 0, false, false
	s.narrowAll()
	s.see()
	s.appoint()
	if s.drained {
		s.step(shardcore.Leave{Stay: true})
	}
}

// quit ends the region for good, with Leave or Stop.
func (s *site) quit(in shardcore.Input) {
	s.leaving = true
	if s.empty {
		s.beLeft()
		return
	}
	s.step(in)
}

// hasStopped takes note that nothing of the region runs any more.
func (s *site) hasStopped() {
	s.empty = true
	if !s.halted || s.leaving {
		s.beLeft()
	}
}

func (s *site) beLeft() {
	select {
	case <-s.left:
	default:
		close(s.left)
	}
}
