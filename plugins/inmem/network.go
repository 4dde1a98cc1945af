// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/transport"
)

var (
	errCarrierClosed = errors.New("inmem: carrier closed")
	errFrameTooLarge = errors.New("inmem: frame too large")
)

// NetworkConfig is the configuration of a Network.
type NetworkConfig struct {
	// MaxFrame is the maximum size of a frame in bytes. Defaults to 1 MiB.
	MaxFrame int
	// Queue is the maximum number of frames that wait for a node on one lane; further frames are
	// lost. Defaults to 65,536.
	Queue int
	// Seed is the seed of the random numbers of faults.
	Seed uint64
}

// Network carries frames between the nodes of one process, with the faults that a test injects.
// Without faults no frame is lost or reordered. Its methods are safe for concurrent use.
type Network struct {
	cfg NetworkConfig

	mu       sync.Mutex
	rand     *rand.Rand
	carriers map[identity.Node]*Carrier
	faults   []*Fault
	paused   map[string]*[]parcel
	away     map[string]error
	lost     uint64
}

type parcel struct {
	from  string
	to    identity.Node
	lane  transport.Lane
	frame []byte
	due   time.Time
}

// NewNetwork returns a network without nodes.
func NewNetwork(cfg NetworkConfig) *Network {
	cfg.MaxFrame = cmp.Or(cfg.MaxFrame, 1<<20)
	cfg.Queue = cmp.Or(cfg.Queue, 1<<16)
	return &Network{
		cfg:      cfg,
		rand:     rand.New(rand.NewPCG(cfg.Seed, 1)),
		carriers: make(map[identity.Node]*Carrier),
		paused:   make(map[string]*[]parcel),
		away:     make(map[string]error),
	}
}

// Carrier returns the carrier of an incarnation. The carrier is connected to the network from its
// Start to its Close.
func (n *Network) Carrier(node identity.Node) *Carrier {
	c := &Carrier{network: n, self: node, done: make(chan struct{})}
	for lane := range c.lanes {
		c.lanes[lane].news = loop.NewSignal()
	}
	return c
}

// Lost returns the number of lost frames: dropped by a fault, without a receiver, or beyond a full
// queue.
func (n *Network) Lost() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost
}

func (n *Network) join(c *Carrier) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.carriers[c.self] != nil {
		return fmt.Errorf("inmem: %v is already on the network", c.self)
	}
	n.carriers[c.self] = c
	return nil
}

func (n *Network) leave(c *Carrier) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.carriers[c.self] == c {
		delete(n.carriers, c.self)
	}
}

func (n *Network) send(from, to identity.Node, lane transport.Lane, frame []byte) error {
	if len(frame) > n.cfg.MaxFrame {
		return fmt.Errorf("%w: %d bytes, the limit is %d", errFrameTooLarge, len(frame), n.cfg.MaxFrame)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.away[from.Name]; err != nil {
		return err
	}
	n.pass(parcel{from: from.Name, to: to, lane: lane, frame: slices.Clone(frame)})
	return nil
}

// pass forwards a frame, unless its sender is paused.
func (n *Network) pass(p parcel) {
	if held := n.paused[p.from]; held != nil {
		*held = append(*held, p)
		return
	}
	copies, delay := n.fate(p)
	if copies == 0 {
		n.lost++
	}
	p.due = time.Now().Add(delay)
	for i := range copies {
		if i > 0 {
			p.frame = slices.Clone(p.frame) // each receiver owns its copy
		}
		n.arrive(p)
	}
}

// arrive queues a frame for its receivers: one incarnation, or all incarnations with the name.
func (n *Network) arrive(p parcel) {
	if n.away[p.to.Name] != nil {
		n.lost++
		return
	}
	if p.to.UID != 0 {
		if c := n.carriers[p.to]; c == nil || !c.put(p) {
			n.lost++
		}
		return
	}
	for node, c := range n.carriers {
		if node.Name == p.to.Name {
			each := p
			each.frame = slices.Clone(p.frame)
			if !c.put(each) {
				n.lost++
			}
		}
	}
}

func (n *Network) isPaused(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.paused[name] != nil
}

// Fault is a fault of frames from one name to another. All matching faults apply to a frame
// together.
type Fault struct {
	// From and To are names. An empty name matches all.
	From, To string
	// Lanes are the affected lanes; none means all.
	Lanes []transport.Lane
	// Drop and Duplicate are the fractions of frames, 0 to 1, that are lost and that arrive twice.
	Drop, Duplicate float64
	// Delay is the transit time of a frame, and Jitter its maximum random addition. With a Jitter,
	// frames overtake each other.
	Delay, Jitter time.Duration
}

func (f *Fault) applies(p parcel) bool {
	return (f.From == "" || f.From == p.from) && (f.To == "" || f.To == p.to.Name) &&
		(len(f.Lanes) == 0 || slices.Contains(f.Lanes, p.lane))
}

// Inject activates a fault until remove is called.
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

// CutOneWay drops all frames from the nodes in from to the nodes in to until heal is called.
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

// Partition drops all frames between two sides until heal is called.
func (n *Network) Partition(a, b []string) (heal func()) {
	there, back := n.CutOneWay(a, b), n.CutOneWay(b, a)
	return func() {
		there()
		back()
	}
}

// Pause delays all frames from and to a node, as if its process were stopped, until resume is
// called.
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
				for lane := range c.lanes {
					c.lanes[lane].news.Set()
				}
			}
		}
	}
}

// Disconnect disconnects a node from the network until reconnect is called: its carrier reports the
// loss and cannot send, and frames for it are lost.
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

// fate returns the number of copies of a frame that arrive, and their delay. The caller holds the
// lock.
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

// ServeNamedAdmin implements transport.AdminCarrier.
func (c *Carrier) ServeNamedAdmin(take func(transport.AdminRequest)) error {
	return c.serveAdmin(take, false)
}

// ServeAdmin implements transport.AdminCarrier.
func (c *Carrier) ServeAdmin(take func(transport.AdminRequest)) error {
	return c.serveAdmin(take, true)
}

func (c *Carrier) serveAdmin(take func(transport.AdminRequest), takesAny bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errCarrierClosed
	}
	c.take, c.takesAny = take, takesAny
	return nil
}

// operated passes a request to the carrier. The argument reports whether the request is addressed
// to any node. operated returns false if the carrier does not accept such requests.
func (c *Carrier) operated(r transport.AdminRequest, toAny bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.take == nil || toAny && !c.takesAny {
		return false
	}
	c.take(r)
	return true
}

// Operator returns an operator on the network. Faults do not affect its requests. Disconnected and
// paused nodes do not reply.
func (n *Network) Operator(name string) transport.AdminClient {
	return &operator{network: n, name: name}
}

type operator struct {
	network *Network
	name    string
}

// Ask implements transport.AdminClient.
func (o *operator) Ask(ctx context.Context, service string, right transport.AdminRight, node string, request []byte) ([]byte, error) {
	if len(request) > transport.MaxAdminRequest {
		return nil, fmt.Errorf("%w: %d bytes", transport.ErrTooLarge, len(request))
	}
	type answer struct {
		payload []byte
		err     error
	}
	answered := make(chan answer, 1)
	for _, c := range o.network.named(node) {
		taken := c.operated(transport.AdminRequest{
			Operator: o.name, Service: service, Right: right, Payload: slices.Clone(request),
			Reply: func(payload []byte, err error) { answered <- answer{payload, err} },
		}, node == "")
		if !taken {
			continue
		}
		select {
		case a := <-answered:
			return a.payload, a.err
		case <-ctx.Done():
			return nil, fmt.Errorf("inmem: ask %v: %w", c.self, context.Cause(ctx))
		}
	}
	return nil, fmt.Errorf("%w: no node %q", transport.ErrNoNode, node)
}

// Close implements transport.AdminClient.
func (o *operator) Close() error { return nil }

// named returns, in order, the carriers with a name that can reply. An empty name selects all.
func (n *Network) named(name string) []*Carrier {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found []*Carrier
	for node, c := range n.carriers {
		if (name == "" || node.Name == name) && n.away[node.Name] == nil && n.paused[node.Name] == nil {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b *Carrier) int { return a.self.Compare(b.self) })
	return found
}
