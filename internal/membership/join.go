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
