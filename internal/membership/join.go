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

type join struct {
	wanted bool
	seeds  []string // other seeds to ask, in order
	first  bool     // this node is the first seed, or the only one: it may found a cluster
	name   string   // the node that receives the join requests
	direct bool     // the user chose the node
	nacked []string
	since  time.Duration // since when requests are sent without interruption
	asked  time.Duration // when name was asked first
}

const (
	// seedRetry is the time between two requests to the seeds: some may not run yet, or cannot
	// accept nodes yet.
	seedRetry = time.Second
	// joinAgain is the time between two join requests to one node. That node may first have to
	// check whether the previous owner of the name is dead. It does not report the end of this
	// check.
	joinAgain = time.Second
	// claimWait is the minimum time that a node waits for another process with its name to reply
	// before it founds a cluster.
	claimWait = 500 * time.Millisecond
)

// CheckSeeds returns an error that matches identity.ErrInvalid if a seed is not a valid name.
func CheckSeeds(seeds []string) error {
	for _, name := range seeds {
		if err := identity.CheckName(name); err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) joinSeeds(seeds []string) {
	if !m.mayJoin() {
		return
	}
	if err := CheckSeeds(seeds); err != nil || len(seeds) == 0 {
		m.log(Error, "join: invalid seeds", Attr{"seeds", seeds}, Attr{"error", err})
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

func (m *Machine) joinNode(name string) {
	if !m.mayJoin() {
		return
	}
	if err := identity.CheckName(name); err != nil {
		m.log(Error, "join: invalid node name", Attr{"error", err})
		return
	}
	m.join = join{wanted: true, direct: true, name: name}
	if name == m.self.Name { // this node is the only seed
		m.join = join{wanted: true, first: true}
	}
	m.beginJoin()
}

func (m *Machine) mayJoin() bool {
	if m.phase == member || m.join.wanted {
		m.log(Warn, "join: node is already joining or has joined")
		return false
	}
	return true
}

// beginJoin starts or restarts joining. The node sends no requests before it receives its own
// heartbeats. While the broker is unavailable, missing replies do not prove that no cluster exists,
// and the first seed would found a second cluster.
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
		m.phase = askingSeeds
		m.join.nacked, m.join.since = nil, m.now
		m.askSeeds()
	}
}

// askSeeds sends requests to the seeds. The first seed omits seeds that have declined.
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

func (m *Machine) ask(name string) {
	m.phase, m.join.name, m.join.asked = joining, name, m.now
	m.askAgain()
}

// askAgain repeats the join request until joining restarts.
func (m *Machine) askAgain() {
	m.send(identity.Node{Name: m.join.name}, Join{m.cfg.Roles, m.cfg.Version})
	m.again(timerJoin, joinAgain)
	if m.s.RetryJoinAfter > 0 {
		m.soon(timerJoin, m.join.asked+m.s.RetryJoinAfter)
	}
}

func (m *Machine) joinLate() {
	switch {
	case m.phase == joining && (m.s.RetryJoinAfter < 0 || m.now < m.join.asked+m.s.RetryJoinAfter):
		m.askAgain()
	case m.phase == joining:
		m.count.TimedOut[TimeoutJoin]++
		m.log(Warn, "join: no reply to the join request", Attr{"asked", m.join.name})
		m.beginJoin()
	case m.phase != askingSeeds:
	case m.link.state != linkUp || m.now-m.link.heard > 2*m.s.HeartbeatInterval:
		m.join.since = m.now // while the broker is unavailable, missing replies prove nothing
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
			m.log(Warn, "join: no seed has accepted this node", Attr{"seeds", m.join.seeds}, Attr{"after", m.s.SeedNodeTimeout})
			m.join.since = m.now
		}
		m.askSeeds()
	}
}

func (m *Machine) joinTooLate() {
	if m.phase != member {
		m.count.TimedOut[TimeoutJoining]++
		m.log(Error, "join: no cluster was found", Attr{"after", m.s.StopJoiningAfter})
		m.stop(Unsuccessful)
	}
}

func (m *Machine) joinSelf() {
	m.log(Info, "join: founding a new cluster")
	me := &identity.Member{Node: m.self, Status: identity.Joining, UpNumber: identity.NeverUp, Roles: m.cfg.Roles, Version: m.cfg.Version}
	m.become(func() { m.change(Change{Put: []*identity.Member{me}}) })
	if m.cache.leader == m.self {
		m.leadConverged()
	}
	m.lone = true
	m.claim()
	m.offerAll()
}

func (m *Machine) become(know func()) {
	m.phase, m.join.wanted, m.known = member, false, m.now
	m.timers[timerJoin], m.timers[timerJoining] = Never, Never
	m.live(Joined)
	know()
	m.remonitor()
	m.again(timerHeartbeat, m.s.InitialDelay)
	m.again(timerGossip, m.s.InitialDelay)
	m.again(timerReaper, m.s.InitialDelay)
	m.again(timerLeader, m.s.InitialDelay)
}

func (m *Machine) setVersion(v identity.Version) {
	if !m.cfg.VersionPending {
		return
	}
	m.cfg.Version, m.cfg.VersionPending = v, false
	if m.join.wanted {
		m.beginJoin()
	}
}

func (m *Machine) welcome(from identity.Node, w Welcome) {
	if m.phase != joining || from.Name != m.join.name {
		m.drop(DropUnexpected)
		return
	}
	g, err := w.Gossip(Gossip{})
	switch {
	case err != nil:
		m.drop(DropMalformed)
		m.logCaused(Warn, "join: cannot decode the welcome", Attr{"from", from}, Attr{"error", err})
		return
	case g.Member(m.self) == nil || g.Member(from) == nil:
		m.drop(DropUnknown)
		return
	}
	if number := m.tooFarAhead(g); number != "" {
		m.drop(DropAhead)
		m.logCaused(Warn, "join: welcome with a number that cannot be reached yet", Attr{"from", from}, Attr{"number", number})
		return
	}
	m.log(Info, "join: accepted by the cluster", Attr{"by", from}, Attr{"members", len(g.Members())})
	m.become(func() { m.adopt(g) })
	m.sendState(from)
	m.offerAll()
}

const (
	// welcomeAgain is the time after which a node that repeats its request receives another
	// welcome. The node repeats the request every second, and with many joining nodes a welcome
	// takes longer than a second.
	welcomeAgain = 3 * time.Second
	awayInterval = 5 * time.Second
	// maxWaiting limits how many waiting nodes are remembered. Further nodes repeat their requests.
	maxWaiting = 1000
)

type waiting struct {
	node       identity.Node
	compatible bool
}

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
	case m.gossip.Removed(from):
		m.drop(DropRemoved)
		m.send(from, Quarantined{})
	default:
		m.offer(from, m.compatible(from, msg.Settings))
	}
}

// wait declines for now and remembers the node. The nodes of a cluster start together, and a
// remembered node receives an offer as soon as this node is a member. If the first seed receives a
// request of another seed, it counts that seed as declined, because that seed cannot accept nodes
// either.
func (m *Machine) wait(from identity.Node, settings []Setting) {
	m.send(from, InitJoinNack{})
	if !m.waits(from) {
		m.remember(waiting{from, m.compatible(from, settings)})
	}
	if m.phase == askingSeeds && m.join.first && slices.Contains(m.join.seeds, from.Name) {
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

func (m *Machine) compatible(other identity.Node, settings []Setting) bool {
	differ := differences(m.cfg.Check, settings)
	if len(differ) > 0 {
		m.logCaused(Warn, "join: request from a node with different settings", Attr{"member", other}, Attr{"settings", differ})
	}
	return len(differ) == 0
}

func (m *Machine) offer(to identity.Node, compatible bool) {
	m.send(to, InitJoinAck{Compatible: compatible, Settings: m.cfg.Check})
}

func (m *Machine) offerAll() {
	for _, w := range m.waiting {
		if !m.gossip.Removed(w.node) {
			m.offer(w.node, w.compatible)
		}
	}
	m.waiting = nil
}

func differences(a, b []Setting) (keys []string) {
	for x, y := range Pairs(a, b, func(a, b *Setting) int { return strings.Compare(a.Key, b.Key) }) {
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

// initJoinAck handles a seed's offer. The first offer is accepted.
func (m *Machine) initJoinAck(from identity.Node, msg InitJoinAck) {
	if m.phase != askingSeeds || !slices.Contains(m.join.seeds, from.Name) {
		m.drop(DropUnexpected)
		return
	}
	differ := differences(m.cfg.Check, msg.Settings)
	switch {
	case msg.Compatible && len(differ) == 0:
		m.ask(from.Name)
	case m.s.IgnoreIncompatible:
		m.log(Warn, "join: settings differ from those of the cluster", Attr{"settings", differ})
		m.ask(from.Name)
	default:
		m.log(Error, "join: settings differ from those of the cluster", Attr{"settings", differ})
		m.stopFor(Incompatible, strings.Join(differ, ", "))
	}
}

// initJoinNack handles the reply of a seed that cannot accept nodes. The first seed remembers the
// declining seed as waiting, because that seed may have sent its request before this node ran. The
// declining seed compares the settings itself.
func (m *Machine) initJoinNack(from identity.Node) {
	if m.phase != askingSeeds || !slices.Contains(m.join.seeds, from.Name) {
		m.drop(DropUnexpected)
	} else if m.join.first {
		if !m.waits(from) {
			m.remember(waiting{from, true})
		}
		m.declined(from.Name)
	}
}

// declined lets the first seed found a cluster if no other seed can accept the first seed. Before
// that, another process with the same name has at least claimWait to reply.
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

func (m *Machine) joinAsked(from identity.Node, msg Join) {
	me := m.me()
	named := m.gossip.Named(from.Name)
	switch {
	case m.cache.closing, isGone(me.Status), m.cfg.VersionPending:
		m.logCaused(Info, "join: request declined for now", Attr{"member", from}, Attr{"status", me.Status.String()})
		return
	case from.Name == m.self.Name:
		m.send(from, NameInUse{m.self})
		return
	case m.gossip.Removed(from):
		m.drop(DropRemoved)
		m.send(from, Quarantined{})
		return
	case m.gossip.Member(from) != nil:
		if last, known := m.welcomed[from]; !known || m.now-last >= welcomeAgain {
			m.sendWelcome(from) // the first welcome was lost
		}
		return
	case m.link.suspended:
		// Other members may have downed this node. If this node accepted another node, these
		// members would not receive the change, and the previous owner of the name may be alive
		// among them.
		m.logCaused(Info, "join: request declined, the membership of this node is not confirmed", Attr{"member", from})
		return
	case len(named) > 0:
		m.contest(from, named)
		return
	case len(m.gossip.Members()) >= MaxMembers:
		m.logCaused(Error, "join: request declined, the cluster is full", Attr{"member", from}, Attr{"members", MaxMembers})
		return
	}
	for i := range m.removed { // the name is in use again, so its previous owner is dead
		if m.removed[i].node.Name == from.Name {
			m.removed[i].due = m.now
			m.soon(timerGrave, m.now)
		}
	}
	m.log(Info, "node is joining", Attr{"member", from}, Attr{"roles", strings.Join(msg.Roles, ",")}, Attr{"version", msg.Version.String()})
	m.lone = false // from now on the end of this node would affect other nodes
	m.change(Change{Put: []*identity.Member{{Node: from, Status: identity.Joining, UpNumber: identity.NeverUp, Roles: msg.Roles, Version: msg.Version}}})
	m.sendWelcome(from)
}

// stranger handles a report from another member: this node sends gossip to that member, but that
// member's state does not contain this node. The member that accepted this node crashed before it
// propagated the change. If this node was never Up, it repeats its join request, even if it is
// leaving: the other members then learn that it leaves, and let it end in order.
func (m *Machine) stranger(from identity.Node) {
	if !m.asksAgain(from) {
		m.drop(DropUnexpected)
		return
	}
	m.send(identity.Node{Name: from.Name}, Join{m.cfg.Roles, m.cfg.Version})
}

// asksAgain reports whether this node, although it is a member, sends another join request to a
// member.
func (m *Machine) asksAgain(peer identity.Node) bool {
	other, me := m.gossip.Member(peer), m.me()
	return other != nil && !isGone(other.Status) && me.UpNumber == identity.NeverUp && !isGone(me.Status)
}

// forgottenAfter is how long a leaving node waits for a member that knows it. A member that knows it
// sends gossip several times in this time.
const forgottenAfter = 20 * time.Second

// isForgotten reports whether this node leaves before it was Up and no member knows it: the members
// that knew it crashed, or no member accepts its join request any more. No member waits for such a
// node, so it may end.
func (m *Machine) isForgotten() bool {
	me := m.me()
	return me.Status == identity.Leaving && me.UpNumber == identity.NeverUp && m.now-m.known >= forgottenAfter && len(m.gossip.Members()) > 1
}

// logCaused logs a line that a message of another node causes. It limits the rate of each line,
// because the node can repeat its message at any rate.
func (m *Machine) logCaused(level Level, why string, attrs ...Attr) {
	if m.now >= m.quiet[why] {
		m.quiet[why] = m.now + awayInterval
		m.log(level, why, attrs...)
	}
}

// sendWelcome sends the state to an accepted node. The node is remembered for welcomeAgain, so that
// a repeated request causes no other welcome: in a large cluster the state is large.
func (m *Machine) sendWelcome(to identity.Node) {
	if m.now >= m.sweep {
		m.sweep = m.now + welcomeAgain
		maps.DeleteFunc(m.welcomed, func(_ identity.Node, last time.Duration) bool { return m.now-last >= welcomeAgain })
	}
	m.welcomed[to] = m.now
	m.encodedState()
	m.send(to, Welcome{State{m.digest(), encodeBitmap(m.gossip.seen), m.cache.body}})
}
