// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/sim/env"
)

// outcome is what has become of a command for whoever waits for the answer.
type outcome uint8

const (
	waits   outcome = iota
	done            // it is stored
	failed          // it is stored or not
	refused         // it has reached nobody
	unknown         // its node has gone, or there was no answer in time
)

// letter is a command for an account.
type letter struct {
	from      *site
	region    uint64 // of the sender
	account   *account
	at        *site   // who has it, or has sent it to the next one
	to        *site   // on the way to it, nil: it is not on its way
	before    env.Gap // what had been lost on that way when it was sent
	delivered bool
	refused   bool
	dropped   bool // by a node that does not hear the sender any more
	stored    bool
	outcome   outcome
}

// sender is a region whose commands to an account come in their order.
type sender struct {
	from    identity.Node
	region  uint64
	account *account
}

func (d *sharding) letter(nr uint64) *letter {
	if nr == 0 || nr > uint64(len(d.letters)) {
		d.c.violate("sends-what-can-be-read", identity.Node{}, "there is no command %d", nr)
		d.letters = append(d.letters, letter{from: d.all[0], account: d.accounts[0]})
		return &d.letters[len(d.letters)-1]
	}
	return &d.letters[nr-1]
}

// work lets a client send commands from some node to a few accounts, for some seconds.
func (d *sharding) work() {
	var nodes []*site
	for _, s := range d.all {
		if s.sends() && (s.h.m.Member() && s.misfit == "" || !d.plan.Calm && d.rand.IntN(50) == 0) {
			nodes = append(nodes, s)
		}
	}
	if len(nodes) == 0 {
		return
	}
	most := 100
	if len(d.letters) > enoughMessages {
		most = 10
	}
	c := &client{s: nodes[d.rand.IntN(len(nodes))], left: 1 + d.rand.IntN(most), pace: d.between(time.Millisecond, 120*time.Millisecond)}
	for i := range c.accounts {
		c.accounts[i] = d.accounts[d.rand.IntN(len(d.accounts))]
	}
	c.s.h.p.Do(c.work)
}

// client sends commands at its own pace.
type client struct {
	s        *site
	left     int
	pace     time.Duration
	accounts [3]*account
}

func (c *client) work() {
	d := c.s.d
	if d.closing {
		return
	}
	first := len(d.letters)
	for range min(c.left, 1+d.rand.IntN(6)) {
		c.left--
		c.s.write(c.accounts[d.rand.IntN(len(c.accounts))])
	}
	last := len(d.letters)
	c.s.after(d.between(5*time.Second, 40*time.Second), func() {
		for nr := first + 1; nr <= last; nr++ {
			c.s.close(uint64(nr), unknown) //nolint:gosec // not negative
		}
	})
	if c.left > 0 && c.s.sends() {
		c.s.after(c.pace, c.work)
	}
}

// sends reports whether clients work there.
func (s *site) sends() bool { return !s.gone && !s.leaving && !s.halted && s.h.alive() }

// write sends a command to an account.
func (s *site) write(a *account) uint64 {
	if !s.sends() {
		return 0
	}
	d := s.d
	d.letters = append(d.letters, letter{from: s, region: s.region, account: a, at: s})
	nr := uint64(len(d.letters))
	s.step(shardcore.Send{Shard: a.shard, Message: shardcore.Message{Entity: a.id, Local: nr}})
	return nr
}

// arrived takes note that a command has come to a node.
func (d *sharding) arrived(s *site, body []byte) {
	nr, _ := binary.Uvarint(body)
	l := d.letter(nr)
	l.at, l.to = s, nil
}

// undelivered takes note of a message that a node does not take.
func (d *sharding) undelivered(m env.Message) {
	if m.Kind != link.Kind(shardcore.KindRegion) {
		return
	}
	if p, err := region.DecodePacket(m.Data); err == nil && p.Kind == region.Forward {
		nr, _ := binary.Uvarint(p.Body)
		d.letter(nr).dropped = true
	}
}

// delivered: the commands of a region to an account come in their order, and none twice.
func (d *sharding) delivered(e *entity, nr uint64) {
	l := d.letter(nr)
	from := sender{l.from.h.p.Node(), l.region, l.account}
	switch {
	case l.from.misfit != "":
		e.s.violate("misfits-are-refused", "%s gets command %d of %v, which has other %s", e.a.id, nr, from.from, l.from.misfit)
	case l.account != e.a:
		e.s.violate("delivered-in-order", "%s gets command %d for %s", e.a.id, nr, l.account.id)
	case l.delivered || l.refused:
		e.s.violate("delivered-in-order", "%s gets command %d of %v once more, it was delivered %t, refused %t", e.a.id, nr, from.from, l.delivered, l.refused)
	case nr < d.last[from] && e.s.stale():
		d.hit("sharding", "overlap after a pause")
	case nr < d.last[from]:
		e.s.violate("delivered-in-order", "%s gets command %d of %v behind %d", e.a.id, nr, from.from, d.last[from])
	}
	l.delivered, l.at, l.to = true, e.s, nil
	d.last[from] = max(d.last[from], nr)
}

// refused takes note of a command that reaches nobody. Whoever waits for the answer is told.
func (d *sharding) refused(s *site, r shardcore.Refusal) {
	nr := numberOf(r.Message)
	l := d.letter(nr)
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

// downed reports whether this node knows that it was marked as down, which nobody plans: the checks of membership say whether it may be.
func (s *site) downed() bool {
	return slices.ContainsFunc(s.h.m.Gossip().Members(), func(m *membership.Member) bool {
		return m.Node == s.h.p.Node() && m.Status == membership.Down
	})
}

func (d *sharding) replyAll(s *site, batch []uint64, o outcome) {
	for _, nr := range batch {
		d.reply(s, nr, o)
	}
}

// reply answers a command.
func (d *sharding) reply(s *site, nr uint64, o outcome) {
	asker := d.letter(nr).from
	if asker == s {
		s.close(nr, o)
		return
	}
	if to := asker.h.p.Node(); !s.h.cut[to] && !s.gone {
		s.h.p.Send(to, link.Data, kindAnswer, append(binary.AppendUvarint(nil, nr), byte(o)))
	}
}

// answered takes an answer.
func (s *site) answered(b []byte) {
	nr, n := binary.Uvarint(b)
	s.close(nr, outcome(b[n]))
}

// close ends the wait for an answer.
func (s *site) close(nr uint64, o outcome) {
	l := s.d.letter(nr)
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

// lost answers those who wait for what was sent to nodes that are gone.
func (s *site) lost(there func(identity.Node) bool) {
	for nr, to := range s.open { // the order does not matter
		if !there(to) {
			s.close(nr, unknown)
		}
	}
}
