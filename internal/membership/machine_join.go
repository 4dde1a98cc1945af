// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

// join is how a node gets in.
type join struct {
	wanted bool
	seeds  []string // others that are asked, in order
	first  bool     // this node is the first of the seeds, or the only one: it may found a cluster
	name   string   // who is asked to be let in
	direct bool     // it was named by the user
	nacked []string
	since  time.Duration // since when they are asked without a break
	asked  time.Duration // when name was asked first
}

const (
	// seedRetry is the time between two questions to the seeds: some don't run yet, or can't let anybody in yet.
	seedRetry = time.Second
	// joinAgain is the time between two wishes to be let in by one node: it may first
	// have to find out that whoever has the name is gone, and does not say when it has.
	joinAgain = time.Second
	// claimWait is for how long it waits, at the least, for another process with its
	// name to answer before it founds a cluster.
	claimWait = 500 * time.Millisecond
)

// CheckSeeds returns an error that matches identity.ErrInvalid if one of the
// names can't be that of a node.
func CheckSeeds(seeds []string) error {
	for _, name := range seeds {
		if err := identity.CheckName(name); err != nil {
			return err
		}
	}
	return nil
}

// joinSeeds begins to join through seeds.
func (m *Machine) joinSeeds(seeds []string) {
	if !m.mayJoin() {
		return
	}
	if err := CheckSeeds(seeds); err != nil || len(seeds) == 0 {
		m.log(Error, "no such seeds", Attr{"seeds", seeds}, Attr{"error", err})
		return
	}
	m.join = join{wanted: true, first: seeds[0] == m.self.Name}
	for _, name := range seeds {
		if name != m.self.Name && !slices.Contains(m.join.seeds, name) {
			m.join.seeds = append(m.join.seeds, name)
		}
	}
	if m.s.StopJoiningAfter > 0 {
		m.again(timerJoining, m.s.StopJoiningAfter)
	}
	m.beginJoin()
}

// joinNode begins to join the cluster of one node.
func (m *Machine) joinNode(name string) {
	if !m.mayJoin() {
		return
	}
	if err := identity.CheckName(name); err != nil {
		m.log(Error, "no such node", Attr{"error", err})
		return
	}
	m.join = join{wanted: true, direct: true, name: name}
	if name == m.self.Name { // which is to be the only seed
		m.join = join{wanted: true, first: true}
	}
	m.beginJoin()
}

func (m *Machine) mayJoin() bool {
	if m.phase == member || m.join.wanted {
		m.log(Warn, "this node joins already, or has joined")
		return false
	}
	return true
}

// beginJoin begins to join, or to do so anew. Nobody is asked before the node
// hears itself: while the broker is away silence says nothing, and a seed would
// found a cluster of its own.
func (m *Machine) beginJoin() {
	m.phase = idle
	m.timers[timerJoin] = Never
	if m.timers[timerEcho] == Never {
		m.echo()
	}
	switch {
	case m.cfg.VersionPending:
	case m.link.state != linkUp:
	case m.join.direct:
		m.ask(m.join.name)
	default:
		m.phase = seeking
		m.join.nacked, m.join.since = nil, m.now
		m.askSeeds()
	}
}

// askSeeds asks all seeds that have not declined.
func (m *Machine) askSeeds() {
	for _, name := range m.join.seeds {
		if !m.join.first || !slices.Contains(m.join.nacked, name) {
			m.send(identity.Node{Name: name}, InitJoin{m.cfg.Check})
		}
	}
	m.again(timerJoin, min(seedRetry, max(time.Millisecond, m.join.since+m.s.SeedNodeTimeout-m.now)))
	if m.join.first {
		m.askNamesake()
		m.allDeclined()
	}
}

// ask asks a node to be let in.
func (m *Machine) ask(name string) {
	m.phase, m.join.name, m.join.asked = trying, name, m.now
	m.askAgain()
}

// askAgain asks the same node, until it is time to begin anew.
func (m *Machine) askAgain() {
	m.send(identity.Node{Name: m.join.name}, Join{m.cfg.Roles, m.cfg.Version})
	m.again(timerJoin, joinAgain)
	if m.s.RetryJoinAfter > 0 {
		m.soon(timerJoin, m.join.asked+m.s.RetryJoinAfter)
	}
}

// joinLate is called when nobody has answered in time.
func (m *Machine) joinLate() {
	switch {
	case m.phase == trying && (m.s.RetryJoinAfter < 0 || m.now < m.join.asked+m.s.RetryJoinAfter):
		m.askAgain()
	case m.phase == trying:
		m.count.TimedOut[TimeoutJoin]++
		m.log(Warn, "nobody has let this node in", Attr{"asked", m.join.name})
		m.beginJoin()
	case m.phase != seeking:
	case m.link.state != linkUp || m.now-m.link.heard > 2*m.s.HeartbeatInterval:
		m.join.since = m.now // silence says nothing
		m.again(timerJoin, seedRetry)
		if m.join.first {
			m.askSeeds()
		}
	case m.join.first && len(m.join.nacked) == len(m.join.seeds):
		m.joinSelf()
	case m.join.first && m.now-m.join.since >= m.s.SeedNodeTimeout:
		m.count.TimedOut[TimeoutSeeds]++
		m.joinSelf()
	case m.join.first:
		m.askSeeds()
	default:
		if m.now-m.join.since >= m.s.SeedNodeTimeout {
			m.count.TimedOut[TimeoutSeeds]++
			m.log(Warn, "no seed lets this node in", Attr{"seeds", m.join.seeds}, Attr{"after", m.s.SeedNodeTimeout})
			m.join.since = m.now
		}
		m.askSeeds()
	}
}

// joinTooLate is called when no cluster was found in all the time there was.
func (m *Machine) joinTooLate() {
	if m.phase != member {
		m.count.TimedOut[TimeoutJoining]++
		m.log(Error, "no cluster was found", Attr{"after", m.s.StopJoiningAfter})
		m.stop(Unsuccessful)
	}
}

// joinSelf founds a cluster. The founder is Up at once, and so the oldest.
func (m *Machine) joinSelf() {
	m.log(Info, "this node founds a cluster")
	me := &Member{Node: m.self, Status: Joining, UpNumber: NeverUp, Roles: m.cfg.Roles, Version: m.cfg.Version}
	m.become(func() { m.change(Change{Put: []*Member{me}}) })
	if m.cache.leader == m.self {
		m.leadConverged()
	}
	m.lone = true
	m.claim()
	m.offerAll()
}

// become makes this node a member, with what it knows from then on.
func (m *Machine) become(know func()) {
	m.phase, m.join.wanted = member, false
	m.timers[timerJoin], m.timers[timerJoining] = Never, Never
	m.live(Joined)
	know()
	m.remonitor()
	m.again(timerHeartbeat, m.s.InitialDelay)
	m.again(timerGossip, m.s.InitialDelay)
	m.again(timerReaper, m.s.InitialDelay)
	m.again(timerLeader, m.s.InitialDelay)
}

// asks reports whether a node with a name is asked to let this node in.
func (m *Machine) asks(name string) bool {
	return m.phase == seeking && slices.Contains(m.join.seeds, name) || m.phase == trying && m.join.name == name
}

// setVersion supplies the version that was promised.
func (m *Machine) setVersion(v Version) {
	if !m.cfg.VersionPending {
		return
	}
	m.cfg.Version, m.cfg.VersionPending = v, false
	if m.join.wanted {
		m.beginJoin()
	}
}

// welcome is the answer to a Join.
func (m *Machine) welcome(from identity.Node, w Welcome) {
	if m.phase != trying || from.Name != m.join.name {
		m.drop(DropUnexpected)
		return
	}
	g, err := w.Gossip(Gossip{})
	switch {
	case err != nil:
		m.drop(DropMalformed)
		m.log(Warn, "a welcome can't be read", Attr{"from", from}, Attr{"error", err})
		return
	case g.Member(m.self) == nil || g.Member(from) == nil:
		m.drop(DropUnknown)
		return
	}
	m.log(Info, "this node was let in", Attr{"by", from}, Attr{"members", len(g.Members())})
	m.become(func() { m.adopt(g) })
	m.sendState(from)
	m.offerAll()
}
