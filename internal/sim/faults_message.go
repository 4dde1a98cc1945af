// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/sim/env"
	"github.com/refold-io/refold/internal/singleton"
)

func forgedHandOver(c *cluster) bool {
	var oldest *membership.Member
	by := c.any()
	if by == nil {
		return false
	}
	for _, m := range by.m.Gossip().Members() {
		if m.Status == membership.Up && (oldest == nil || m.OlderThan(oldest)) {
			oldest = m
		}
	}
	if oldest == nil {
		return false
	}
	c.w.Tell("FAULT: %v is asked to let %v leave, and others answer in its name", by.p.Node(), oldest.Node)
	c.leaving[oldest.Node] = true
	by.tell(node.Membership{Input: membership.Leave{Node: oldest.Node}})
	for i := range 200 {
		c.w.After(time.Duration(i)*50*time.Millisecond, c.forge)
	}
	return true
}

func (c *cluster) forge() {
	for _, h := range c.living() {
		me := h.m.Gossip().Member(h.p.Node())
		for _, s := range h.m.Singletons() {
			if s.State != singleton.BecomingOldest || me == nil {
				continue
			}
			for _, m := range h.m.Gossip().Members() {
				if m.Status != membership.Up || !me.OlderThan(m) {
					continue
				}
				done := singleton.Message{Kind: singleton.HandOverDone, Singleton: s.Name, Hosted: true, Round: 1 + c.w.Rand.Uint64N(3)}
				msg := env.Message{From: m.Node, To: h.p.Node(), Kind: link.Kind(node.KindSingleton), Data: singleton.AppendMessage(nil, done)}
				c.hit("node", "forged hand-over")
				h.p.Do(func() { h.received(msg) })
				break
			}
		}
	}
}

func stray(c *cluster) bool {
	c.w.Network.Stray = 1
	c.w.Tell("FAULT: messages for earlier incarnations come to the next")
	return true
}

func garbage(c *cluster) bool {
	from, to := c.any(), c.any()
	if from == nil || from == to {
		return false
	}
	c.w.Tell("FAULT: %v sends garbage to %v", from.p.Node(), to.p.Node())
	for range 20 {
		data := make([]byte, c.w.Rand.IntN(200))
		for i := range data {
			data[i] = byte(c.w.Rand.Uint32()) //nolint:gosec // any byte
		}
		kind := link.Kind(c.w.Rand.IntN(int(node.KindForwarded))) //nolint:gosec // a few
		// What happens to be a message is no garbage: it is believed, and who reads that it is quarantined goes. Two bytes are
		// enough for that, since a higher minor version may add any.
		if msg, err := membership.DecodeMessage(data); err == nil {
			c.w.Tell("it would be a message: %v", membership.KindOf(msg))
			continue
		}
		m := env.Message{From: from.p.Node(), To: to.p.Node(), Kind: kind, Data: data}
		to.p.Do(func() { to.received(m) })
	}
	return true
}
