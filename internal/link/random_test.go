// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/testkit/effort"
)

// On an unreliable network, messages arrive at most once and in order, and the unconsumed bytes
// stay below the window. Once the network works again, all credit is restored and all messages
// arrive.
func TestRandomNetworks(t *testing.T) {
	t.Parallel()
	seeds := effort.Count[uint64](15, 40, 5000)
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 7))
		n := &network{t: t, r: r, seed: seed}
		change := func(c *link.Config) {
			c.MaxFrame = []int{link.MinFrame, 10_000, 1 << 20}[r.IntN(3)]
			c.MaxMessage, c.Window, c.MaxQueue = 100_000, 1<<20, 500_000
		}
		n.ends = [2]*end{open(t, alice, change), open(t, bob, change)}
		for range 400 {
			n.step(true)
		}
		n.heal()
		if t.Failed() {
			t.Fatalf("failed with seed %d", seed)
		}
	}
}

type network struct {
	t    *testing.T
	r    *rand.Rand
	seed uint64
	ends [2]*end
	// next are the next numbers to send. seen are the highest received numbers. held are the
	// unconsumed costs.
	next, seen [2][link.Lanes]uint64
	held       [2][link.Lanes][]int
	flying     [2][link.Lanes][][]byte
	arrived    int
}

func (n *network) step(faults bool) {
	from := n.r.IntN(2)
	lane := link.Lane(n.r.IntN(link.Lanes))
	a, b := n.ends[from], n.ends[1-from]
	now := a.now + time.Duration(n.r.IntN(50))*time.Millisecond
	a.now, b.now = now, now
	if faults {
		for range n.r.IntN(4) {
			payload := binary.BigEndian.AppendUint64(nil, n.next[from][lane]+1)
			payload = append(payload, make([]byte, n.r.IntN(1+n.r.IntN(99_000)))...)
			if a.Send(b.self, lane, link.Message{Type: link.Tell, Kind: 1, Payload: payload}) == nil {
				n.next[from][lane]++
			}
		}
		if n.r.IntN(200) == 0 {
			a.Forget(b.self)
			for on := range link.Lane(link.Lanes) {
				for _, cost := range n.held[from][on] { // received messages are still handled
					a.Consume(b.self, on, cost)
				}
				n.held[from][on] = nil
			}
			n.flying[1-from] = [link.Lanes][][]byte{} // the new incarnation has no links
		}
	}
	a.Tick(now)
	flying := &n.flying[from][lane]
	*flying = append(*flying, a.frames(lane)...)
	for range n.r.IntN(6) {
		if len(*flying) == 0 {
			break
		}
		i := 0
		if faults && n.r.IntN(10) == 0 {
			i = n.r.IntN(len(*flying))
		}
		frame := (*flying)[i]
		if !faults || n.r.IntN(10) != 0 { // in 1 of 10 cases the frame stays and is duplicated
			*flying = append((*flying)[:i:i], (*flying)[i+1:]...)
		}
		if faults && n.r.IntN(10) == 0 {
			continue
		}
		n.arrive(from, lane, frame)
	}
	for len(n.held[1-from][lane]) > 0 && n.r.IntN(3) != 0 {
		n.ends[1-from].Consume(a.self, lane, n.held[1-from][lane][0])
		n.held[1-from][lane] = n.held[1-from][lane][1:]
	}
}

func (n *network) arrive(from int, lane link.Lane, frame []byte) {
	b := n.ends[1-from]
	eff := b.Receive(b.now, lane, n.ends[from].self.Name, frame)
	for _, d := range eff.Deliver {
		nr := binary.BigEndian.Uint64(d.Payload)
		if seen := &n.seen[from][lane]; nr <= *seen {
			n.t.Errorf("seed %d: message %d arrived after %d", n.seed, nr, *seen)
		} else {
			*seen = nr
		}
		n.arrived++
		n.held[1-from][lane] = append(n.held[1-from][lane], d.Cost)
	}
	sum := 0
	for _, cost := range n.held[1-from][lane] {
		sum += cost
	}
	if sum > 1<<20 {
		n.t.Errorf("seed %d: %d bytes are held", n.seed, sum)
	}
}

// heal ends all faults and checks that all messages sent afterwards arrive.
func (n *network) heal() {
	n.flying = [2][link.Lanes][][]byte{}
	for range 1000 {
		n.step(false)
	}
	for from := range n.ends {
		for lane := range link.Lane(link.Lanes) {
			a, b := n.ends[from], n.ends[1-from]
			n.next[from][lane]++
			payload := binary.BigEndian.AppendUint64(nil, n.next[from][lane])
			if err := a.Send(b.self, lane, link.Message{Type: link.Tell, Kind: 1, Payload: payload}); err != nil {
				n.t.Errorf("seed %d: Send without network faults: %v", n.seed, err)
			}
		}
	}
	for range 1000 {
		n.step(false)
	}
	for i, e := range n.ends {
		held := 0
		for lane, stats := range e.Stats().Lanes {
			before := held
			for _, cost := range n.held[i][lane] {
				held += cost
			}
			if stats.Queued != 0 || stats.Held != held-before {
				n.t.Errorf("seed %d: at the end %d bytes are queued and %d held, want 0 and %d", n.seed, stats.Queued, stats.Held, held-before)
			}
		}
		other := n.ends[1-i].self
		if e.Held() != held || e.HeldOf(other.Name) != held {
			n.t.Errorf("seed %d: at the end %d bytes are held, %d by %v, want %d", n.seed, e.Held(), e.HeldOf(other.Name), other, held)
		}
		for lane, costs := range n.held[i] {
			for _, cost := range costs {
				e.Consume(other, link.Lane(lane), cost)
			}
		}
		if e.Held() != 0 || e.HeldOf(other.Name) != 0 {
			n.t.Errorf("seed %d: %d bytes are held after all messages were consumed, %d by %v", n.seed, e.Held(), e.HeldOf(other.Name), other)
		}
	}
	if n.seen != n.next {
		n.t.Errorf("seed %d: the last received messages are %d, want %d", n.seed, n.seen, n.next)
	}
}
