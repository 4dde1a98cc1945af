// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/binary"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/sim/env"
)

// maxStopping is the longest that an instance takes to end. A node that was paused and given up may
// overlap with its successor for less than a second, so it has to be less.
const maxStopping = 800 * time.Millisecond

// begin starts an instance.
func (h *host) begin(i node.Instance) {
	h.c.w.Tell("%v: %s starts", h.p.Node(), i.Singleton)
	if old := h.instances[i.Singleton]; old != nil {
		h.violate("instances-in-turn", "instance %d of %s starts while %d runs", i.Nr, i.Singleton, old.nr)
	}
	h.instances[i.Singleton] = &instance{name: i.Singleton, nr: i.Nr, since: h.c.w.Now(), heard: map[identity.Node]uint64{}}
	h.c.hit("instance", "started")
	downHostsNothing(h, i.Singleton)
	oneInstance(h.c, i.Singleton)
	if i.Singleton == coordination {
		h.p.After(0, func() {
			if running := h.instances[coordination]; running != nil && running.nr == i.Nr && !running.stopping {
				h.site.preside()
			}
		})
	}
}

// stop asks an instance to end, which takes a while.
func (h *host) stop(i node.Instance) {
	running := h.instances[i.Singleton]
	if running == nil || running.nr != i.Nr {
		h.violate("instances-in-turn", "instance %d of %s is stopped, and does not run", i.Nr, i.Singleton)
		return
	}
	h.c.w.Tell("%v: %s is asked to end", h.p.Node(), i.Singleton)
	running.stopping = true
	if i.Singleton == coordination {
		h.site.retire(func() { h.p.After(0, func() { h.hasEnded(i, running) }) })
		return
	}
	h.p.After(h.c.between(time.Millisecond, maxStopping), func() { h.hasEnded(i, running) })
}

// hasEnded takes note that an instance has ended.
func (h *host) hasEnded(i node.Instance, running *instance) {
	if h.instances[i.Singleton] == running {
		delete(h.instances, i.Singleton)
		h.c.w.Tell("%v: %s has ended", h.p.Node(), i.Singleton)
		h.c.hit("instance", "stopped")
		h.step(node.InstanceEnded{Instance: i})
		h.maybeEnd()
	}
}

// talk sends numbered messages to a singleton, now and then.
func (h *host) talk(name string) {
	h.p.After(h.c.between(100*time.Millisecond, 6*time.Second), func() {
		if h.stopped != 0 {
			return
		}
		for range 1 + h.c.w.Rand.IntN(3) {
			h.serial++
			h.step(node.Forward{Singleton: name, Message: h.serial})
		}
		h.c.hit("proxied", "sent")
		h.talk(name)
	})
}

// forward carries a message to an instance.
func (h *host) forward(f node.Forwarded) {
	data := binary.LittleEndian.AppendUint64(nil, f.Message)
	data = append(data, f.Singleton...)
	if f.To == h.p.Node() {
		h.p.After(0, func() {
			h.forwarded(env.Message{From: h.p.Node(), To: f.To, Data: data})
		})
		return
	}
	if !h.cut[f.To] {
		h.p.Send(f.To, link.Data, link.Kind(node.KindForwarded), data)
	}
}

// forwarded hands a message to the instance, if it is here.
func (h *host) forwarded(m env.Message) {
	if len(m.Data) < 8 || h.cut[m.From] || m.To != h.p.Node() {
		return
	}
	serial := binary.LittleEndian.Uint64(m.Data)
	i := h.instances[string(m.Data[8:])]
	if i == nil {
		h.c.hit("proxied", "nobody there")
		return
	}
	h.c.hit("proxied", "received")
	onceAndInOrder(h, m.From, i, serial)
}
