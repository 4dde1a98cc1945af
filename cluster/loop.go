// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"sync"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/transport"
)

// call is a function that the loop calls on behalf of a waiting goroutine.
type call struct {
	f    func()
	done chan struct{}
}

var errLoopEnded = errors.New("cluster: this node has ended")

// call runs f in the loop and waits until it returns. f must not block.
func (n *Node) call(ctx context.Context, f func()) error {
	c := call{f, make(chan struct{})}
	select {
	case n.calls <- c:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-n.ended:
		return n.endedErr()
	}
	select {
	case <-c.done:
		return nil
	case <-n.ended: // f may have been the last call
		select {
		case <-c.done:
			return nil
		default:
			return n.endedErr()
		}
	}
}

func (n *Node) try(ctx context.Context, f func() error) error {
	var failed error
	err := n.call(ctx, func() { failed = f() })
	return cmp.Or(err, failed)
}

func (n *Node) endedErr() error {
	if err := n.events.current().Err; err != nil {
		return err
	}
	return errLoopEnded
}

func (n *Node) now() time.Duration { return time.Since(n.start) }

// run is the loop. Only this goroutine uses the machine. It blocks only to wait for input.
func (n *Node) run() {
	defer close(n.ended)
	defer n.failed()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var statsDue <-chan time.Time
	if n.cfg.StatsInterval > 0 {
		statsDue = time.Tick(n.cfg.StatsInterval)
	}
	for {
		if next := n.machine.Next(); next == node.Never {
			timer.Stop()
		} else {
			timer.Reset(max(0, next-n.now()))
		}
		select {
		case <-n.quit:
			return
		case c := <-n.calls:
			c.f()
			close(c.done)
		case <-n.inputs.Ready:
			n.handleAll()
		case <-statsDue:
			n.reportStats()
		case <-timer.C:
		}
		n.tickIfDue()
		n.lastTurn.Store(int64(n.now()))
	}
}

func (n *Node) handleAll() {
	for _, in := range n.inputs.Take(nil) {
		n.step(in)
		n.tickIfDue()
	}
}

func (n *Node) tickIfDue() {
	if now := n.now(); now >= n.machine.Next() {
		n.applyEffects(n.machine.Tick(now))
	}
}

func (n *Node) step(in node.Input) { n.applyEffects(n.machine.Step(n.now(), in)) }

func (n *Node) member(in membership.Input) { n.step(node.Membership{Input: in}) }

// failed shuts the node down after a panic of the loop. The state of the machine is no longer
// reliable.
func (n *Node) failed() {
	p := recover()
	if p == nil {
		return
	}
	n.out.Log(slog.LevelError, "node failed: panic in the event loop", slog.String("panic", panics.Text(p)), slog.String("stack", string(debug.Stack())))
	n.instances.stopAll()
	n.asks.Fail(ErrFailed)
	n.left = ErrFailed
	n.events.publish(&State{Self: n.self, Stopped: true, Err: ErrFailed}, []Event{{Kind: ShuttingDown}})
	n.beginShutdown()
}

func (n *Node) applyEffects(e node.Effects) {
	for _, l := range e.Log {
		n.out.Log(levelOf(l.Level), l.Message, attrsOf(l.Attrs)...)
	}
	for _, q := range e.Quarantine {
		n.transport.Quarantine(q, false)
		n.instances.forget(q)
	}
	for _, i := range e.Stop {
		n.instances.stop(i)
	}
	for _, op := range e.Leases {
		n.leases.begin(op)
	}
	for _, i := range e.Start {
		n.instances.start(n.base, n, i)
	}
	for _, s := range e.Send {
		n.send(s)
	}
	for _, f := range e.Forward {
		n.forward(f)
	}
	for _, d := range e.Dropped {
		n.dropPending(d.Message)
	}
	if len(e.Life) > 0 {
		n.outcome(e.Life)
	}
	if len(e.Events)+len(e.Life) > 0 {
		n.publish(e)
	}
	// The machine reports no event when the node receives its own heartbeats for the first time.
	if s := n.events.current(); !s.Connected && !s.Stopped && n.machine.View().Connected {
		n.events.publish(n.currentState(), nil)
	}
	for _, l := range e.Life {
		n.handleLife(l)
	}
}

// outcome records why the membership ended, before observers are notified.
func (n *Node) outcome(life []membership.Life) {
	for _, l := range life {
		switch l.Kind {
		case membership.Downed:
			n.downed = true
		case membership.Stopped:
			if n.left = errorOf(l); n.downed && l.Reason == membership.Asked {
				n.left = ErrDowned // the node was stopped while it waited for other Down members
			}
		default:
		}
	}
}

func (n *Node) publish(e node.Effects) {
	events := make([]Event, 0, len(e.Events)+len(e.Life))
	for _, ev := range e.Events {
		events = append(events, eventOf(ev))
	}
	events = append(events, eventsOf(e.Life)...)
	state := n.currentState()
	n.events.publish(state, events)
	if f := n.cfg.Observer.State; f != nil {
		n.out.Do(func() { f(state) })
	}
}

func (n *Node) handleLife(l membership.Life) {
	switch l.Kind {
	case membership.Suspended:
		n.failAsks(ErrDisconnected)
	case membership.Exits, membership.Downed:
		n.beginShutdown()
	case membership.Stopped:
		n.failAsks(n.left)
		n.beginShutdown()
	case membership.Joined, membership.BecameUp, membership.Disconnected, membership.Connected, membership.Resumed:
	}
}

// silent are the message kinds to which the transport does not reply with a quarantine notice:
// heartbeats and the notice itself.
var silent = []transport.Kind{ //nolint:gochecknoglobals // constant
	transport.Kind(membership.KindHeartbeat), transport.Kind(membership.KindHeartbeatReply),
	transport.Kind(membership.KindEcho), transport.Kind(membership.KindQuarantined),
}

func (n *Node) listen() {
	for kind := membership.KindInitJoin; kind < membership.Kinds; kind++ {
		switch kind {
		case membership.KindInitJoin, membership.KindJoin, membership.KindPing:
			n.transport.HandleNamed(transport.Kind(kind), n.receive(identity.Node{Name: n.self.Name}, kind))
		default:
			n.transport.Handle(transport.Kind(kind), n.receive(n.self, kind))
		}
	}
	n.transport.Handle(transport.Kind(node.KindSingleton), n.receive(n.self, node.KindSingleton))
	n.transport.Handle(kindForwarded, func(_ context.Context, m transport.Message) { n.instances.take(m, nil) })
	n.transport.HandleRequest(kindForwarded, func(_ context.Context, r *transport.Request) {
		m := r.Message
		r.Payload = nil // the delivery has the payload; the request is kept without its payload until the reply
		n.instances.take(m, r)
	})
}

func (n *Node) receive(to identity.Node, kind membership.Kind) transport.Handler {
	return func(_ context.Context, m transport.Message) {
		if m.Lane != transport.Control {
			n.dropped(DroppedMalformed, m.From, "")
			return
		}
		if n.inputs.Offer(0, len(m.Payload), node.Received{From: m.From, To: to, Kind: kind, Arrived: n.now(), Data: m.Payload}) != nil {
			n.dropped(DroppedInput, m.From, "")
		}
	}
}

// The messages of a stranger wait for at most strangerWait after the first of them. Messages of at
// most maxStrangers strangers wait at a time. Each of them holds up to one window of the transport
// per lane.
const (
	strangerWait = 5 * time.Second
	maxStrangers = 16
)

// strangers are senders that are not members, with the times until which their messages wait.
type strangers struct {
	mu    sync.Mutex
	until map[identity.Node]time.Time
}

// deadline returns the time until which the messages of a sender wait, and whether they wait.
func (s *strangers) deadline(from identity.Node, now time.Time) (at time.Time, waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, waits = s.until[from]; waits {
		return at, now.Before(at)
	}
	if len(s.until) >= maxStrangers {
		maps.DeleteFunc(s.until, func(_ identity.Node, at time.Time) bool { return !now.Before(at) })
	}
	if waits = len(s.until) < maxStrangers; waits {
		at = now.Add(strangerWait)
		s.until[from] = at
	}
	return at, waits
}

// accepts reports whether a message is passed to its handler: only messages of members are. This
// node may receive the messages of a new member before the gossip about it, so that they wait. The
// machine checks the senders of its own messages.
func (n *Node) accepts(ctx context.Context, m transport.Message) bool {
	if m.Kind < kindForwarded || membership.Lookup(n.events.current().Members, m.From) != nil {
		return true
	}
	if m.Lane == transport.Control {
		return false
	}
	deadline, waits := n.strangers.deadline(m.From, time.Now())
	if !waits {
		return false
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	s, _ := n.until(ctx, func(s *State) bool { return membership.Lookup(s.Members, m.From) != nil || s.gone(m.From) })
	return membership.Lookup(s.Members, m.From) != nil
}

// transportEvents returns a handler of transport events. The handler passes each event to the node
// and then to next, unless next is nil.
func (n *Node) transportEvents(next func(transport.Event)) func(transport.Event) {
	notice := membership.AppendMessage(nil, membership.Quarantined{})
	return func(e transport.Event) {
		switch e := e.(type) {
		case transport.Connection:
			if e.Err != nil {
				n.inputs.Add(node.Membership{Input: membership.LinkLost{}})
			} else {
				n.inputs.Add(node.Membership{Input: membership.LinkRestored{}})
			}
		case transport.QuarantinedBy:
			in := node.Received{From: e.From, To: n.self, Kind: membership.KindQuarantined, Arrived: n.now(), Data: notice}
			if n.inputs.Offer(0, len(in.Data), in) != nil {
				n.dropped(DroppedInput, e.From, "")
			}
		case transport.Gap:
		}
		if next != nil {
			n.out.Do(func() { next(e) })
		}
	}
}

const sendWarningInterval = time.Second

// send sends a message of a protocol. The protocols tolerate the loss of any message.
func (n *Node) send(s membership.Send) {
	var err error
	if s.To.UID == 0 {
		err = n.transport.SendToName(s.To.Name, transport.Kind(s.Kind), s.Data)
	} else {
		err = n.transport.Send(s.To, transport.Control, transport.Kind(s.Kind), s.Data)
	}
	switch {
	case err == nil, errors.Is(err, transport.ErrDisconnected), errors.Is(err, transport.ErrQuarantined), errors.Is(err, transport.ErrClosed):
		// The transport itself notifies quarantined nodes.
	default:
		n.dropped(DroppedSend, s.To, "")
		now := n.now()
		if now < n.nextSendWarning {
			return
		}
		n.nextSendWarning = now + sendWarningInterval
		n.out.Log(slog.LevelWarn, "cannot send a message", slog.String("to", s.To.String()), slog.Int("kind", int(s.Kind)), slog.Any("error", err))
	}
}

// levelOf converts a level of the machines. The levels of slog have the same order, in steps of 4.
func levelOf(l membership.Level) slog.Level {
	return slog.LevelInfo + 4*(slog.Level(l)-slog.Level(membership.Info))
}

func attrsOf(attrs []membership.Attr) []slog.Attr {
	out := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		out[i] = slog.Any(a.Key, a.Value)
		switch v := a.Value.(type) {
		case []identity.Node:
			names := make([]string, len(v))
			for j, n := range v {
				names[j] = n.String()
			}
			out[i] = slog.Any(a.Key, names)
		case error:
		case fmt.Stringer:
			out[i] = slog.String(a.Key, v.String())
		}
	}
	return out
}
