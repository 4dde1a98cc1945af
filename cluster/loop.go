// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/transport"
)

// call is something that the loop does for somebody who waits for it.
type call struct {
	f    func()
	done chan struct{}
}

var errLoopEnded = errors.New("cluster: this node has ended")

// call lets the loop call f and waits for that. F must not block.
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
	case <-n.ended: // it may have been the last
		select {
		case <-c.done:
			return nil
		default:
			return n.endedErr()
		}
	}
}

// endedErr is why nothing is done any more.
func (n *Node) endedErr() error {
	if err := n.hub.current().Err; err != nil {
		return err
	}
	return errLoopEnded
}

// now is the time of the machine.
func (n *Node) now() time.Duration { return time.Since(n.start) }

// run is the only one who touches the machine. It waits for nothing but what happens.
func (n *Node) run() {
	defer close(n.ended)
	defer n.failed()
	timer := time.NewTimer(0)
	defer timer.Stop()
	stats := n.statsTicker()
	defer stats.Stop()
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
		case <-n.inputs.news:
			n.handleAll()
		case <-stats.C:
			n.tellStats()
		case <-timer.C:
		}
		n.tickIfDue()
		n.beat.Store(int64(n.now()))
	}
}

// handleAll handles what has happened until now.
func (n *Node) handleAll() {
	for _, in := range n.inputs.take() {
		n.step(in)
		n.tickIfDue()
	}
}

func (n *Node) tickIfDue() {
	if now := n.now(); now >= n.machine.Next() {
		n.perform(n.machine.Tick(now))
	}
}

func (n *Node) step(in node.Input) { n.perform(n.machine.Step(n.now(), in)) }

func (n *Node) member(in membership.Input) { n.step(node.Membership{Input: in}) }

// failed ends the node when the loop panics: what it knew can't be trusted any more.
func (n *Node) failed() {
	p := recover()
	if p == nil {
		return
	}
	n.outlet.write(slog.LevelError, "the node has failed", slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
	n.hosts.stopAll()
	n.asks.fail(ErrFailed)
	n.left = ErrFailed
	n.hub.publish(&State{Self: n.self, Stopped: true, Err: ErrFailed}, []Event{{Kind: ShuttingDown}})
	n.beginShutdown()
}

// perform carries out what the machine wants done, in order.
func (n *Node) perform(e node.Effects) {
	for _, l := range e.Log {
		n.outlet.write(levelOf(l.Level), l.Message, attrsOf(l.Attrs)...)
	}
	for _, q := range e.Quarantine {
		n.transport.Quarantine(q, false)
		n.hosts.forget(q)
	}
	for _, i := range e.Stop {
		n.hosts.stop(i)
	}
	for _, op := range e.Leases {
		n.leases.begin(op)
	}
	for _, i := range e.Start {
		n.hosts.start(n.base, n, i)
	}
	for _, s := range e.Send {
		n.send(s)
	}
	for _, f := range e.Forward {
		n.forward(f)
	}
	for _, d := range e.Dropped {
		n.parcels.drop(n, d.Message)
	}
	if len(e.Life) > 0 {
		n.outcome(e.Life)
	}
	if len(e.Events)+len(e.Life) > 0 {
		n.publish(e)
	}
	n.notice()
	for _, l := range e.Life {
		n.lived(l)
	}
}

// notice publishes that the node hears itself for the first time, which is no event.
func (n *Node) notice() {
	if s := n.hub.current(); !s.Connected && !s.Stopped && n.machine.View().Connected {
		n.hub.publish(n.look(), nil)
	}
}

// outcome notes why the membership ended, before anybody is told.
func (n *Node) outcome(life []membership.Life) {
	for _, l := range life {
		switch l.Kind {
		case membership.Downed:
			n.downed = true
		case membership.Stopped:
			if n.left = errorOf(l); n.downed && l.Reason == membership.Asked {
				n.left = ErrDowned // it did not wait for those that are down with it
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
	state := n.look()
	n.hub.publish(state, events)
	if f := n.cfg.Observer.State; f != nil {
		n.outlet.add(func() { f(state) })
	}
}

// lived does what follows from what became of the node itself.
func (n *Node) lived(l membership.Life) {
	switch l.Kind {
	case membership.Suspended:
		n.asks.fail(ErrDisconnected)
		n.parcels.failAsks(n, ErrDisconnected)
	case membership.Exits, membership.Downed:
		n.beginShutdown()
	case membership.Stopped:
		n.asks.fail(n.left)
		n.parcels.failAsks(n, n.left)
		n.beginShutdown()
	case membership.Joined, membership.BecameUp, membership.Disconnected, membership.Connected, membership.Resumed:
	}
}

// silent are the kinds that are not answered with a notice of quarantine: heartbeats, and the notice itself.
var silent = []transport.Kind{ //nolint:gochecknoglobals // constant
	transport.Kind(membership.KindHeartbeat), transport.Kind(membership.KindHeartbeatReply),
	transport.Kind(membership.KindEcho), transport.Kind(membership.KindQuarantined),
}

// listen takes the messages of the protocols from the transport.
func (n *Node) listen() {
	for kind := membership.KindInitJoin; kind < membership.Kinds; kind++ {
		switch kind {
		case membership.KindInitJoin, membership.KindJoin, membership.KindPing:
			n.transport.HandleNamed(transport.Kind(kind), n.receive(identity.Node{Name: n.self.Name}, node.Kind(kind)))
		default:
			n.transport.Handle(transport.Kind(kind), n.receive(n.self, node.Kind(kind)))
		}
	}
	n.transport.Handle(transport.Kind(node.KindSingleton), n.receive(n.self, node.KindSingleton))
	n.transport.Handle(kindForwarded, n.hosts.message)
	n.transport.HandleRequest(kindForwarded, n.hosts.request)
}

// receive returns a handler that leaves a message to the loop.
func (n *Node) receive(to identity.Node, kind node.Kind) transport.Handler {
	return func(_ context.Context, m transport.Message) {
		if m.Lane != transport.Control {
			return
		}
		if !n.inputs.receive(node.Received{From: m.From, To: to, Kind: kind, Arrived: n.now(), Data: m.Payload}) {
			n.dropped(DroppedInput, m.From, "")
		}
	}
}

// heard returns what is told what happens to the transport.
func (n *Node) heard(next func(transport.Event)) func(transport.Event) {
	notice := membership.AppendMessage(nil, membership.Quarantined{})
	return func(e transport.Event) {
		switch e := e.(type) {
		case transport.Connection:
			if e.Err != nil {
				n.inputs.add(node.Membership{Input: membership.LinkLost{}})
			} else {
				n.inputs.add(node.Membership{Input: membership.LinkRestored{}})
			}
		case transport.QuarantinedBy:
			in := node.Received{From: e.From, To: n.self, Kind: node.Kind(membership.KindQuarantined), Arrived: n.now(), Data: notice}
			if !n.inputs.receive(in) {
				n.dropped(DroppedInput, e.From, "")
			}
		case transport.Gap:
		}
		if next != nil {
			n.outlet.add(func() { next(e) })
		}
	}
}

// complainEvery is how often at most it is said that messages can't be sent.
const complainEvery = time.Second

// send sends a message of a protocol. They all bear that it is lost.
func (n *Node) send(s node.Send) {
	var err error
	if s.To.UID == 0 {
		err = n.transport.SendToName(s.To.Name, transport.Kind(s.Kind), s.Data)
	} else {
		err = n.transport.Send(s.To, transport.Control, transport.Kind(s.Kind), s.Data)
	}
	switch {
	case err == nil, errors.Is(err, transport.ErrDisconnected), errors.Is(err, transport.ErrQuarantined), errors.Is(err, transport.ErrClosed):
		// Those who are quarantined are told by the transport itself.
	default:
		n.dropped(DroppedSend, s.To, "")
		now := n.now()
		if now < n.complain {
			return
		}
		n.complain = now + complainEvery
		n.outlet.write(slog.LevelWarn, "a message can't be sent", slog.String("to", s.To.String()), slog.Int("kind", int(s.Kind)), slog.Any("error", err))
	}
}
