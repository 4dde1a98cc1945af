// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/transport"
)

// ProxyConfig configures a proxy. The zero value of each field is its default.
type ProxyConfig struct {
	// Singleton is the name of the singleton. Defaults to "singleton".
	Singleton string
	// Role is the role of the singleton's nodes. Defaults to "", which is any.
	Role string
	// IdentifyInterval is the time between two attempts to locate the instance. Defaults to 1 second.
	IdentifyInterval time.Duration
	// BufferSize is how many messages are kept while the location of the instance is unknown. Defaults to 1,000, at most 10,000.
	// A negative value keeps none.
	BufferSize int
}

// maxBufferBytes is how many bytes a proxy keeps.
const maxBufferBytes = 16 << 20

// defaultMaxMessage is that of the transport.
const defaultMaxMessage = 1 << 20

// Proxy passes messages on to the instance of a singleton, wherever it is, at most once. What one goroutine sends and asks gets there in
// order. As long as it is not known where the instance is, messages are kept; of too many the oldest are dropped. Its methods are safe
// for concurrent use.
type Proxy struct {
	node *Node
	cfg  ProxyConfig

	// Of the loop.
	kept   int // bytes that wait
	closed bool
}

// Proxy returns the proxy of a singleton, which need not run on this node. A second call for the same one must have the same
// configuration. The error matches ErrInvalid, or says why the node has ended.
func (n *Node) Proxy(ctx context.Context, cfg ProxyConfig) (*Proxy, error) {
	cfg = ProxyConfig(singleton.ProxyConfig(cfg).WithDefaults())
	var p *Proxy
	var failed error
	err := n.call(ctx, func() {
		if p = n.proxies[cfg.Singleton]; p != nil {
			if p.cfg != cfg {
				failed = invalid("there is a proxy with another configuration")
			}
			return
		}
		effects, err := n.machine.Proxy(n.now(), singleton.ProxyConfig(cfg))
		if err != nil {
			failed = fielderror.Rename(ErrInvalid, err)
			return
		}
		p = &Proxy{node: n, cfg: cfg}
		n.proxies[cfg.Singleton] = p
		n.perform(effects)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, doing("proxy of singleton", cfg.Singleton, err)
	}
	return p, nil
}

// Host returns the member that runs the instance or will, and whether the instance is known to run. It is the zero node if there is none.
func (p *Proxy) Host(ctx context.Context) (host identity.Node, runs bool, err error) {
	err = p.node.call(ctx, func() { host, runs = p.node.machine.Oldest(p.cfg.Singleton) })
	return host, runs, err
}

// Close ends the proxy, for all who have it: what it keeps is dropped, questions that it keeps end with ErrProxyClosed, and so does what is
// sent and asked from now on. What was sent already goes on. Node.Proxy returns another one then. The error is that of ctx.
func (p *Proxy) Close(ctx context.Context) error {
	n := p.node
	err := n.call(ctx, func() {
		if p.closed {
			return
		}
		p.closed = true
		delete(n.proxies, p.cfg.Singleton)
		n.machine.CloseProxy(p.cfg.Singleton)
		n.parcels.giveUp(n, p)
	})
	if ctx.Err() == nil {
		return nil // a node that has ended has no proxies
	}
	return err
}

// Send sends a message, which must not be changed any more. Nil says that it was sent, or is kept; not that it arrives. The error is one
// of the transport's Send, ErrDropped, ErrBusy, ErrProxyClosed, that of ctx, or says why the node has ended.
func (p *Proxy) Send(ctx context.Context, payload []byte) error {
	err := p.pass(ctx, &parcel{data: appendForward(nil, p.cfg.Singleton, payload)})
	if err != nil {
		return doing("send to singleton", p.cfg.Singleton, err)
	}
	return nil
}

// Ask sends a message, which must not be changed any more, and waits for the answer. Without a deadline in ctx it waits as long as it takes
// until there is an instance; if it ends before, the error matches ErrNotHosted as well. After ErrNotHosted, ErrBusy, ErrDropped and ErrProxyClosed the message
// surely was not handled; after others it may have been: ErrRefused, ErrDisconnected, which is returned at once while this node is suspended, those of the transport's Request, that of
// ctx, or why the node has ended.
func (p *Proxy) Ask(ctx context.Context, payload []byte) ([]byte, error) {
	answer, err := p.ask(ctx, payload)
	if err != nil {
		return nil, doing("ask singleton", p.cfg.Singleton, err)
	}
	return answer, nil
}

func (p *Proxy) ask(ctx context.Context, payload []byte) ([]byte, error) {
	n := p.node
	ctx, leave, err := n.asks.enter(ctx, n.hub)
	if err != nil {
		return nil, err
	}
	defer leave()
	a := &parcel{data: appendForward(nil, p.cfg.Singleton, payload), way: make(chan identity.Node, 1), failed: make(chan error, 1)}
	if err = p.pass(ctx, a); err != nil {
		return nil, err
	}
	var to identity.Node
	select {
	case to = <-a.way:
	case err = <-a.failed:
		return nil, err
	case <-ctx.Done():
		return nil, p.withdraw(ctx, a)
	case <-n.ended:
		return nil, n.endedErr()
	}
	b, err := n.transport.Request(ctx, to, kindForwarded, a.data)
	if err != nil {
		return nil, err
	}
	return result(to, b)
}

// withdraw takes back a question that was not sent, and returns why.
func (p *Proxy) withdraw(ctx context.Context, a *parcel) error {
	err := p.node.call(context.WithoutCancel(ctx), func() { p.node.parcels.withdraw(p.node, a.id) })
	select {
	case failed := <-a.failed:
		return failed
	default:
	}
	return cmp.Or(err, fmt.Errorf("no instance is known: %w: %w", ErrNotHosted, context.Cause(ctx)))
}

// pass hands a message to the machine.
func (p *Proxy) pass(ctx context.Context, a *parcel) error {
	n := p.node
	a.proxy = p
	if limit := cmp.Or(n.cfg.Transport.MaxMessage, defaultMaxMessage); len(a.data) > limit {
		return fmt.Errorf("%w: %d bytes, %d are allowed", transport.ErrTooLarge, len(a.data), limit)
	}
	var refused error
	err := n.call(ctx, func() {
		if p.closed {
			refused = ErrProxyClosed
			return
		}
		if _, runs := n.machine.Oldest(p.cfg.Singleton); !runs && p.kept+len(a.data) > maxBufferBytes {
			refused = fmt.Errorf("%w: nobody knows where it is", ErrBusy)
			return
		}
		n.step(node.Forward{Singleton: p.cfg.Singleton, Message: n.parcels.add(a)})
		refused = a.err // later ones are told to nobody
	})
	return cmp.Or(err, refused)
}

// parcel is a message on its way to a singleton.
type parcel struct {
	id    uint64 // for the machine; of the loop
	proxy *Proxy
	data  []byte
	err   error // why it was not sent; of the loop

	// For questions only.
	way    chan identity.Node // where the asker sends it
	failed chan error
}

// parcels are the messages that the machine knows by a number. They belong to the loop.
type parcels struct {
	last uint64
	open map[uint64]*parcel
}

func (p *parcels) add(a *parcel) uint64 {
	p.last++
	a.id = p.last
	p.open[a.id] = a
	a.proxy.kept += len(a.data)
	return p.last
}

func (p *parcels) take(id uint64) *parcel {
	a := p.open[id]
	if a != nil {
		delete(p.open, id)
		a.proxy.kept -= len(a.data)
	}
	return a
}

// withdraw takes a message back, if it was not passed on yet.
func (p *parcels) withdraw(n *Node, id uint64) {
	if a := p.take(id); a != nil {
		n.machine.Withdraw(node.Forward{Singleton: a.proxy.cfg.Singleton, Message: id})
	}
}

// forward sends a message to the instance.
func (n *Node) forward(f node.Forwarded) {
	a := n.parcels.take(f.Message)
	switch {
	case a == nil: // an asker who has left
	case a.way != nil:
		a.way <- f.To
	default:
		a.err = n.transport.Send(f.To, transport.Data, kindForwarded, a.data)
		if a.err != nil {
			n.dropped(DroppedForward, f.To, f.Singleton)
		}
	}
}

// drop gives up a message that the machine has no room for.
func (p *parcels) drop(n *Node, id uint64) {
	a := p.take(id)
	if a == nil {
		return
	}
	n.dropped(DroppedBuffer, n.self, a.proxy.cfg.Singleton)
	if a.err = ErrDropped; a.failed != nil {
		a.failed <- ErrDropped
	}
}

// giveUp drops what a proxy keeps that is closed.
func (p *parcels) giveUp(n *Node, of *Proxy) {
	for id, a := range p.open { // the order does not show
		if a.proxy != of {
			continue
		}
		p.take(id)
		n.dropped(DroppedBuffer, n.self, of.cfg.Singleton)
		if a.failed != nil {
			a.failed <- ErrProxyClosed
		}
	}
}

// failAsks gives up the questions that wait.
func (p *parcels) failAsks(n *Node, err error) {
	for id, a := range p.open { // the order does not show
		if a.failed != nil {
			p.withdraw(n, id)
			a.failed <- err
		}
	}
}

// openAsks are the questions that end when the node is suspended or ends.
type openAsks struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]context.CancelCauseFunc
}

// enter returns a context for a question. It fails if there must be none.
func (o *openAsks) enter(ctx context.Context, h *hub) (context.Context, func(), error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch s := h.current(); { // it is published before fail is called
	case s.Stopped:
		return nil, nil, cmp.Or(s.Err, errLoopEnded)
	case s.Suspended:
		return nil, nil, ErrDisconnected
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if o.open == nil {
		o.open = map[uint64]context.CancelCauseFunc{}
	}
	o.last++
	id := o.last
	o.open[id] = cancel
	return ctx, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.open, id)
		cancel(nil)
	}, nil
}

// fail ends all questions.
func (o *openAsks) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, cancel := range o.open { // the order does not show
		cancel(err)
	}
}

// What an answer begins with. The numbers never change.
const (
	answered  byte = 0 // the payload follows
	refused   byte = 1 // a text follows
	notHosted byte = 2
	busy      byte = 3
)

// forwardVersion is that of the encoding.
const forwardVersion = 1

var errForward = errors.New("cluster: malformed message for a singleton")

// appendForward encodes a message for a singleton: version, length of the name, name, payload.
func appendForward(dst []byte, name string, payload []byte) []byte {
	dst = append(dst, forwardVersion, byte(len(name))) //nolint:gosec // at most 255, which the proxy has checked
	dst = append(dst, name...)
	return append(dst, payload...)
}

// decodeForward reads what appendForward has written. The payload is part of b.
func decodeForward(b []byte) (name string, payload []byte, err error) {
	if len(b) < 2 || b[0] != forwardVersion || len(b) < 2+int(b[1]) {
		return "", nil, errForward
	}
	return string(b[2 : 2+int(b[1])]), b[2+int(b[1]):], nil
}

// message takes what a proxy has sent.
func (h *hosts) message(_ context.Context, m transport.Message) { h.take(m, nil) }

// request takes what a proxy has asked.
func (h *hosts) request(_ context.Context, r *transport.Request) {
	m := r.Message
	r.Payload = nil // the delivery has it; what is kept until the answer is small
	h.take(m, r)
}

// take leaves a message to the instance. It never waits for that: the handler would hold up what else the sender sent.
func (h *hosts) take(m transport.Message, r *transport.Request) {
	d := &Delivery{From: m.From, request: r}
	name, payload, err := decodeForward(m.Payload)
	if err != nil {
		h.node.dropped(DroppedMalformed, m.From, "")
		_ = d.Refuse(err.Error())
		return
	}
	d.Payload = payload
	status := notHosted
	if inbox := h.inbox(name); inbox != nil {
		status = inbox.put(d)
	}
	switch status {
	case notHosted:
		h.node.dropped(DroppedNotHosted, m.From, name)
	case busy:
		h.node.dropped(DroppedBusy, m.From, name)
	default:
		return
	}
	_ = d.answer(status, nil) // the asker may be gone
}

// result returns what an answer says.
func result(from identity.Node, b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("on %v: %w", from, errForward)
	}
	switch b[0] {
	case answered:
		return b[1:], nil
	case notHosted:
		return nil, fmt.Errorf("on %v: %w", from, ErrNotHosted)
	case busy:
		return nil, fmt.Errorf("on %v: %w", from, ErrBusy)
	}
	return nil, fmt.Errorf("on %v: %w: %s", from, ErrRefused, b[1:])
}
