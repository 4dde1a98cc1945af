// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/identity"
)

const (
	// welcomeAgain is after how long a node that asks again is taken not to have got its
	// welcome. It asks every second, and with many of them a welcome takes longer than that.
	welcomeAgain = 3 * time.Second
	// awayInterval is the least time between two log lines about nodes that can't join.
	awayInterval = 5 * time.Second
	// maxWaiting bounds how many nodes are remembered that wait for this one to be a member; more
	// ask again.
	maxWaiting = 1000
)

// waiting is a node that has asked whether it could join here when this node was no member yet.
type waiting struct {
	node       identity.Node
	compatible bool
}

// initJoin answers whether a node could join here.
func (m *Machine) initJoin(from identity.Node, msg InitJoin) {
	if from.Name == m.self.Name {
		m.namesakeAsks(from)
		return
	}
	switch {
	case m.phase != member:
		m.wait(from, msg.Settings)
	case isGone(m.me().Status):
		m.send(from, InitJoinNack{})
	case m.gossip.Buried(from):
		m.drop(DropRemoved)
		m.send(from, Quarantined{})
	default:
		m.offer(from, m.compatible(from, msg.Settings))
	}
}

// wait declines for now, and remembers who asks: the nodes of a cluster start together, and would wait for nothing when
// this one is a member. A seed that asks could let nobody in either.
func (m *Machine) wait(from identity.Node, settings []Setting) {
	m.send(from, InitJoinNack{})
	if !m.waits(from) {
		m.remember(waiting{from, m.compatible(from, settings)})
	}
	if m.phase == seeking && m.join.first && slices.Contains(m.join.seeds, from.Name) {
		m.declined(from.Name)
	}
}

func (m *Machine) waits(n identity.Node) bool {
	return slices.ContainsFunc(m.waiting, func(w waiting) bool { return w.node == n })
}

func (m *Machine) remember(w waiting) {
	if len(m.waiting) < maxWaiting {
		m.waiting = append(m.waiting, w)
	}
}

// compatible reports whether a node's settings are this one's.
func (m *Machine) compatible(other identity.Node, settings []Setting) bool {
	differ := differences(m.cfg.Check, settings)
	if len(differ) > 0 {
		m.log(Warn, "a node with other settings asks to join", Attr{"member", other}, Attr{"settings", differ})
	}
	return len(differ) == 0
}

// offer tells a node that it could join here.
func (m *Machine) offer(to identity.Node, compatible bool) {
	m.send(to, InitJoinAck{Compatible: compatible, Settings: m.cfg.Check})
}

// offerAll tells those that wait that they could join now.
func (m *Machine) offerAll() {
	for _, w := range m.waiting {
		if !m.gossip.Buried(w.node) {
			m.offer(w.node, w.compatible)
		}
	}
	m.waiting = nil
}

// differences returns the keys of settings that are not the same.
func differences(a, b []Setting) (keys []string) {
	for x, y := range pairs(a, b, func(a, b *Setting) int { return strings.Compare(a.Key, b.Key) }) {
		switch {
		case x != nil && y != nil:
			if x.Value != y.Value {
				keys = append(keys, x.Key)
			}
		case x != nil && !x.Optional:
			keys = append(keys, x.Key)
		case y != nil && !y.Optional:
			keys = append(keys, y.Key)
		}
	}
	return keys
}

// initJoinAck is a seed's offer. The first one is taken.
func (m *Machine) initJoinAck(from identity.Node, msg InitJoinAck) {
	if m.phase != seeking || !slices.Contains(m.join.seeds, from.Name) {
		m.drop(DropUnexpected)
		return
	}
	differ := differences(m.cfg.Check, msg.Settings)
	if msg.Compatible && len(differ) == 0 {
		m.ask(from.Name)
		return
	}
	if m.s.IgnoreIncompatible {
		m.log(Warn, "the settings of this node differ from those of the cluster", Attr{"settings", differ})
		m.ask(from.Name)
		return
	}
	m.log(Error, "the settings of this node differ from those of the cluster", Attr{"settings", differ})
	m.stopFor(Incompatible, strings.Join(differ, ", "))
}

// initJoinNack is a seed that can't let anybody in. The first seed takes it for one that waits, too: it may have asked
// before this one ran. It compares the settings itself.
func (m *Machine) initJoinNack(from identity.Node) {
	switch {
	case m.phase != seeking || !slices.Contains(m.join.seeds, from.Name):
		m.drop(DropUnexpected)
	case m.join.first:
		if !m.waits(from) {
			m.remember(waiting{from, true})
		}
		m.declined(from.Name)
	}
}

// declined lets the first seed found a cluster if there is no other seed that could let it
// in, but not before another process with its name had time to answer.
func (m *Machine) declined(seed string) {
	if !slices.Contains(m.join.nacked, seed) {
		m.join.nacked = append(m.join.nacked, seed)
	}
	m.allDeclined()
}

func (m *Machine) allDeclined() {
	if len(m.join.nacked) == len(m.join.seeds) {
		m.timers[timerJoin] = max(m.now, m.join.since+claimWait)
	}
}

// joinAsked handles a node's wish to become a member.
func (m *Machine) joinAsked(from identity.Node, msg Join) {
	me := m.me()
	named := m.gossip.Named(from.Name)
	switch {
	case m.cache.closing, isGone(me.Status), m.cfg.VersionPending:
		m.turnAway(Info, "a node can't join now", Attr{"member", from}, Attr{"status", me.Status.String()})
		return
	case from.Name == m.self.Name:
		m.send(from, NameInUse{m.self})
		return
	case m.gossip.Buried(from):
		m.drop(DropRemoved)
		m.send(from, Quarantined{})
		return
	case m.gossip.Member(from) != nil:
		if last, known := m.welcomed[from]; !known || m.now-last >= welcomeAgain {
			m.sendWelcome(from) // the first one was lost
		}
		return
	case m.link.suspended:
		// This node may have been given up: whoever it lets in may be let into nothing, and whoever had the
		// name may live where it is still a member.
		m.turnAway(Info, "a node can't join now: this node does not know whether it is a member itself", Attr{"member", from})
		return
	case len(named) > 0:
		m.contest(from, named)
		return
	case len(m.gossip.Members()) >= MaxMembers:
		m.turnAway(Error, "the cluster is full", Attr{"member", from}, Attr{"members", MaxMembers})
		return
	}
	for i := range m.graves { // the name is in use again: whoever had it is gone
		if m.graves[i].node.Name == from.Name {
			m.graves[i].due = m.now
			m.soon(timerGrave, m.now)
		}
	}
	m.log(Info, "a node joins", Attr{"member", from}, Attr{"roles", strings.Join(msg.Roles, ",")}, Attr{"version", msg.Version.String()})
	m.lone = false // from now on its end would harm others
	m.change(Change{Put: []*Member{{Node: from, Status: Joining, UpNumber: NeverUp, Roles: msg.Roles, Version: msg.Version}}})
	m.sendWelcome(from)
}

// strange says that another member does not know this node, which gossips with
// it: who let this node in has crashed before it told anybody. As long as this node
// is not Up it asks again.
func (m *Machine) strange(from identity.Node) {
	if !m.asksAgain(from) {
		m.drop(DropUnexpected)
		return
	}
	m.send(identity.Node{Name: from.Name}, Join{m.cfg.Roles, m.cfg.Version})
}

// asksAgain reports whether this node, which is a member, asks another one to let it in
// all the same.
func (m *Machine) asksAgain(who identity.Node) bool {
	other, me := m.gossip.Member(who), m.me()
	return other != nil && !isGone(other.Status) && (me.Status == Joining || me.Status == WeaklyUp)
}

// turnAway logs why a node can't join: once in a while, for it asks again and again, and
// says itself that nobody lets it in.
func (m *Machine) turnAway(level Level, why string, attrs ...Attr) {
	if m.now >= m.away {
		m.away = m.now + awayInterval
		m.log(level, why, attrs...)
	}
}

// sendWelcome lets a node know that it is a member. Who was welcomed is remembered for as long as
// another wish of it is no reason to do so again: of a large cluster there is much to send.
func (m *Machine) sendWelcome(to identity.Node) {
	if m.now >= m.sweep {
		m.sweep = m.now + welcomeAgain
		maps.DeleteFunc(m.welcomed, func(_ identity.Node, last time.Duration) bool { return m.now-last >= welcomeAgain })
	}
	m.welcomed[to] = m.now
	m.encodedState()
	m.send(to, Welcome{State{m.digest(), encodeBitmap(m.gossip.seen), m.cache.body}})
}
