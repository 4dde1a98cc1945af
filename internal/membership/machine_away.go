// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

// Standing is what a node knows of its own place in the cluster, for those who decide who goes on.
type Standing uint8

// Where a node stands.
const (
	// Sure: it was never away for long, or others have vouched for it since, or one of those it can reach was
	// not away. It may decide.
	Sure Standing = iota
	// Cut: it does not hear itself. It must decide nothing.
	Cut
	// Doubtful: it was away for long, and so were all that it can reach. Those it can't reach may have given
	// them up one by one, and go on as ever fewer: which side is the larger one by this node's
	// view tells nothing. It must decide nothing.
	Doubtful
	// Together: it was away for long, and so were all that it can reach, but they all lost their links while all was
	// well, and so at about the same time. Those it can't reach have decided about all of them at once, if at all: it may
	// decide by a strategy that lets one of two sides go on, whenever they decide.
	Together
)

func (s Standing) String() string { return [...]string{"sure", "cut", "doubtful", "together"}[s] }

// Absence says in a Vouch whether who vouches was away itself.
type Absence uint8

// The numbers are those of the encoding and never change.
const (
	// Present: it was not away for long, and may host.
	Present Absence = iota
	// Away: it was, or it does not hear itself, so it does not know whether it is a member.
	Away
	// Halted: it was not, but hosts nothing as nobody has decided who goes on.
	Halted
	// AwayFromWell: it was away, once, and all was well when that began.
	AwayFromWell
)

// absence returns what this node says of itself.
func (m *Machine) absence() Absence {
	switch {
	case m.link.state != linkUp:
		return Away
	case m.link.gone && m.link.well:
		return AwayFromWell
	case m.link.gone:
		return Away
	case m.link.suspended:
		return Halted
	}
	return Present
}

// Standing returns what this node knows of its own place. It may change with each step.
func (m *Machine) Standing() Standing {
	switch {
	case m.link.state == linkDown:
		return Cut
	case !m.link.gone:
		return Sure
	}
	together := m.link.well
	for i, o := range m.gossip.Members() {
		if o.Node == m.self || isGone(o.Status) || m.cache.unreachable.has(i) {
			continue
		}
		at, found := m.doubts.find(o.Node)
		if !found || !m.doubts.by[at].known {
			together = false
			continue
		}
		switch said := m.doubts.by[at].absence; said {
		case Present, Halted:
			if countsForConvergence(o.Status) {
				return Sure
			}
			together = false
		case Away, AwayFromWell:
			together = together && said == AwayFromWell
		}
	}
	if together {
		return Together
	}
	return Doubtful
}

// isGone notes that this node was silent for so long that others may have given it up.
func (m *Machine) isGone() {
	if m.phase == member {
		m.link.gone = true
	}
}

// isBack lets a node that was away for long wait for the others, but not forever.
func (m *Machine) isBack() {
	if m.link.gone && m.s.GiveUpAfter > 0 {
		m.again(timerGiveUp, m.s.GiveUpAfter)
	}
}

// isSure notes that this node is known to be a member.
func (m *Machine) isSure() {
	m.link.gone = false
	m.timers[timerGiveUp] = Never
}

// giveUp ends a node of which nobody who was not away has said that it is still a member, and nobody has decided about those
// who are missing: another one can be started in its place, and it could wait for those who never come back.
func (m *Machine) giveUp() {
	me := m.me()
	switch {
	case !m.link.gone || me.Status == Down:
	case m.Standing() == Sure:
		m.isBack()
	default:
		m.count.TimedOut[TimeoutDoubt]++
		m.log(Error, "nobody knows whether this node, which was away for long, is still a member: it ends", Attr{"for", m.s.GiveUpAfter})
		m.down(m.self)
	}
}
