// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/transport"
)

// now returns the time of the machine's clock.
func (s *shell) now() time.Duration { return time.Since(s.startedAt) }

// run is the loop. At its end it terminates the shell.
func (s *shell) run() {
	defer s.terminate()
	defer s.handlePanic()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var spare []item
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
			s.handle(&items[i])
		}
		spare = items
		if now := s.now(); now >= s.machine.Next() {
			s.reportTouched()
			if s.machine.Leaving() {
				s.dropAbandoned()
			}
			s.applyAndContinue(s.machine.Tick(s.now()))
		}
		if now := s.now(); now >= s.sweepAt {
			s.sweepAt = now + sweepInterval
			s.dropAbandoned()
			s.sweepAsks(now)
		}
		timer.Reset(max(0, min(s.machine.Next(), s.sweepAt, s.reportLoad(s.now()))-s.now()))
	}
}

// sweepAsks removes the asks whose callers no longer wait, and ends those whose replies are lost.
func (s *shell) sweepAsks(now time.Duration) {
	gone := s.router.asks.takeAll(func(at *pendingAsk) bool {
		ctx := at.message.Context()
		return at.shell == s && (ctx.Err() != nil || ctx.Done() == nil && now >= at.expires)
	})
	for _, at := range gone {
		if at.message.Context().Err() == nil {
			at.message.Answer(nil, fmt.Errorf("%w: no reply from %v within %v", eventsourcing.ErrOutcomeUnknown, at.to, maxAsk))
		}
	}
	s.unanswered.Add(uint64(len(gone)))
}

// sweepInterval is the interval at which commands and asks without a waiting caller are removed.
const sweepInterval = 15 * time.Second

func (s *shell) handle(it *item) {
	switch {
	case it.call != nil:
		it.call()
	case it.path != nil:
		s.handleQueue(it.path, it.origin)
	default:
		s.step(it.input)
	}
}

func (s *shell) step(in shardcore.Input) {
	if s.standbys != nil {
		position, _ := s.host().Followed()
		s.machine.SetFollowed(string(position))
	}
	s.applyAndContinue(s.machine.Step(s.now(), in))
}

// applyAndContinue applies effects, then steps the machine with the inputs that result.
func (s *shell) applyAndContinue(e shardcore.Effects) {
	s.applyEffects(&e)
	s.stepPending()
}

// stepPending steps the machine with the inputs that result from applied effects.
func (s *shell) stepPending() {
	for len(s.pendingInputs) > 0 {
		in := s.pendingInputs[0]
		s.pendingInputs = s.pendingInputs[1:]
		e := s.machine.Step(s.now(), in)
		s.applyEffects(&e)
	}
	s.addEntries()
}

func (s *shell) updateMembers() {
	state := s.node.State()
	in := shardcore.Members{Suspended: state.Suspended}
	if state.Stopped {
		closeOnce(s.nodeEnded)
	} else {
		in.Members = coordinator.Members{Members: state.Members, Unreachable: state.Unreachable}
		if s.standbys != nil && s.standbys.update(state.Members, s.opts.Role) {
			s.background.Go(s.host().Unfollow)
		}
	}
	s.step(in)
	if !state.Suspended && (state.Joined || state.Stopped) {
		s.failAsks(func(n identity.Node) bool { _, member := state.Member(n); return member && !state.Stopped })
	}
}

// failAsks ends the asks that were sent to nodes that are no longer members.
func (s *shell) failAsks(there func(identity.Node) bool) {
	for _, open := range s.router.asks.takeAll(func(a *pendingAsk) bool { return a.shell == s && !there(a.to) }) {
		open.message.Answer(nil, fmt.Errorf("%w: %v was removed before it replied", eventsourcing.ErrOutcomeUnknown, open.to))
	}
}

func (s *shell) reportTouched() {
	for n := range s.openPaths { // the order does not matter
		if touched := s.paths[n].Touched((*used).take); len(touched) > 0 {
			s.applyAndContinue(s.machine.Touch(s.now(), n, touched))
		}
	}
}

// handlePanic ends the shell after a panic of the loop: the machine may be inconsistent.
func (s *shell) handlePanic() {
	if p := recover(); p != nil {
		s.log.ErrorContext(s.ctx, "region failed", slog.String("panic", panics.Text(p)), slog.String("stack", string(debug.Stack())))
	}
}

// terminate releases everything that belongs to the shell and waits for its goroutines.
func (s *shell) terminate() {
	s.router.remove(s)
	if s.disconnect != nil {
		s.disconnect()
	}
	left := s.inbox.Close()
	s.closePaths()
	for m := range s.machine.Messages() { // none, unless the region has failed
		s.handleRefusal(&shardcore.Refusal{Message: m, Reason: shardcore.Stopped})
	}
	for id := range s.localEntities { // the entities of a failed region
		s.host().Kill(id)
	}
	for _, it := range left {
		if it.call != nil {
			it.call()
		}
	}
	s.failAsks(func(identity.Node) bool { return false })
	s.cancel()
	s.closeLeases()
	s.background.Wait()
	if err := s.closeStores(); err != nil {
		s.log.WarnContext(s.ctx, "cannot close a store", slog.Any("error", err))
	}
	s.removeHooks()
	closeOnce(s.hosted.Load().done)
	close(s.done)
}

// The classes of the inbox. ownCommands has the limit Tuning.BufferSize: further commands are
// refused. At the limits of commands of other nodes and of other frames, the handler of the next
// frame blocks, and therefore the lane of its sender blocks too. Commands are charged where they
// arrive, the other frames where they wait.
const (
	ownCommands = iota
	commands
	frames
)

// Limits of the commands of other nodes and of the other frames that wait for the loop.
const (
	maxWaitingBytes  = 16 << 20
	maxWaitingFrames = 8192
)

// item is an input of the loop. Exactly one of input, call and path is set.
type item struct {
	input  shardcore.Input
	call   func()
	path   *fastPath // the queue of origin of this path has a command
	origin shardcore.Origin
}

// post adds a call for the loop. It returns false if the loop has ended.
func (s *shell) post(f func()) bool { return s.inbox.Add(item{call: f}) }

// applyEffects applies the effects of a step in their order. Paths are restricted first: no command
// may bypass the loop once other nodes have been informed of a move.
func (s *shell) applyEffects(e *shardcore.Effects) {
	if turn := s.machine.RouteVersion(); turn != s.routeVersion {
		s.routeVersion = turn
		for n := range s.openPaths { // the order does not matter
			s.restrictPath(&s.paths[n])
		}
	}
	for i := range e.Notes {
		s.logNote(&e.Notes[i])
	}
	s.router.undeliverable.Add(uint64(len(e.Malformed)))
	for i := range e.Malformed {
		s.throttle.Log(s.ctx, s.log, logMalformed, slog.LevelWarn, "malformed message", slog.String("peer", e.Malformed[i].From.String()), slog.Any("error", e.Malformed[i].Err))
	}
	for i := range e.Refused {
		s.handleRefusal(&e.Refused[i])
	}
	for i := range e.Remember {
		s.remember(&e.Remember[i])
	}
	for i := range e.Index {
		s.callIndex(&e.Index[i])
	}
	for i := range e.Leases {
		s.callLease(&e.Leases[i])
	}
	for i := range e.Actions {
		s.applyAction(&e.Actions[i])
	}
	for i := range e.Indexed {
		s.indexed(e.Indexed[i].Entity)
	}
	s.callStores(e)
	for i := range e.Send {
		s.sendFrame(&e.Send[i])
	}
	if e.CoordinatorStopped && s.coordinatorStopped != nil {
		close(s.coordinatorStopped)
		s.coordinatorStopped = nil
	}
	if e.Restarted {
		s.log.LogAttrs(s.ctx, slog.LevelInfo, "node resumed: region restarted", slog.Uint64("instance", s.machine.Instance()))
	}
	if e.Stopped {
		closeOnce(s.regionStopped)
	}
	if s.machine.Registered() {
		closeOnce(s.ready)
	}
	s.updateMismatch()
	s.logOutage()
	s.notifyDrained()
}

func (s *shell) handleRefusal(r *shardcore.Refusal) {
	s.free(&r.Message)
	err := refusal(r.Reason)
	if r.Reason == shardcore.Stopped {
		err = s.stopped()
	}
	if r.Reason == shardcore.Abandoned {
		s.reportDropped(r.Message.Entity, true, err)
		return
	}
	if p, ok := r.Message.Local.(*envelope); ok {
		s.fail(p.message, err)
		return
	}
	s.reportDropped(r.Message.Entity, s.sendRefusal(r.Message.Body, r.Reason), err)
}

func (s *shell) applyAction(a *shardcore.Action) {
	switch a.Kind {
	case shard.Start:
		s.startEntity(a)
	case shard.Pass:
		if p, ok := a.Message.Local.(*envelope); ok {
			s.freeOwn(p)
			if err := s.host().Deliver(p.message); err != nil {
				s.fail(p.message, err)
			}
		} else if c, ok := a.Message.Decoded.(*decodedCommand); ok {
			if c.failed != nil {
				c.charge.Free()
				c.failed()
				return
			}
			if err := s.deliverPeer(c); err != nil {
				s.fail(c.message, err)
			}
		}
	case shard.Stop:
		if a.Idle {
			s.stopEntity(a, s.host().Passivate)
		} else {
			s.stopEntity(a, s.host().Drain)
		}
	case shard.Kill:
		s.stopEntity(a, s.host().Kill)
	}
}

// sendFrame sends a frame to another node. The protocol tolerates the loss of a frame; the sender
// of a lost command gets an error.
func (s *shell) sendFrame(o *shardcore.Outgoing) {
	s.free(&o.Message)
	p, ok := o.Message.Local.(*envelope)
	if !ok {
		if err := s.node.Transport().Send(o.To, transport.Data, transport.Kind(o.Kind), o.Encoded(nil)); err != nil {
			s.throttle.Log(s.ctx, s.log, logUnsent, slog.LevelWarn, "cannot send a message", slog.String("to", o.To.String()), slog.Any("error", err))
			if o.Message.Body != nil {
				s.reportDropped(o.Message.Entity, s.sendRefusal(o.Message.Body, shardcore.NotHome), err)
			}
		}
		return
	}
	m := p.message
	if p.failed != nil {
		s.fail(m, p.failed)
		return
	}
	if !m.Take() {
		return // the caller no longer waits
	}
	number := s.registerAsk(o.To, &m)
	if err := s.sendPacket(o.To, o.Encoded(s.appendCommand(nil, &m, &p.encoded, number)), number, &m); err != nil {
		s.fail(m, err)
	}
}

// closeOnce closes a channel unless it is closed. Only the loop may call it.
func closeOnce(c chan struct{}) {
	if !isClosed(c) {
		close(c)
	}
}

// logKind is a kind of log lines that is throttled.
type logKind uint8

const (
	logUnsent logKind = iota
	logMalformed
	logDropped
	logIgnored
	logRefused
	logTolerate
)

// reportDropped reports a command that was not delivered.
func (s *shell) reportDropped(id string, asked bool, err error) {
	s.dropped.Add(1)
	n, _ := s.shardOf(id)
	if f := s.opts.Observer.Dropped; f != nil {
		info := DroppedInfo{Type: s.name, Entity: id, Shard: n, Asked: asked, Err: err}
		if panicked := panics.Catch(func() error { f(info); return nil }); panicked != nil {
			s.log.ErrorContext(s.ctx, "observer panicked", slog.Any("error", panicked))
		}
	}
	level := slog.LevelWarn
	if asked {
		level = slog.LevelDebug // the caller gets an error
	}
	s.throttle.Log(s.ctx, s.log, logDropped, level, "command not delivered", slog.String("entity", id), slog.Any("error", err))
}

func (s *shell) logNote(n *coordinator.Note) {
	level := slog.LevelDebug
	switch n.Kind { //nolint:exhaustive // the other notes are not counted
	case coordinator.HandOffDone:
		s.handedOff += uint64(len(n.Shards))
	case coordinator.HandOffFailed:
		s.notHandedOff += uint64(len(n.Shards))
	}
	switch n.Kind {
	case coordinator.Ignored:
		s.router.undeliverable.Add(1)
		s.throttle.Log(s.ctx, s.log, logIgnored, level, "coordinator: message ignored", slog.String("peer", n.Node.String()), slog.String("message", n.Message.String()))
		return
	case coordinator.RegionRefused:
		s.throttle.Log(s.ctx, s.log, logRefused, slog.LevelError, "coordinator: region rejected: its settings differ", slog.String("peer", n.Node.String()),
			slog.String("fields", strings.Join(n.Fields, " ")))
		return
	case coordinator.PhaseChanged, coordinator.HandOffDone, coordinator.Terminating, coordinator.Silent:
		level = slog.LevelInfo
	case coordinator.Repaired, coordinator.LoadRetried, coordinator.SaveRetried, coordinator.HandOffFailed:
		level = slog.LevelWarn
	case coordinator.Stored, coordinator.NotAllocated, coordinator.HandOffBegun:
	}
	attrs := []slog.Attr{
		slog.String("event", n.Kind.String()), slog.String("phase", n.Phase.String()), slog.Uint64("term", n.Term), slog.Int("shards", len(n.Shards)), slog.Int("count", n.Count),
	}
	if n.Node.Name != "" {
		attrs = append(attrs, slog.String("peer", n.Node.String()))
	}
	if len(n.Repairs) > 0 {
		attrs = append(attrs, slog.Any("repairs", n.Repairs))
	}
	if n.Reason != 0 {
		attrs = append(attrs, slog.String("reason", n.Reason.String()))
	}
	s.log.LogAttrs(s.ctx, level, "coordinator", attrs...)
}

// outageAfter is the number of RetryIntervals without a reply of a coordinator after which the log
// reports an outage. A planned move of the coordinator takes less time.
const outageAfter = 5

// logOutage logs the beginning and the end of an outage of the coordinator, each once.
func (s *shell) logOutage() {
	if s.machine.Halted() {
		return
	}
	silence := s.machine.Silence()
	long := silence >= outageAfter*s.opts.Tuning.RetryInterval
	by, refused := s.machine.Refused()
	if long && !s.outageLogged {
		s.outageLogged = true
		var asked []string
		for _, n := range s.machine.Candidates() {
			asked = append(asked, n.String())
		}
		s.log.LogAttrs(s.ctx, slog.LevelWarn, "no coordinator replies: commands for shards without a known home wait", slog.String("role", s.opts.Role),
			slog.Any("asked", asked), slog.Duration("silent", silence.Round(time.Millisecond)), slog.Int("waiting", s.machine.Waiting()))
	} else if !long && s.outageLogged && (s.machine.Registered() || refused != nil) {
		s.outageLogged = false
		s.log.LogAttrs(s.ctx, slog.LevelInfo, "coordinator replies again", slog.String("role", s.opts.Role), slog.String("coordinator", by.String()))
	}
}
