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
	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/internal/sim/env"
)

// outcome is the result of a command for its caller.
type outcome uint8

const (
	waits   outcome = iota
	done            // the command is stored
	failed          // the command may be stored or not
	refused         // the command is not delivered
	unknown         // the node is gone, or the reply is late
)

type command struct {
	from      *shardNode
	region    uint64 // instance of the sender
	account   *account
	at        *shardNode // the node that holds the command, or has sent it
	to        *shardNode // the receiver while the command is in flight, else nil
	before    env.Gap    // losses on the link to the receiver before the command was sent
	delivered bool
	refused   bool
	dropped   bool // dropped by a node that ignores the sender
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
	nodes := filter(d.all, func(s *shardNode) bool {
		return s.sends() && (s.h.m.Member() && s.wrongSetting == "" || !d.plan.Calm && d.rand.IntN(50) == 0)
	})
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
	standbyIsSilent(e)
	l := d.command(nr)
	from := sender{l.from.h.p.Node(), l.region, l.account}
	switch {
	case l.from.wrongSetting != "":
		e.s.h.violate("other-settings-are-refused", "%s receives command %d of %v, which has another %s", e.a.id, nr, from.from, l.from.wrongSetting)
	case l.account != e.a:
		e.s.h.violate("delivered-in-order", "%s receives command %d for %s", e.a.id, nr, l.account.id)
	case l.delivered || l.refused:
		e.s.h.violate("delivered-in-order", "%s receives command %d of %v twice: delivered before %t, refused before %t", e.a.id, nr, from.from, l.delivered, l.refused)
	case nr < d.last[from] && e.s.stale():
		d.hit("sharding", "overlap after a pause")
	case nr < d.last[from]:
		e.s.h.violate("delivered-in-order", "%s receives command %d of %v after command %d", e.a.id, nr, from.from, d.last[from])
	}
	l.delivered, l.at, l.to = true, e.s, nil
	d.last[from] = max(d.last[from], nr)
}

// refused records a command that is not delivered, and returns an error to its caller.
func (d *sharding) refused(s *shardNode, r shardcore.Refusal) {
	nr := numberOf(r.Message)
	l := d.command(nr)
	d.hit("refused", r.Reason.String())
	s.forced = s.forced || s.downed()
	switch {
	case l.delivered || l.refused:
		s.h.violate("delivered-in-order", "command %d is refused: delivered before %t, refused before %t", nr, l.delivered, l.refused)
	case d.plan.Calm && s.gaveUp(&r):
		d.answeredSoon(nr)
	case d.plan.Calm && (!s.forced || r.Reason != shardcore.Stopped):
		s.h.violate("planned-moves-lose-nothing", "command %d of %v for %s is refused: %v", nr, l.from.h.p.Node(), l.account.id, r.Reason)
	}
	l.refused, l.at, l.to = true, s, nil
	d.reply(s, nr, refused)
}

// downed reports whether this node has seen itself marked as Down. A calm plan contains no fault
// that requires a downing. If a node is downed nevertheless, the membership checks decide whether
// this is a violation.
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

func (s *shardNode) close(nr uint64, o outcome) {
	l := s.d.command(nr)
	delete(s.open, nr)
	if l.outcome != waits {
		return
	}
	l.outcome = o
	s.d.hit("answer", []string{"", "done", "failed", "refused", "unknown"}[o])
	if o == done && !l.stored {
		s.h.violate("acknowledged-is-stored", "command %d for %s is acknowledged but not stored", nr, l.account.id)
	}
}

func (s *shardNode) failOpenCommands(there func(identity.Node) bool) {
	for nr, to := range s.open { // the order does not matter
		if !there(to) {
			s.close(nr, unknown)
		}
	}
}

// directPaths are the fast paths of a node's shards, used as in package sharding. A command
// bypasses the machine if a path accepts it and no earlier commands wait. Other commands wait for
// the loop. The loop handles them some time later, or before the next input of another kind.
type directPaths struct {
	paths    []shardcore.Path[*entity, queuedCommand]
	version  uint64    // route version of the last restriction
	started  []*entity // to be added when the effects are applied
	applying int
	inbox    []queuedCommand // one entry, with shard and origin, for each queued command
}

type queuedCommand struct {
	shard   shardcore.Shard
	from    shardcore.Origin
	account *account // of a command of this node
	nr      uint64
	peer    shardcore.Forwarded
}

// handleCommand sends a command by the path of its shard, or queues it.
func (s *shardNode) handleCommand(c queuedCommand) {
	if int(c.shard) >= len(s.paths) {
		s.step(c.input())
		return
	}
	p := &s.paths[c.shard]
	if !p.Waiting(c.from) && s.pass(c) {
		return
	}
	s.d.hit("path", "queued")
	p.Wait(c.from, c)
	if s.inbox = append(s.inbox, c); len(s.inbox) == 1 {
		s.after(time.Duration(s.d.rand.IntN(int(2*time.Millisecond))), s.handleInbox)
	}
}

func (s *shardNode) handleInbox() {
	for len(s.inbox) > 0 && s.applying == 0 && !s.gone {
		at := s.inbox[0]
		s.inbox = s.inbox[1:]
		p := &s.paths[at.shard]
		c, found := p.Pass(at.from, s.pass)
		if !found {
			continue
		}
		e := s.m.Step(s.h.p.Now(), c.input())
		s.restrictPath(c.shard)
		s.applyEffects(e)
		p.Set(s.m.DirectRoute(c.shard))
		p.Done(c.from)
	}
	s.h.maybeEnd()
}

func (c *queuedCommand) input() shardcore.Input {
	if c.from == shardcore.Peers {
		return c.peer
	}
	return shardcore.Send{Shard: c.shard, Message: shardcore.Message{Entity: c.account.id, Local: c.nr}}
}

// pass sends a command by the path of its shard, if the path accepts it.
func (s *shardNode) pass(c queuedCommand) bool {
	id := c.peer.Packet.Entity
	if c.from == shardcore.Own {
		id = c.account.id
	}
	p := &s.paths[c.shard]
	e, to := p.Target(c.from, id)
	switch to {
	case shardcore.NoTarget:
		return false
	case shardcore.ToHome:
		s.d.hit("path", "to a node")
		packet := region.Packet{
			Type: s.cfg.Region.Type, Frame: region.Frame{Kind: region.Forward, Shard: c.shard}, Entity: id, Body: binary.AppendUvarint(nil, c.nr),
		}
		s.sendPacket(p.Route().Home, link.Kind(shardcore.KindRegion), region.AppendPacket(nil, packet), shardcore.Message{Entity: id, Local: c.nr})
		return true
	case shardcore.ToEntity:
		e.touched = true
	}
	if e.ended || e.stop || e.killed || e.passivating {
		s.h.violate("entities-in-turn", "a command reaches %s by the fast path after its stop", id)
	}
	s.d.hit("path", []string{"to an entity", "from a peer"}[c.from])
	s.d.delivered(e, c.nr)
	e.mailbox = append(e.mailbox, c.nr)
	e.work()
	return true
}

func (s *shardNode) restrictPath(n shardcore.Shard) {
	s.paths[n].Set(s.paths[n].Restricted(s.m.DirectRoute(n)))
}

// beginEffects restricts the paths whose routes may have changed.
func (s *shardNode) beginEffects() {
	s.applying++
	if v := s.m.RouteVersion(); v != s.version {
		s.version = v
		for n := range s.paths {
			s.restrictPath(shardcore.Shard(n))
		}
	}
}

// interleave lets a client send a command between two effects, when the shell holds no lock.
func (s *shardNode) interleave(n shardcore.Shard) {
	d := s.d
	if d.quiet || d.closing || !s.sends() || int(n) >= d.plan.Shards || d.rand.IntN(8) != 0 {
		return
	}
	d.hit("path", "between effects")
	nr := s.write(d.accounts[int(n)*d.plan.Entities+d.rand.IntN(d.plan.Entities)])
	s.after(d.between(5*time.Second, 40*time.Second), func() { s.close(nr, unknown) })
}

func (s *shardNode) endEffects() {
	for _, e := range s.started {
		if !e.ended && !e.stop && !e.killed && !e.passivating && int(e.at.Shard) < len(s.paths) {
			s.paths[e.at.Shard].Add(e.a.id, e)
			e.onPath = true
		}
	}
	s.started = nil
	s.applying--
}

func (s *shardNode) leavePath(e *entity) {
	if e.onPath {
		s.paths[e.at.Shard].Remove(e.a.id)
	}
	e.onPath = false
}

// takeTouched reports whether the entity was touched since the last call.
func (e *entity) takeTouched() bool {
	was := e.touched
	e.touched = false
	return was
}

func (s *shardNode) reportTouched() {
	for n := range s.paths {
		if ids := s.paths[n].Touched((*entity).takeTouched); len(ids) > 0 {
			s.applyEffects(s.m.Touch(s.h.p.Now(), shardcore.Shard(n), ids))
		}
	}
}

// place identifies an incarnation of an entity on a node.
type place struct {
	shardcore.ShardRun

	entity      string
	incarnation uint64
}

// entity is an incarnation of an account with its mailbox. It first loads the stored commands of
// the account. Then it appends all commands of the mailbox in one write, and replies.
type entity struct {
	s           *shardNode
	at          place
	a           *account
	known       int // number of stored commands that it has loaded
	loaded      bool
	writing     bool
	onPath      bool
	touched     bool // a path has passed a command to the entity since the last takeTouched
	passivating bool // asked to stop if idle, and has not replied
	stop        bool // stops when the mailbox is empty
	killed      bool
	ended       bool
	mailbox     []uint64
}

func (s *shardNode) applyAction(a shardcore.Action) {
	d := s.d
	at := place{a.ShardRun, a.Entity, a.Incarnation}
	e := s.entities[at]
	d.hit("entity", a.Kind.String())
	switch {
	case a.Kind == shard.Start:
		e = &entity{s: s, at: at, a: d.byID[a.Entity]}
		s.entities[at] = e
		e.a.running = append(e.a.running, e)
		s.started = append(s.started, e)
		oneEntity(e)
		startsWithLease(e)
		if s.cfg.Region.Remember && !d.rememberStore.has(s, a.ShardRun, a.Entity) && !s.stale() {
			s.h.violate("remembered-before-it-starts", "%s starts, but is not remembered", a.Entity)
		}
		s.after(d.storeDelay(), e.load)
	case e == nil:
		s.h.violate("entities-in-turn", "%v for %s, incarnation %d, which does not run", a.Kind, a.Entity, a.Incarnation)
	case a.Kind == shard.Pass && (e.stop || e.killed || e.passivating):
		s.h.violate("entities-in-turn", "a command follows the stop of %s", a.Entity)
	case a.Kind == shard.Pass:
		nr := numberOf(a.Message)
		d.delivered(e, nr)
		e.mailbox = append(e.mailbox, nr)
		e.work()
	case a.Kind == shard.Stop && a.Idle && !d.quiet && d.rand.IntN(3) == 0:
		e.passivating = true
		s.leavePath(e)
		s.after(d.between(0, 20*time.Millisecond), e.stay)
	case a.Kind == shard.Stop:
		e.stop = true
		s.leavePath(e)
		if d.oneIn(50) {
			d.hit("entity", "does not stop")
			e.writing = true
			s.after(d.between(5*time.Second, 40*time.Second), e.end)
			return
		}
		e.work()
	case a.Kind == shard.Kill:
		e.killed = true
		s.leavePath(e)
		s.after(d.between(time.Millisecond, maxStopping), e.end)
	}
}

func (e *entity) load() {
	if e.ended {
		return
	}
	if e.s.d.store.fails() && e.s.d.oneIn(3) {
		e.s.d.hit("entity", "load failed")
		e.end()
		return
	}
	e.takeState()
	e.loaded, e.known = true, len(e.a.stored)
	e.s.step(shardcore.ShardInput{ShardRun: e.at.ShardRun, Input: shard.Started{Entity: e.at.entity, Incarnation: e.at.incarnation}})
	e.work()
}

// work stores the commands in the mailbox.
func (e *entity) work() {
	switch {
	case e.ended || e.killed || !e.loaded || e.writing:
	case len(e.mailbox) > 0:
		e.writing = true
		batch, known := e.mailbox, e.known
		e.mailbox = nil
		e.append(batch, known)
	case e.stop:
		e.writing = true // never reset: no further command is stored
		e.s.after(e.s.d.between(0, 20*time.Millisecond), e.end)
	case e.s.d.rand.IntN(60) == 0:
		e.s.after(0, e.passivate)
	}
}

func (e *entity) passivate() {
	if !e.ended {
		e.s.step(shardcore.ShardInput{ShardRun: e.at.ShardRun, Input: shard.Passivate{Entity: e.at.entity, Incarnation: e.at.incarnation}})
	}
}

// stay reports that the entity has work to do and does not stop.
func (e *entity) stay() {
	if e.s.handleInbox(); e.ended || e.killed {
		return
	}
	e.s.d.hit("entity", "busy")
	e.passivating = false
	e.s.started = append(e.s.started, e)
	e.s.step(shardcore.ShardInput{ShardRun: e.at.ShardRun, Input: shard.Busy{Entity: e.at.entity, Incarnation: e.at.incarnation}})
}

// append stores commands after the loaded ones. It may fail, or succeed late.
func (e *entity) append(batch []uint64, known int) {
	s, d := e.s, e.s.d
	store := func() error { return e.a.append(d, known, batch) }
	d.store.call(s, store, func(err error) {
		e.writing = false
		switch {
		case e.ended:
		case err != nil:
			d.hit("entity", err.Error())
			d.replyAll(s, batch, failed)
			e.end()
		default:
			e.known += len(batch)
			d.replyAll(s, batch, done)
			e.work()
		}
	})
}

// end ends an incarnation. The commands in its mailbox are lost.
func (e *entity) end() {
	if e.s.handleInbox(); e.ended {
		return
	}
	e.recordEnd()
	e.s.leavePath(e)
	delete(e.s.entities, e.at)
	e.s.d.replyAll(e.s, e.mailbox, failed)
	e.s.step(shardcore.ShardInput{ShardRun: e.at.ShardRun, Input: shard.Ended{Entity: e.at.entity, Incarnation: e.at.incarnation}})
	e.s.h.maybeEnd()
}

func (e *entity) recordEnd() {
	e.ended = true
	e.a.running = filter(e.a.running, func(other *entity) bool { return other != e })
}

// account is an entity and its stored commands, as a journal keeps them.
type account struct {
	id      string
	shard   shardcore.Shard
	stored  []uint64
	running []*entity
}

// append stores commands unless the history has changed.
func (a *account) append(d *sharding, known int, batch []uint64) error {
	if len(a.stored) != known {
		return errStoreFenced
	}
	for _, nr := range batch {
		if l := d.command(nr); l.stored {
			d.c.violate("stored-once", l.from.h.p.Node(), "command %d for %s is stored twice", nr, a.id)
		} else {
			l.stored = true
		}
	}
	for i := range batch {
		d.journal = append(d.journal, logged{a, len(a.stored) + i + 1})
	}
	a.stored = append(a.stored, batch...)
	return nil
}
