// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/membership"
)

var (
	chaosSeeds = flag.Uint64("chaos.seeds", 0, "how many seeds TestChaos and TestSurvivors run; 0 is the usual number")
	chaosSeed  = flag.Uint64("chaos.seed", 0, "the first of them")
)

// TestChaos lets everything go wrong at random, with the invariants of world.check after every
// step. Then all is mended, the dead are marked as down, and the living have to agree again.
func TestChaos(t *testing.T) {
	t.Parallel()
	var total membership.Counters
	count := cmp.Or(*chaosSeeds, seeds(12))
	for seed := *chaosSeed; seed < *chaosSeed+count; seed++ {
		c := &chaos{world: newWorld(t, seed), isolated: map[string]bool{}}
		c.cut = func(from, to string) bool {
			return c.isolated[from] != c.isolated[to] || from == c.deafFrom && to == c.deafTo
		}
		c.run(t, seed)
		for _, h := range c.hosts {
			total = sum(total, h.m.Counters())
		}
	}
	if count < 12 {
		return
	}
	for k := membership.Kind(1); k < membership.Kinds; k++ {
		if total.Received[k] == 0 {
			t.Errorf("%v was never received", k)
		}
	}
	for s := joining; s <= removed; s++ {
		if total.Became[s] == 0 {
			t.Errorf("no member became %v", s)
		}
	}
	for _, timeout := range []membership.Timeout{
		membership.TimeoutSeeds, membership.TimeoutJoin, membership.TimeoutFirstResponse, membership.TimeoutHeartbeat, membership.TimeoutName,
		membership.TimeoutEcho, membership.TimeoutSuspend, membership.TimeoutConvergence, membership.TimeoutLate,
	} {
		if total.TimedOut[timeout] == 0 {
			t.Errorf("time-out %v was never met", timeout)
		}
	}
}

func sum(a, b membership.Counters) membership.Counters {
	for i := range a.Received {
		a.Received[i] += b.Received[i]
	}
	for i := range a.Became {
		a.Became[i] += b.Became[i]
	}
	for i := range a.TimedOut {
		a.TimedOut[i] += b.TimedOut[i]
	}
	return a
}

type chaos struct {
	*world
	names            []string
	isolated         map[string]bool
	deafFrom, deafTo string
	story            []string
}

func (c *chaos) run(t *testing.T, seed uint64) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Fatalf("replay with -run TestChaos -chaos.seed=%d -chaos.seeds=1\n%s\n%s", seed, strings.Join(c.story, "\n"), c.describe())
		}
	}()
	c.delay = 20 * time.Millisecond
	if seed%2 == 0 {
		c.loss, c.double = 0.03, 0.02
	}
	c.names = names(3 + int(seed)%8)
	late := seed%5 == 1 // is the first one, for which the others wait
	for i, name := range c.names {
		if i > 0 || !late {
			c.restart(name)
		}
	}
	if late {
		c.world.run(6 * time.Second)
		c.restart(c.names[0])
	}
	c.run0(time.Duration(c.rand.IntN(30)) * time.Second)
	for range 12 {
		c.fault()
		c.run0(time.Duration(c.rand.IntN(20_000)) * time.Millisecond)
	}
	c.mend()
	c.tell("all is mended")
	if !c.until(4*time.Minute, c.settled) {
		t.Errorf("seed %d: the living do not agree", seed)
	}
}

func (c *chaos) tell(format string, args ...any) {
	c.story = append(c.story, fmt.Sprintf("%10v ", c.now)+fmt.Sprintf(format, args...))
}

// run0 advances the time and restarts nodes that have stopped on their own.
func (c *chaos) run0(d time.Duration) {
	c.world.run(d)
	for _, name := range c.names {
		if c.latest(name).dead && !c.split() && (name != c.names[0] || c.seedsAnswer()) {
			c.restart(name)
		}
	}
}

// seedsAnswer reports whether the first seed, if it starts now, finds the cluster that there is:
// otherwise it founds another, as it should.
func (c *chaos) seedsAnswer() bool {
	alone := true
	for _, h := range c.hosts {
		alone = alone && (h.dead || !h.m.Member())
	}
	for _, name := range c.names[1:] {
		if h := c.latest(name); !h.dead && h.m.Member() && !h.offline && !h.paused && !c.broker && !c.split() {
			return true
		}
	}
	return alone
}

func (c *chaos) split() bool { return len(c.isolated) > 0 || c.deafFrom != "" }

// latest returns the process with a name that lives, or the last one.
func (c *chaos) latest(name string) (last *host) {
	for _, h := range c.hosts {
		if h.node.Name == name && (last == nil || last.dead || !h.dead) {
			last = h
		}
	}
	return last
}

func (c *chaos) restart(name string) {
	h := c.start(name)
	c.tell("%v starts", h.node)
	h.do(membership.JoinSeeds{Seeds: c.names})
}

func (c *chaos) any() *host { return c.latest(c.names[c.rand.IntN(len(c.names))]) }

func (c *chaos) fault() {
	h := c.any()
	if first := c.latest(c.names[0]); !first.dead && !first.m.Member() {
		return // it must not be kept from the others, see seedsAnswer
	}
	switch c.rand.IntN(11) {
	case 0, 1:
		if !c.split() {
			c.tell("%v is killed", h.node)
			h.kill()
		}
	case 2:
		c.tell("%v is to leave", h.node)
		c.any().do(membership.Leave{Node: h.node})
	case 3:
		by := c.any()
		if bad := by.m.Gossip().Unreachable(by.node); len(bad) > 0 {
			c.tell("%v marks %v as down, which it finds unreachable", by.node, bad[0].Node)
			by.do(membership.DownNode{Node: bad[0].Node})
			break
		}
		c.tell("%v is marked as down", h.node)
		by.do(membership.DownNode{Node: h.node})
	case 4:
		c.tell("%v has a name that another wants", h.node)
		if !h.dead && h.m.Member() && !c.split() && !h.offline && !h.paused {
			other := c.start(h.node.Name)
			other.do(membership.JoinSeeds{Seeds: c.names})
			c.world.run(8 * time.Second)
		}
	case 5:
		for _, name := range c.names[:1+c.rand.IntN(len(c.names)-1)] {
			c.isolated[name] = true
		}
		c.tell("isolated: %v", len(c.isolated))
	case 6:
		clear(c.isolated)
		c.deafFrom, c.deafTo = h.node.Name, c.any().node.Name
		c.tell("nothing gets from %s to %s", c.deafFrom, c.deafTo)
	case 7:
		clear(c.isolated)
		c.deafFrom, c.deafTo = "", ""
		c.tell("the network is mended")
	case 8:
		h.offline = !h.offline
		c.tell("%v is offline: %t", h.node, h.offline)
	case 9:
		if h.paused {
			c.tell("%v goes on", h.node)
			h.unpause()
		} else if !h.dead {
			c.tell("%v is paused", h.node)
			h.pause()
		}
	case 10:
		c.broker = !c.broker
		c.tell("the broker is away: %t", c.broker)
	}
}

func (c *chaos) mend() {
	clear(c.isolated)
	c.deafFrom, c.deafTo, c.broker, c.loss = "", "", false, 0
	for _, h := range c.hosts {
		h.offline = false
		if h.paused {
			h.unpause()
		}
	}
}

// settled marks dead nodes as down, as an operator does, and reports whether the living nodes
// agree. It sends no command to a suspended node unless there are no others, because nodes that are
// unreachable for it need not be dead.
func (c *chaos) settled() bool {
	c.run1()
	var living, asked []*host
	for _, h := range c.hosts {
		if !h.dead {
			living = append(living, h)
			if h.m.Member() && !h.m.Suspended() {
				asked = append(asked, h)
			}
		}
	}
	if len(asked) == 0 {
		asked = living
	}
	for _, h := range c.hosts {
		for _, other := range asked {
			if h.dead && slices.ContainsFunc(other.m.Gossip().Unreachable(other.node), func(o *identity.Member) bool {
				return o.Node == h.node && o.Status != down && o.Status != exiting
			}) {
				other.do(membership.DownNode{Node: h.node})
				break
			}
		}
	}
	return len(living) == len(c.names) && c.agree(living...)
}

func (c *chaos) run1() {
	for _, name := range c.names {
		if c.latest(name).dead && (name != c.names[0] || c.seedsAnswer()) {
			c.restart(name)
		}
	}
}
