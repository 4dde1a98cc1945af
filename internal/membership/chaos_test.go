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
	chaosSeeds = flag.Uint64("chaos.seeds", 0, "number of seeds that TestChaos and TestSurvivors run; 0 means the default")
	chaosSeed  = flag.Uint64("chaos.seed", 0, "the first seed")
)

// TestChaos injects random faults, and checks the invariants of host.check after every step. Then
// all faults end, and dead nodes are marked as down. The live nodes must agree again.
func TestChaos(t *testing.T) {
	t.Parallel()
	var total membership.Counters
	count := cmp.Or(*chaosSeeds, seeds(12))
	for seed := *chaosSeed; seed < *chaosSeed+count; seed++ {
		c := &chaos{world: newWorld(t, seed), isolated: map[string]bool{}}
		c.cut = func(from, to string) bool {
			return c.isolated[from] != c.isolated[to] || from == c.blockedFrom && to == c.blockedTo
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
			t.Errorf("no message %v was received", k)
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
			t.Errorf("the time-out %v never occurred", timeout)
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
	names                  []string
	isolated               map[string]bool
	blockedFrom, blockedTo string
	commandSuspended       bool
	log                    []string
}

func (c *chaos) run(t *testing.T, seed uint64) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Fatalf("replay with -run TestChaos -chaos.seed=%d -chaos.seeds=1\n%s\n%s", seed, strings.Join(c.log, "\n"), c.describe())
		}
	}()
	c.delay = 20 * time.Millisecond
	if seed%2 == 0 {
		c.loss, c.double = 0.03, 0.02
	}
	c.names = names(3 + int(seed)%8)
	late := seed%5 == 1 // the first seed starts late, and the others wait for it
	for i, name := range c.names {
		if i > 0 || !late {
			c.restart(name)
		}
	}
	if late {
		c.world.run(6 * time.Second)
		c.restart(c.names[0])
	}
	c.runAndRestart(time.Duration(c.rand.IntN(30)) * time.Second)
	for range 12 {
		c.fault()
		c.runAndRestart(time.Duration(c.rand.IntN(20_000)) * time.Millisecond)
	}
	c.repair()
	c.note("all faults have ended")
	if !c.until(2*time.Minute, c.settled) {
		c.note("suspended nodes get commands as well")
		c.commandSuspended = true
	}
	if !c.until(2*time.Minute, c.settled) {
		t.Errorf("seed %d: the live nodes do not agree", seed)
	}
}

func (c *chaos) note(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf("%10v ", c.now)+fmt.Sprintf(format, args...))
}

// runAndRestart advances the time and restarts nodes that have stopped.
func (c *chaos) runAndRestart(d time.Duration) {
	c.world.run(d)
	for _, name := range c.names {
		if c.latest(name).dead && !c.split() && (name != c.names[0] || c.seedsAnswer()) {
			c.restart(name)
		}
	}
}

// seedsAnswer reports whether the first seed, if it starts now, finds the existing cluster. A first
// seed that does not find the cluster founds another one, which is correct.
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

func (c *chaos) split() bool { return len(c.isolated) > 0 || c.blockedFrom != "" }

// latest returns the live process with a name, or the last one if none is alive.
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
	c.note("%v starts", h.node)
	h.do(membership.JoinSeeds{Seeds: c.names})
}

func (c *chaos) anyHost() *host { return c.latest(c.names[c.rand.IntN(len(c.names))]) }

func (c *chaos) fault() {
	h := c.anyHost()
	if first := c.latest(c.names[0]); !first.dead && !first.m.Member() {
		return // the first seed must reach the other nodes: see seedsAnswer
	}
	switch c.rand.IntN(11) {
	case 0, 1:
		if !c.split() {
			c.note("%v is killed", h.node)
			h.kill()
		}
	case 2:
		c.note("%v is asked to leave", h.node)
		c.anyHost().do(membership.Leave{Node: h.node})
	case 3:
		by := c.anyHost()
		if bad := by.m.Gossip().Unreachable(by.node); len(bad) > 0 {
			c.note("%v marks the unreachable %v as down", by.node, bad[0].Node)
			by.do(membership.DownNode{Node: bad[0].Node})
			break
		}
		c.note("%v is marked as down", h.node)
		by.do(membership.DownNode{Node: h.node})
	case 4:
		c.note("another process joins with the name of %v", h.node)
		if !h.dead && h.m.Member() && !c.split() && !h.offline && !h.paused {
			other := c.start(h.node.Name)
			other.do(membership.JoinSeeds{Seeds: c.names})
			c.world.run(8 * time.Second)
		}
	case 5:
		for _, name := range c.names[:1+c.rand.IntN(len(c.names)-1)] {
			c.isolated[name] = true
		}
		c.note("isolated: %v", len(c.isolated))
	case 6:
		clear(c.isolated)
		c.blockedFrom, c.blockedTo = h.node.Name, c.anyHost().node.Name
		c.note("messages from %s to %s are blocked", c.blockedFrom, c.blockedTo)
	case 7:
		clear(c.isolated)
		c.blockedFrom, c.blockedTo = "", ""
		c.note("the network is repaired")
	case 8:
		h.offline = !h.offline
		c.note("%v is offline: %t", h.node, h.offline)
	case 9:
		if h.paused {
			c.note("%v continues", h.node)
			h.unpause()
		} else if !h.dead {
			c.note("%v is paused", h.node)
			h.pause()
		}
	case 10:
		c.broker = !c.broker
		c.note("the broker is unavailable: %t", c.broker)
	}
}

func (c *chaos) repair() {
	clear(c.isolated)
	c.blockedFrom, c.blockedTo, c.broker, c.loss = "", "", false, 0
	for _, h := range c.hosts {
		h.offline = false
		if h.paused {
			h.unpause()
		}
	}
}

// settled marks dead nodes as down, as an operator does, and reports whether the live nodes agree.
// For two minutes it sends no command to a suspended node if there are other nodes. If the nodes do
// not agree until then, a suspended node may be waiting for the confirmation of a dead member that
// the other nodes have removed.
func (c *chaos) settled() bool {
	c.restartDead()
	var live, asked []*host
	for _, h := range c.hosts {
		if !h.dead {
			live = append(live, h)
			if h.m.Member() && (c.commandSuspended || !h.m.Suspended()) {
				asked = append(asked, h)
			}
		}
	}
	if len(asked) == 0 {
		asked = live
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
	return len(live) == len(c.names) && c.agree(live...)
}

// restartDead restarts the dead nodes whose restart cannot found a second cluster.
func (c *chaos) restartDead() {
	for _, name := range c.names {
		if c.latest(name).dead && (name != c.names[0] || c.seedsAnswer()) {
			c.restart(name)
		}
	}
}
