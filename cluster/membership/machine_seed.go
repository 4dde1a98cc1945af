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
)

// initJoin answers whether a node could join here.
func (m *Machine) initJoin(from identity.Node, msg InitJoin) {
	if from.Name == m.self.Name {
		m.namesakeAsks(from)
		return
	}
	if m.phase != member || m.me().Status.dead() {
		m.send(from, InitJoinNack{})
		return
	}
	if m.gossip.Buried(from) {
		m.drop(DropRemoved)
		m.send(from, Quarantined{})
		return
	}
	differ := differences(m.cfg.Check, msg.Settings)
	if len(differ) > 0 {
		m.log(Warn, "a node with other settings asks to join", Attr{"member", from}, Attr{"settings", differ})
	}
	m.send(from, InitJoinAck{Compatible: len(differ) == 0, Settings: m.cfg.Check})
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

// initJoinNack is a seed that can't let anybody in.
func (m *Machine) initJoinNack(from identity.Node) {
	if m.phase != seeking || !slices.Contains(m.join.seeds, from.Name) {
		m.drop(DropUnexpected)
		return
	}
	if !slices.Contains(m.join.nacked, from.Name) {
		m.join.nacked = append(m.join.nacked, from.Name)
	}
	if m.join.first {
		m.allDeclined()
	} else {
		m.soon(timerJoin, m.now+seedRetry)
	}
}

// allDeclined lets the first seed found a cluster if there is no other seed that could let it
// in, but not before another process with its name had time to answer.
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
	case m.cache.closing, me.Status.dead(), m.cfg.VersionPending:
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
	return other != nil && !other.Status.dead() && (me.Status == Joining || me.Status == WeaklyUp)
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
