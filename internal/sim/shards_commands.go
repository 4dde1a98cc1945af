// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/sim/env"
)

// outcome is the result of a command for its caller.
type outcome uint8

const (
	waits   outcome = iota
	done            // it is stored
	failed          // stored or not
	refused         // not delivered
	unknown         // the node is gone, or the reply is late
)

// command is a command for an account.
type command struct {
	from      *shardNode
	region    uint64 // instance of the sender
	account   *account
	at        *shardNode // holds it, or has sent it
	to        *shardNode // receiver while in flight, else nil
	before    env.Gap    // losses of that link before it was sent
	delivered bool
	refused   bool
	dropped   bool // by a node that ignores the sender
	stored    bool
	outcome   outcome
}

// sender is a region whose commands to an account arrive in order.
type sender struct {
	from    identity.Node
	region  uint64
	account *account
}

func (d *sharding) command(nr uint64) *command {
	if nr == 0 || nr > uint64(len(d.commands)) {
		d.c.violate("messages-are-readable", identity.Node{}, "no command %d", nr)
		d.commands = append(d.commands, command{from: d.all[0], account: d.accounts[0]})
		return &d.commands[len(d.commands)-1]
	}
	return &d.commands[nr-1]
}

// work lets a client send commands from a node to a few accounts for some seconds.
func (d *sharding) work() {
	var nodes []*shardNode
	for _, s := range d.all {
		if s.sends() && (s.h.m.Member() && s.wrongSetting == "" || !d.plan.Calm && d.rand.IntN(50) == 0) {
			nodes = append(nodes, s)
		}
	}
	if len(nodes) == 0 {
		return
	}
	most := 100
	if len(d.commands) > enoughMessages {
		most = 10
	}
	c := &client{s: nodes[d.rand.IntN(len(nodes))], left: 1 + d.rand.IntN(most), pace: d.between(time.Millisecond, 120*time.Millisecond)}
	for i := range c.accounts {
		c.accounts[i] = d.accounts[d.rand.IntN(len(d.accounts))]
	}
	c.s.h.p.Do(c.work)
}

// client sends commands at random intervals.
type client struct {
	s        *shardNode
	left     int
	pace     time.Duration
	accounts [3]*account
}

func (c *client) work() {
	d := c.s.d
	if d.closing {
		return
	}
	first := len(d.commands)
	for range min(c.left, 1+d.rand.IntN(6)) {
		c.left--
		c.s.write(c.accounts[d.rand.IntN(len(c.accounts))])
	}
	last := len(d.commands)
	c.s.after(d.between(5*time.Second, 40*time.Second), func() {
		for nr := first + 1; nr <= last; nr++ {
			c.s.close(uint64(nr), unknown) //nolint:gosec // not negative
		}
	})
	if c.left > 0 && c.s.sends() {
		c.s.after(c.pace, c.work)
	}
}

// sends reports whether clients work on the node.
func (s *shardNode) sends() bool { return !s.gone && s.active() && s.h.alive() }

// active reports whether the region neither ends nor is halted.
func (s *shardNode) active() bool { return !s.m.Ending() && !s.m.Halted() }

// write sends a command to an account.
func (s *shardNode) write(a *account) uint64 {
	if !s.sends() {
		return 0
	}
	d := s.d
	d.commands = append(d.commands, command{from: s, region: s.region, account: a, at: s})
	nr := uint64(len(d.commands))
	s.handleCommand(queuedCommand{shard: a.shard, from: shardcore.Own, account: a, nr: nr})
	return nr
}

// arrived records that a command has arrived at a node.
func (d *sharding) arrived(s *shardNode, body []byte) {
	nr, _ := binary.Uvarint(body)
	l := d.command(nr)
	l.at, l.to = s, nil
}

// undelivered records a message that a node ignores.
func (d *sharding) undelivered(m env.Message) {
	if m.Kind != link.Kind(shardcore.KindRegion) {
		return
	}
	if p, err := region.DecodePacket(m.Data); err == nil && p.Kind == region.Forward {
		nr, _ := binary.Uvarint(p.Body)
		d.command(nr).dropped = true
	}
}

// delivered checks that the commands of a region to an account arrive in order and at most once.
func (d *sharding) delivered(e *entity, nr uint64) {
	l := d.command(nr)
	from := sender{l.from.h.p.Node(), l.region, l.account}
	switch {
	case l.from.wrongSetting != "":
		e.s.violate("other-settings-are-refused", "%s gets command %d of %v, which has other %s", e.a.id, nr, from.from, l.from.wrongSetting)
	case l.account != e.a:
		e.s.violate("delivered-in-order", "%s gets command %d for %s", e.a.id, nr, l.account.id)
	case l.delivered || l.refused:
		e.s.violate("delivered-in-order", "%s gets command %d of %v once more, it was delivered %t, refused %t", e.a.id, nr, from.from, l.delivered, l.refused)
	case nr < d.last[from] && e.s.stale():
		d.hit("sharding", "overlap after a pause")
	case nr < d.last[from]:
		e.s.violate("delivered-in-order", "%s gets command %d of %v after %d", e.a.id, nr, from.from, d.last[from])
	}
	l.delivered, l.at, l.to = true, e.s, nil
	d.last[from] = max(d.last[from], nr)
}

// refused records a command that is not delivered, and informs the caller.
func (d *sharding) refused(s *shardNode, r shardcore.Refusal) {
	nr := numberOf(r.Message)
	l := d.command(nr)
	d.hit("refused", r.Reason.String())
	s.forced = s.forced || s.downed()
	switch {
	case l.delivered || l.refused:
		s.violate("delivered-in-order", "command %d is refused, it was delivered %t, refused %t", nr, l.delivered, l.refused)
	case d.plan.Calm && s.gaveUp(&r):
		d.answeredSoon(nr)
	case d.plan.Calm && (!s.forced || r.Reason != shardcore.Stopped):
		s.violate("planned-moves-lose-nothing", "command %d of %v for %s is refused: %v", nr, l.from.h.p.Node(), l.account.id, r.Reason)
	}
	l.refused, l.at, l.to = true, s, nil
	d.reply(s, nr, refused)
}

// downed reports whether this node has seen itself marked as down, which calm plans do not include:
// the membership checks decide whether that is allowed.
func (s *shardNode) downed() bool {
	return slices.ContainsFunc(s.h.m.Gossip().Members(), func(m *identity.Member) bool {
		return m.Node == s.h.p.Node() && m.Status == identity.Down
	})
}

func (d *sharding) replyAll(s *shardNode, batch []uint64, o outcome) {
	for _, nr := range batch {
		d.reply(s, nr, o)
	}
}

// reply sends the reply to a command.
func (d *sharding) reply(s *shardNode, nr uint64, o outcome) {
	asker := d.command(nr).from
	if asker == s {
		s.close(nr, o)
		return
	}
	if to := asker.h.p.Node(); !s.h.cut[to] && !s.gone {
		s.h.p.Send(to, link.Data, kindReply, append(binary.AppendUvarint(nil, nr), byte(o)))
	}
}

// receiveReply handles a reply.
func (s *shardNode) receiveReply(b []byte) {
	nr, n := binary.Uvarint(b)
	s.close(nr, outcome(b[n]))
}

// close ends the wait for a reply.
func (s *shardNode) close(nr uint64, o outcome) {
	l := s.d.command(nr)
	delete(s.open, nr)
	if l.outcome != waits {
		return
	}
	l.outcome = o
	s.d.hit("answer", []string{"", "done", "failed", "refused", "unknown"}[o])
	if o == done && !l.stored {
		s.violate("acknowledged-is-stored", "command %d for %s is done, and not stored", nr, l.account.id)
	}
}

// failOpenCommands ends the wait for replies of nodes that are gone.
func (s *shardNode) failOpenCommands(there func(identity.Node) bool) {
	for nr, to := range s.open { // the order does not matter
		if !there(to) {
			s.close(nr, unknown)
		}
	}
}
