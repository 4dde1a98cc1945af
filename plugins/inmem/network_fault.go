// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem

import (
	"slices"
	"time"

	"github.com/refold-io/refold/transport"
)

// Fault is what befalls frames from one name to another. All faults that apply
// to a frame are taken together.
type Fault struct {
	// From and To are names. An empty one is any.
	From, To string
	// Lanes are the lanes it is about. None are all.
	Lanes []transport.Lane
	// Drop and Duplicate are the parts of frames, 0 to 1, that are lost and
	// that arrive twice.
	Drop, Duplicate float64
	// Delay is how long a frame takes, Jitter how much longer at most. With a
	// Jitter frames overtake each other.
	Delay, Jitter time.Duration
}

func (f *Fault) applies(p parcel) bool {
	return (f.From == "" || f.From == p.from) && (f.To == "" || f.To == p.to.Name) &&
		(len(f.Lanes) == 0 || slices.Contains(f.Lanes, p.lane))
}

// Inject lets a fault happen until remove is called.
func (n *Network) Inject(f Fault) (remove func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	added := &f
	n.faults = append(n.faults, added)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.faults = slices.DeleteFunc(n.faults, func(other *Fault) bool { return other == added })
	}
}

// CutOneWay loses all frames from some names to others until heal is called.
func (n *Network) CutOneWay(from, to []string) (heal func()) {
	var removes []func()
	for _, a := range from {
		for _, b := range to {
			if a != b {
				removes = append(removes, n.Inject(Fault{From: a, To: b, Drop: 1}))
			}
		}
	}
	return func() {
		for _, remove := range removes {
			remove()
		}
	}
}

// Partition loses all frames between two sides until heal is called.
func (n *Network) Partition(a, b []string) (heal func()) {
	there, back := n.CutOneWay(a, b), n.CutOneWay(b, a)
	return func() {
		there()
		back()
	}
}

// Pause holds back what a node sends and what is for it, as if its process had
// been stopped, until resume is called. Then all of it goes on.
func (n *Network) Pause(name string) (resume func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.paused[name] == nil {
		n.paused[name] = new([]parcel)
	}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		held := n.paused[name]
		if held == nil {
			return
		}
		delete(n.paused, name)
		for _, p := range *held {
			n.pass(p)
		}
		for node, c := range n.carriers {
			if node.Name == name {
				c.stir()
			}
		}
	}
}

// Disconnect takes a node off the network until reconnect is called: its carrier
// says so, can't send, and what is for it is lost.
func (n *Network) Disconnect(name string, err error) (reconnect func()) {
	n.connection(name, err)
	return func() { n.connection(name, nil) }
}

func (n *Network) connection(name string, err error) {
	n.mu.Lock()
	var told []*Carrier
	if n.away[name] = err; err == nil {
		delete(n.away, name)
	}
	for node, c := range n.carriers {
		if node.Name == name {
			told = append(told, c)
		}
	}
	n.mu.Unlock()
	for _, c := range told {
		c.connection(err)
	}
}

// fate says how often a frame arrives, and after how long. The lock is held.
func (n *Network) fate(p parcel) (copies int, delay time.Duration) {
	copies = 1
	for _, f := range n.faults {
		if !f.applies(p) {
			continue
		}
		if f.Drop > 0 && n.rand.Float64() < f.Drop {
			return 0, 0
		}
		if f.Duplicate > 0 && n.rand.Float64() < f.Duplicate {
			copies++
		}
		delay += f.Delay
		if f.Jitter > 0 {
			delay += time.Duration(n.rand.Int64N(int64(f.Jitter) + 1))
		}
	}
	return copies, delay
}
