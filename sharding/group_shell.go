// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/adminrpc"
	"github.com/refold-io/refold/internal/inbox"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/shardcore/groups"
	"github.com/refold-io/refold/internal/wire"
	"github.com/refold-io/refold/transport"
)

// Kinds of messages of groups. They never change.
const (
	kindGroupTable   transport.Kind = 204 // between nodes and the coordinator
	kindGroup        transport.Kind = 205 // messages and requests for an instance
	kindGroupRescale transport.Kind = 206 // a request
)

// groupPrefix is the prefix of the names of the singletons that run coordinators of groups.
const groupPrefix = "groups|"

// Times of the protocol of groups.
const (
	groupRetry      = 2 * time.Second
	groupScaleAfter = 30 * time.Second
)

// groupRouter dispatches messages to the groups of a node.
type groupRouter struct {
	node *cluster.Node

	starting sync.Mutex
	mu       sync.RWMutex
	shells   map[string]*groupShell // by role
	dropped  atomic.Uint64          // malformed messages, and messages that no instance receives
}

type groupKey struct{}

func groupRouterOf(node *cluster.Node) *groupRouter {
	rt, _ := node.Attached(groupKey{}, func() any {
		rt := &groupRouter{node: node, shells: map[string]*groupShell{}}
		t := node.Transport()
		t.Handle(kindGroupTable, rt.receiveTable)
		t.Handle(kindGroup, func(_ context.Context, m transport.Message) { rt.receive(m, nil) })
		t.HandleRequest(kindGroup, func(_ context.Context, r *transport.Request) { rt.receive(r.Message, r) })
		t.HandleRequest(kindGroupRescale, rt.receiveRescale)
		return rt
	}).(*groupRouter)
	return rt
}

// groupShellOf returns the shell of a role. The first call for a role starts it.
func groupShellOf(ctx context.Context, node *cluster.Node, role string) (*groupShell, error) {
	rt := groupRouterOf(node)
	admin := adminProtocol()
	node.HandleAdmin(adminService, admin.Commands, adminrpc.Serve(admin, routerOf(node).administer))
	rt.starting.Lock()
	defer rt.starting.Unlock()
	if s := rt.find(role); s != nil {
		return s, nil
	}
	s := newGroupShell(ctx, rt, role)
	if err := s.launch(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func (rt *groupRouter) find(role string) *groupShell {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	return rt.shells[role]
}

// all returns the shells of the node, sorted by role.
func (rt *groupRouter) all() (shells []*groupShell) {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	for _, role := range slices.Sorted(maps.Keys(rt.shells)) {
		shells = append(shells, rt.shells[role])
	}
	return shells
}

func (rt *groupRouter) receiveTable(ctx context.Context, m transport.Message) {
	role, err := groups.MessageRole(m.Payload)
	s := rt.find(role)
	if err != nil || s == nil {
		rt.dropped.Add(1)
		return
	}
	_ = s.inbox.Receive(ctx, 0, len(m.Payload), groupItem{input: groups.Received{From: m.From, Data: m.Payload}}) // the loop has ended
}

// receive passes a message to an instance of this node, or to the node of the instance.
func (rt *groupRouter) receive(m transport.Message, r *transport.Request) {
	g, err := decodeGroupMessage(m.Payload)
	d := inbox.NewDelivery(m.From, g.payload, r)
	if err != nil {
		rt.dropped.Add(1)
		_ = d.Refuse(err.Error()) // the sender may be gone
		return
	}
	status := inbox.NotHosted
	s := rt.find(g.role)
	if s != nil {
		status = s.deliver(groups.Instance{Group: g.group, Nr: g.nr}, d)
	}
	if status == inbox.Answered || status == inbox.NotHosted && s != nil && r == nil && s.forward(&g) {
		return
	}
	rt.dropped.Add(1)
	d.Answer(status)
}

// forward sends a message without a reply to the node that runs the instance now.
func (s *groupShell) forward(m *groupMessage) bool {
	table, _ := s.current()
	g := table.Find(m.group)
	if m.hops >= maxHops || g == nil || m.nr >= len(g.Slots) {
		return false
	}
	to := g.Slots[m.nr].Node
	if to.IsZero() || to == s.node.Self() {
		return false
	}
	m.hops++
	return s.node.Transport().Send(to, transport.Data, kindGroup, m.encode()) == nil
}

// groupItem is an input of the loop. Exactly one of its fields is set.
type groupItem struct {
	input groups.Input
	call  func()
}

// groupShell drives the groups.Machine of a role on a node: it owns the loop, the timer and the
// goroutines of the instances.
type groupShell struct {
	node           *cluster.Node
	router         *groupRouter
	role           string
	hosts          bool // the node has the role
	log            *slog.Logger
	ctx            context.Context //nolint:containedctx // the lifetime of the shell
	cancel         context.CancelFunc
	startedAt      time.Time
	inbox          *loop.Mailbox[groupItem]
	membersChanged atomic.Bool
	stopping       atomic.Bool // ends the loop
	hooks          []func()
	background     sync.WaitGroup
	instances      loop.InFlight
	done           chan struct{}

	mu      sync.Mutex
	table   *groups.Table
	changed chan struct{} // closed when the table changes
	running map[groups.Instance]*groupInstance
	refs    map[string]*GroupRef

	// The following fields belong to the loop.
	machine  *groups.Machine
	drained  []chan struct{}
	ending   bool // the instances end, whatever the table is
	throttle loop.Throttle[logKind]
}

func newGroupShell(ctx context.Context, rt *groupRouter, role string) *groupShell {
	node := rt.node
	s := &groupShell{
		node: node, router: rt, role: role, hosts: role == "" || slices.Contains(node.Roles(), role), log: node.Logger(), startedAt: time.Now(),
		inbox: loop.NewMailbox[groupItem](loop.NewSignal(), loop.Limit{Count: maxWaitingFrames, Bytes: maxWaitingBytes, Account: loop.BudgetOf(node.Transport()).Account("groups of role " + role)}),
		done:  make(chan struct{}), table: &groups.Table{}, changed: make(chan struct{}),
		running: map[groups.Instance]*groupInstance{}, refs: map[string]*GroupRef{},
		machine: groups.New(groups.Config{Self: node.Self(), Role: role, RetryInterval: groupRetry, ScaleAfter: groupScaleAfter, RemovalMargin: node.RemovalMargin}),
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return s
}

// launch starts the loop, and the singleton that coordinates.
func (s *groupShell) launch(ctx context.Context) error {
	for phase, f := range map[cluster.Phase]func(context.Context) error{cluster.PhaseStopRegions: s.drain, cluster.PhaseBeforeTerminate: s.close} {
		remove, err := s.node.OnShutdown(phase, "groups "+s.role, f)
		if err != nil {
			s.removeHooks()
			s.cancel()
			return err
		}
		s.hooks = append(s.hooks, remove)
	}
	s.router.mu.Lock()
	s.router.shells[s.role] = s
	s.router.mu.Unlock()
	s.membersChanged.Store(true)
	s.inbox.Ready.Set()
	s.background.Go(func() {
		for range s.node.Events(s.ctx) {
			s.notifyMembers()
		}
	})
	s.background.Go(func() {
		if s.node.AwaitJoined(s.ctx) != nil {
			s.notifyMembers()
		}
	})
	go s.run() //nolint:contextcheck // the loop uses its own context
	if !s.hosts {
		return nil
	}
	// If the singleton ended with ctx, the role could not be started again on this node.
	err := s.node.Singleton(context.WithoutCancel(ctx), cluster.Singleton{Name: groupPrefix + s.role, Role: s.role, Run: s.coordinate})
	if err != nil { // the node has shut down
		s.post(func() { s.stopping.Store(true) })
		<-s.done
	}
	return err
}

func (s *groupShell) removeHooks() {
	for _, remove := range s.hooks {
		remove()
	}
}

func (s *groupShell) notifyMembers() {
	s.membersChanged.Store(true)
	s.inbox.Ready.Set()
}

// coordinate is Run of the singleton. The node coordinates until it returns.
func (s *groupShell) coordinate(ctx context.Context, _ *cluster.Inbox) error {
	stopped := make(chan struct{})
	s.inbox.Add(groupItem{input: groups.StartCoordinator{}})
	select {
	case <-ctx.Done():
	case <-s.done:
		return nil
	}
	s.post(func() { //nolint:contextcheck // the loop uses its own context
		s.step(groups.StopCoordinator{})
		close(stopped)
	})
	select {
	case <-stopped:
	case <-s.done:
	}
	return nil
}

// add declares a group.
func (s *groupShell) add(ctx context.Context, r *GroupRef) error {
	name := r.group.Name
	s.mu.Lock()
	taken, full := s.refs[name] != nil, len(s.refs) == groups.MaxGroups
	if !taken && !full {
		s.refs[name] = r
	}
	s.mu.Unlock()
	switch {
	case taken:
		return fmt.Errorf("%w: the node takes part in a group of this name and role already", ErrInvalid)
	case full:
		return fmt.Errorf("%w: the node takes part in %d groups of the role, at most %d are allowed", ErrInvalid, groups.MaxGroups, groups.MaxGroups)
	}
	err := s.call(context.WithoutCancel(ctx), s.declare)
	if err != nil {
		return err
	}
	return ctx.Err()
}

// declare passes the groups of the node to the machine.
func (s *groupShell) declare() {
	s.mu.Lock()
	refs := slices.SortedFunc(maps.Values(s.refs), func(a, b *GroupRef) int { return strings.Compare(a.group.Name, b.group.Name) })
	s.mu.Unlock()
	nodes := 0
	for _, m := range s.node.State().Members {
		if m.HasRole(s.role) && m.Status == cluster.Up {
			nodes++
		}
	}
	declared := make([]groups.Declaration, 0, len(refs))
	for _, r := range refs {
		need := r.group.Instances
		if f := r.group.Tolerate; f != nil && nodes > 0 {
			failures := 0
			if p := panics.Call(func() { failures = f(nodes) }); p != nil {
				s.throttle.Log(s.ctx, s.log, logTolerate, slog.LevelError, "Group.Tolerate panicked", slog.String("group", r.group.Name), slog.Any("error", p))
			}
			need = min(max(need, min(failures, nodes-1)+1), groups.MaxInstances)
		}
		declared = append(declared, groups.Declaration{
			Name: r.group.Name, Hosts: s.hosts && r.group.Run != nil, Exclusive: r.exclusive, Min: need, Max: max(need, r.group.MaxInstances),
		})
	}
	s.step(groups.Declare{Groups: declared})
}

func (s *groupShell) now() time.Duration { return time.Since(s.startedAt) }

// run is the loop.
func (s *groupShell) run() {
	defer s.terminate()
	defer func() {
		if p := recover(); p != nil {
			s.log.ErrorContext(s.ctx, "groups failed", slog.String("role", s.role), slog.String("panic", panics.Text(p)), slog.String("stack", string(debug.Stack())))
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var spare []groupItem
	for !s.stopping.Load() {
		select {
		case <-s.inbox.Ready:
		case <-timer.C:
		}
		items := s.inbox.Take(spare)
		if s.membersChanged.Swap(false) {
			s.updateMembers()
		}
		for i := range items {
			if it := &items[i]; it.call != nil {
				it.call()
			} else {
				s.step(it.input)
			}
		}
		spare = items
		if s.now() >= s.machine.Next() {
			s.reportLoads()
			s.step(groups.Tick{})
		}
		timer.Reset(max(0, min(s.machine.Next()-s.now(), time.Hour)))
	}
}

func (s *groupShell) updateMembers() {
	state := s.node.State()
	in := groups.Members{Suspended: state.Suspended, Ended: state.Stopped || s.ending}
	if !in.Ended {
		in.Members, in.Unreachable, in.Seen = state.Members, state.Unreachable, state.Seen
	}
	s.step(in)
	s.declare() // the number of nodes may have changed
}

func (s *groupShell) reportLoads() {
	s.mu.Lock()
	running := slices.Collect(maps.Values(s.running)) // the order does not matter
	s.mu.Unlock()
	for _, i := range running {
		s.step(groups.Load{Instance: i.id, Load: i.currentLoad()})
	}
}

func (s *groupShell) step(in groups.Input) {
	e := s.machine.Step(s.now(), in)
	if e.Malformed != nil {
		s.router.dropped.Add(1)
		s.throttle.Log(s.ctx, s.log, logMalformed, slog.LevelWarn, "malformed message", slog.Any("error", e.Malformed))
	}
	if e.Table {
		s.publish()
	}
	for _, id := range e.Stop {
		s.stop(id)
	}
	for _, start := range e.Start {
		s.start(start)
	}
	for _, m := range e.Send {
		if err := s.node.Transport().Send(m.To, transport.Data, kindGroupTable, m.Data); err != nil {
			s.throttle.Log(s.ctx, s.log, logUnsent, slog.LevelWarn, "cannot send a message", slog.String("to", m.To.String()), slog.Any("error", err))
		}
	}
	if len(s.drained) > 0 && s.machine.Drained() {
		for _, c := range s.drained {
			close(c)
		}
		s.drained = nil
	}
}

// publish makes the table visible for senders.
func (s *groupShell) publish() {
	table := *s.machine.Table()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table = &table
	close(s.changed)
	s.changed = make(chan struct{})
	for name, r := range s.refs { // the order does not matter
		places := map[placeOf]bool{}
		if g := table.Find(name); g != nil {
			for nr, slot := range g.Slots {
				places[placeOf{slot.Node, nr}] = true
			}
		}
		r.open.keep(places)
	}
}

// current returns the table, and a channel that is closed when it changes.
func (s *groupShell) current() (*groups.Table, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table, s.changed
}

// wait waits for a change of the table.
func (s *groupShell) wait(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-s.done:
		return s.stopped()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pause waits for a change of the table, at most for a time.
func (s *groupShell) pause(ctx context.Context, changed <-chan struct{}, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-changed:
		return nil
	case <-s.done:
		return s.stopped()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *groupShell) stopped() error {
	if why := s.node.State().Err; why != nil {
		return fmt.Errorf("%w: %w", ErrStopped, why)
	}
	return ErrStopped
}

func (s *groupShell) post(f func()) bool { return s.inbox.Add(groupItem{call: f}) }

// call calls f in the loop.
func (s *groupShell) call(ctx context.Context, f func()) error {
	return callLoop(ctx, s.post, s.stopped, f)
}

// drain moves the instances of the node to other nodes.
func (s *groupShell) drain(ctx context.Context) error {
	drained := make(chan struct{})
	s.post(func() { //nolint:contextcheck // the loop uses its own context
		s.drained = append(s.drained, drained)
		s.step(groups.Leave{})
	})
	select {
	case <-drained:
		return nil
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("instances of groups have not moved: %w", context.Cause(ctx))
	}
}

// close ends the instances of the node and the loop. It waits for the instances until ctx ends.
func (s *groupShell) close(ctx context.Context) error {
	s.post(func() { //nolint:contextcheck // the loop uses its own context
		s.ending = true
		s.updateMembers()
	})
	s.mu.Lock()
	for _, i := range s.running { // the order does not matter
		i.cancel(errInstanceStops)
	}
	s.mu.Unlock()
	ended := s.instances.Wait(ctx)
	s.post(func() { s.stopping.Store(true) })
	<-s.done
	if !ended {
		return fmt.Errorf("instances of groups still run: %w", context.Cause(ctx))
	}
	return nil
}

// terminate releases everything that belongs to the shell.
func (s *groupShell) terminate() {
	s.router.mu.Lock()
	delete(s.router.shells, s.role)
	s.router.mu.Unlock()
	s.mu.Lock()
	for _, i := range s.running { // those of a failed loop
		i.cancel(errInstanceStops)
	}
	s.mu.Unlock()
	left := s.inbox.Close()
	close(s.done)
	for _, it := range left {
		if it.call != nil {
			it.call()
		}
	}
	s.cancel()
	s.background.Wait()
	s.removeHooks()
}

// Replies to a request to change the number of instances.
const (
	rescaleAccepted byte = iota
	rescaleBusy
	rescaleElsewhere
)

// rescale repeats a request to the coordinator until the table shows its effect.
func (s *groupShell) rescale(ctx context.Context, name string, count int) error {
	request := append([]byte{wireVersion}, binary.AppendUvarint(nil, uint64(len(s.role)))...)
	request = append(request, s.role...)
	request = append(binary.AppendUvarint(request, uint64(len(name))), name...)
	request = binary.AppendUvarint(request, uint64(count)) //nolint:gosec // not negative
	for {
		table, changed := s.current()
		if g := table.Find(name); g != nil && g.Override == count && (count == 0 || g.Count == count) {
			return nil
		}
		var to identity.Node
		if err := s.call(ctx, func() { to = s.machine.Coordinator() }); err != nil {
			return err
		}
		if !to.IsZero() {
			attempt, cancel := context.WithTimeout(ctx, groupRetry)
			reply, err := s.node.Transport().Request(attempt, to, kindGroupRescale, request)
			cancel()
			if err == nil && len(reply) == 1 && reply[0] == rescaleBusy {
				return ErrRescaling
			}
		}
		if err := s.pause(ctx, changed, groupRetry); err != nil {
			return err
		}
	}
}

// receiveRescale passes a request to change the number of instances to the coordinator.
func (rt *groupRouter) receiveRescale(_ context.Context, r *transport.Request) {
	in := wire.NewReader(r.Payload, wireVersion, maxManifest, errMalformed)
	role, name := string(in.Text(maxRole, "role")), string(in.Text(groups.MaxName, "group"))
	count := int(in.Uint(groups.MaxInstances, "number of instances")) //nolint:gosec // limited
	s := rt.find(role)
	reply := func(status byte) { _ = r.Reply([]byte{status}) } // the sender may be gone
	if in.End() != nil || s == nil || !s.post(func() {         //nolint:contextcheck // the loop uses its own context
		switch err := s.machine.Rescale(name, count); {
		case err == nil:
			s.step(groups.Tick{})
			reply(rescaleAccepted)
		case errors.Is(err, groups.ErrRescaling):
			reply(rescaleBusy)
		default:
			reply(rescaleElsewhere)
		}
	}) {
		reply(rescaleElsewhere)
	}
}

// status returns the state of a group.
func (s *groupShell) status(ctx context.Context, name string) (status GroupStatus, err error) {
	text := func(n identity.Node) string {
		if n.IsZero() {
			return ""
		}
		return n.String()
	}
	err = s.call(ctx, func() {
		t := s.machine.Table()
		s.mu.Lock()
		defer s.mu.Unlock()
		status = GroupStatus{Name: name, Role: s.role, Singleton: groupPrefix + s.role, Workers: s.refs[name].exclusive, Coordinator: text(s.machine.Coordinator()), Revision: t.Version.Rev}
		for _, n := range s.machine.Missing() {
			status.Waiting = append(status.Waiting, n.String())
		}
		g := t.Find(name)
		if g == nil {
			return
		}
		status.Rescaled = g.Override
		for nr, slot := range g.Slots {
			place := GroupPlace{Node: text(slot.Node), Next: text(slot.Next), Old: text(slot.Old)}
			if s.running[groups.Instance{Group: name, Nr: nr}] != nil {
				place.Here = 1
			}
			status.Places = append(status.Places, place)
		}
	})
	return status, err
}

// names returns the groups in which the node takes part, sorted.
func (s *groupShell) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.refs))
}

var errInstanceStops = errors.New("sharding: the instance of the group must stop on this node")

// groupInstance is an instance that runs on this node, or waits for its next run.
type groupInstance struct {
	shell  *groupShell
	ref    *GroupRef
	id     groups.Instance
	count  int
	log    *slog.Logger
	cancel context.CancelCauseFunc
	ready  sync.Once
	load   atomic.Uint64 // bits of the load plus 1, 0 for none
	inbox  atomic.Pointer[inbox.Inbox]
}

func (s *groupShell) start(start groups.Start) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.refs[start.Group]
	log := r.group.Logger
	if log == nil {
		log = s.log
	} else {
		log = log.With(slog.String("node", s.node.Self().String()))
	}
	i := &groupInstance{shell: s, ref: r, id: start.Instance, count: start.Count, log: log.With(slog.String("group", start.Group), slog.Int("instance", start.Nr))}
	var ctx context.Context
	ctx, i.cancel = context.WithCancelCause(context.WithoutCancel(s.ctx))
	s.running[start.Instance] = i
	s.instances.Begin()
	go i.run(ctx)
}

// stop ends an instance. It receives no further messages.
func (s *groupShell) stop(id groups.Instance) {
	s.mu.Lock()
	i := s.running[id]
	s.mu.Unlock()
	if i != nil {
		i.cancel(errInstanceStops)
	}
}

// deliver passes a message to an instance and returns the status for the reply.
func (s *groupShell) deliver(id groups.Instance, d *inbox.Delivery) byte {
	s.mu.Lock()
	i := s.running[id]
	s.mu.Unlock()
	if i == nil {
		return inbox.NotHosted
	}
	b := i.inbox.Load()
	if b == nil {
		return inbox.NotHosted
	}
	return b.Put(d)
}

// run calls Group.Run until the instance has to stop.
func (i *groupInstance) run(ctx context.Context) {
	s := i.shell
	defer s.instances.End()
	defer s.inbox.Add(groupItem{input: groups.Ended{Instance: i.id}})
	defer func() {
		s.mu.Lock()
		delete(s.running, i.id)
		s.mu.Unlock()
		i.cancel(nil)
	}()
	i.log.InfoContext(ctx, "instance started")
	for failures := 0; ctx.Err() == nil; {
		begun := time.Now()
		b := inbox.New(loop.BudgetOf(s.node.Transport()).Account("group "+i.id.Group), i.ref.group.MaxInbox, true)
		i.inbox.Store(b)
		stop := context.AfterFunc(ctx, func() { b.Close() })
		err := i.once(ctx, b)
		stop()
		b.Close()
		b.End()
		if ctx.Err() != nil {
			if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, errInstanceStops) {
				i.log.ErrorContext(ctx, "instance failed while it stopped", slog.Any("error", err))
			}
			break
		}
		if time.Since(begun) > 30*i.ref.group.RestartBackoff {
			failures = 0
		}
		pause := i.ref.group.RestartBackoff * time.Duration(min(1<<min(failures, 5), 30))
		failures++
		attrs := []slog.Attr{slog.Duration("pause", pause), slog.Any("error", err)}
		if panicked, ok := errors.AsType[*panics.Error](err); ok {
			attrs = append(attrs, slog.String("stack", string(panicked.Stack)))
		}
		i.log.LogAttrs(ctx, slog.LevelError, "instance ended early and is restarted after a pause", attrs...)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	i.log.InfoContext(ctx, "instance stopped")
}

var errInstanceGoexit = errors.New("sharding: the instance has called runtime.Goexit")

// once calls Group.Run on a goroutine of its own, so that runtime.Goexit ends only this call.
func (i *groupInstance) once(ctx context.Context, b *inbox.Inbox) (err error) {
	err = errInstanceGoexit
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = panics.Catch(func() error {
			return i.ref.group.Run(ctx, &Instance{ref: i.ref, id: i.id, count: i.count, run: i, inbox: b})
		})
	}()
	<-ended
	return err
}

func (i *groupInstance) setReady() {
	i.ready.Do(func() { i.shell.inbox.Add(groupItem{input: groups.Ready{Instance: i.id}}) })
}

func (i *groupInstance) setLoad(load float64) {
	if math.IsNaN(load) || load < 0 {
		load = 0
	}
	i.load.Store(math.Float64bits(min(load, 1000) + 1))
}

// currentLoad returns the load in thousandths.
func (i *groupInstance) currentLoad() int {
	if bits := i.load.Load(); bits != 0 {
		return int((math.Float64frombits(bits) - 1) * 1000)
	}
	if b := i.inbox.Load(); b != nil {
		return b.Pending() * 100
	}
	return 0
}

// adminGroups returns a page of the groups of the node. It begins with the first group after a role
// and a name.
func (rt *router) adminGroups(ctx context.Context, after string) (reply adminReply, err error) {
	size := 0
	for _, s := range groupRouterOf(rt.node).all() {
		for _, name := range s.names() {
			if s.role+"\x00"+name <= after {
				continue
			}
			g, err := s.status(ctx, name)
			if errors.Is(err, ErrStopped) {
				continue
			}
			if err != nil {
				return reply, err
			}
			if size += 1 + len(g.Places); size > adminPage && len(reply.Groups) > 0 {
				reply.More = true
				return reply, nil
			}
			reply.Groups = append(reply.Groups, g)
		}
	}
	return reply, nil
}
