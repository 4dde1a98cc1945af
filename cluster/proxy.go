// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/inbox"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/transport"
)

// ProxyConfig configures a proxy. The zero value of each field is its default.
type ProxyConfig struct {
	// Singleton is the name of the singleton. Defaults to "singleton".
	Singleton string
	// Role is the role of the singleton's nodes. Defaults to "", which means any node.
	Role string
	// IdentifyInterval is the time between two attempts to locate the instance. Defaults to 1
	// second.
	IdentifyInterval time.Duration
	// BufferSize is how many messages are kept while the location of the instance is unknown.
	// Defaults to 1,000, at most 10,000. A negative value keeps none.
	BufferSize int
}

const maxBufferBytes = 16 << 20

// Defaults of transport.Config.
const (
	defaultMaxMessage = 1 << 20
	defaultBudget     = 256 << 20
)

// Proxy sends messages to the instance of a singleton, on any node, at most once. Messages of one
// goroutine arrive in order. While the location of the instance is unknown, messages are buffered;
// if the buffer is full, the oldest are dropped. Its methods are safe for concurrent use.
type Proxy struct {
	node *Node
	cfg  ProxyConfig

	// The fields below belong to the loop.
	buffered int // bytes
	account  *loop.Account
	closed   bool
}

// Proxy returns the proxy of a singleton, which need not run on this node. All calls for one
// singleton must have the same configuration. The error matches ErrInvalid, or is the reason why
// the node has ended.
func (n *Node) Proxy(ctx context.Context, cfg ProxyConfig) (*Proxy, error) {
	cfg = ProxyConfig(singleton.ProxyConfig(cfg).WithDefaults())
	var p *Proxy
	err := n.try(ctx, func() error {
		if p = n.proxies[cfg.Singleton]; p != nil {
			if p.cfg != cfg {
				return invalid("this node has a proxy of the singleton with another configuration")
			}
			return nil
		}
		effects, err := n.machine.Proxy(n.now(), singleton.ProxyConfig(cfg))
		if err != nil {
			return fielderror.Rename(ErrInvalid, err)
		}
		p = &Proxy{node: n, cfg: cfg, account: loop.BudgetOf(n.transport).Account("proxy of " + cfg.Singleton)}
		n.proxies[cfg.Singleton] = p
		n.applyEffects(effects)
		return nil
	})
	if err != nil {
		return nil, wrapError("proxy of singleton", cfg.Singleton, err)
	}
	return p, nil
}

// Host returns the member that runs the instance or will run it, and whether the instance is known
// to run. The node is zero if there is no such member.
func (p *Proxy) Host(ctx context.Context) (host identity.Node, runs bool, err error) {
	err = p.node.call(ctx, func() { host, runs = p.node.machine.Oldest(p.cfg.Singleton) })
	return host, runs, err
}

// Close closes the proxy for all its users. Buffered messages are dropped, and buffered and later
// requests fail with ErrProxyClosed. Requests that were already sent continue. A later call of
// Node.Proxy returns a new proxy. The error is that of ctx.
func (p *Proxy) Close(ctx context.Context) error {
	n := p.node
	err := n.call(ctx, func() {
		if p.closed {
			return
		}
		p.closed = true
		delete(n.proxies, p.cfg.Singleton)
		n.machine.CloseProxy(p.cfg.Singleton)
		n.closePending(p)
	})
	if ctx.Err() == nil {
		return nil // a node that has ended has no proxies
	}
	return err
}

// Send sends a message. The payload must not be modified afterwards. A nil error means that the
// message was sent or buffered, not that it was delivered. The error is an error of
// transport.Transport.Send, ErrDropped, ErrBusy, ErrProxyClosed, the error of ctx, or the reason
// why the node has ended.
func (p *Proxy) Send(ctx context.Context, payload []byte) error {
	err := p.pass(ctx, &pendingMessage{data: appendForward(nil, p.cfg.Singleton, payload)})
	if err != nil {
		return wrapError("send to singleton", p.cfg.Singleton, err)
	}
	return nil
}

// Ask sends a request and waits for the reply. The payload must not be modified afterwards. Ask
// waits until an instance is found or ctx ends. If ctx ends first, the error also matches
// ErrNotHosted. While this node is suspended, Ask returns ErrDisconnected at once.
//
// After ErrNotHosted, ErrBusy, ErrDropped and ErrProxyClosed the request was certainly not handled.
// After all other errors the request may have been handled: ErrRefused, ErrDisconnected, the errors
// of transport.Transport.Request, the error of ctx, and the reason why the node has ended.
func (p *Proxy) Ask(ctx context.Context, payload []byte) ([]byte, error) {
	answer, err := p.ask(ctx, payload)
	if err != nil {
		return nil, wrapError("ask singleton", p.cfg.Singleton, err)
	}
	return answer, nil
}

func (p *Proxy) ask(ctx context.Context, payload []byte) ([]byte, error) {
	n := p.node
	ctx, leave, err := n.beginAsk(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	a := &pendingMessage{data: appendForward(nil, p.cfg.Singleton, payload), way: make(chan identity.Node, 1), failed: make(chan error, 1)}
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

// withdraw removes a request that was not sent, and returns the error for its caller.
func (p *Proxy) withdraw(ctx context.Context, a *pendingMessage) error {
	n := p.node
	err := n.call(context.WithoutCancel(ctx), func() {
		if n.takePending(a.id) != nil {
			n.machine.Withdraw(node.Forward{Singleton: p.cfg.Singleton, Message: a.id})
		}
	})
	select {
	case failed := <-a.failed:
		return failed
	default:
	}
	return cmp.Or(err, fmt.Errorf("no instance was found: %w: %w", ErrNotHosted, context.Cause(ctx)))
}

// pass hands a message to the machine.
func (p *Proxy) pass(ctx context.Context, a *pendingMessage) error {
	n := p.node
	a.proxy = p
	if limit := cmp.Or(n.cfg.Transport.MaxMessage, defaultMaxMessage); len(a.data) > limit {
		return fmt.Errorf("%w: %d bytes, %d are allowed", transport.ErrTooLarge, len(a.data), limit)
	}
	return n.try(ctx, func() error {
		if p.closed {
			return ErrProxyClosed
		}
		cost := len(a.data) + inbox.Cost
		if _, runs := n.machine.Oldest(p.cfg.Singleton); runs {
			p.account.Hold(cost)
		} else if p.buffered+len(a.data) > maxBufferBytes || !p.account.Take(cost) {
			return fmt.Errorf("%w: the location of the instance is unknown and the buffer is full", ErrBusy)
		}
		a.id, _ = n.pending.Add(a) // Add never fails if there is no limit
		p.buffered += len(a.data)
		n.step(node.Forward{Singleton: p.cfg.Singleton, Message: a.id})
		return a.err // an error after this turn of the loop is not reported
	})
}

// pendingMessage is a message that the machine has not routed yet.
type pendingMessage struct {
	id    uint64 // the number in the machine; belongs to the loop
	proxy *Proxy
	data  []byte
	err   error // why it was not sent; belongs to the loop

	// For requests only.
	way    chan identity.Node // receives the destination
	failed chan error
}

// takePending removes a message. It returns nil if the message was withdrawn.
func (n *Node) takePending(id uint64) (a *pendingMessage) {
	n.pending.Answer(id, func(found *pendingMessage) bool {
		a = found
		a.release()
		return true
	})
	return a
}

// release ends the charge of a message that the proxy no longer keeps.
func (a *pendingMessage) release() {
	a.proxy.buffered -= len(a.data)
	a.proxy.account.Free(len(a.data) + inbox.Cost)
}

func (n *Node) forward(f node.Forwarded) {
	a := n.takePending(f.Message)
	switch {
	case a == nil: // the caller has withdrawn it
	case a.way != nil:
		a.way <- f.To
	default:
		a.err = n.transport.Send(f.To, transport.Data, kindForwarded, a.data)
		if a.err != nil {
			n.dropped(DroppedForward, f.To, f.Singleton)
		}
	}
}

// dropPending drops a message for which the machine has no room.
func (n *Node) dropPending(id uint64) {
	if a := n.takePending(id); a != nil {
		n.dropped(DroppedBuffer, n.self, a.proxy.cfg.Singleton)
		a.fail(ErrDropped)
	}
}

func (a *pendingMessage) fail(err error) {
	if a.err = err; a.failed != nil {
		a.failed <- err
	}
}

func (n *Node) closePending(p *Proxy) {
	n.pending.AnswerAll(func(a *pendingMessage) bool {
		if a.proxy == p {
			a.release()
			n.dropped(DroppedBuffer, n.self, p.cfg.Singleton)
			a.fail(ErrProxyClosed)
		}
		return a.proxy == p
	})
}

// failAsks fails all requests: buffered requests and requests that wait for a reply.
func (n *Node) failAsks(err error) {
	n.asks.Fail(err)
	n.pending.AnswerAll(func(a *pendingMessage) bool {
		if a.failed != nil {
			a.release()
			n.machine.Withdraw(node.Forward{Singleton: a.proxy.cfg.Singleton, Message: a.id})
			a.fail(err)
		}
		return a.failed != nil
	})
}

// beginAsk returns a context for a request. The context ends when the node is suspended or ends.
// beginAsk fails if the node is suspended or has ended already. The node publishes its state before
// it calls failAsks: a request that does not find the new state here is ended by failAsks.
func (n *Node) beginAsk(ctx context.Context) (context.Context, func(), error) {
	ctx, end := n.asks.Begin(ctx)
	switch s := n.events.current(); {
	case s.Stopped:
		end()
		return nil, nil, cmp.Or(s.Err, errLoopEnded)
	case s.Suspended:
		end()
		return nil, nil, ErrDisconnected
	}
	return ctx, end, nil
}

const forwardVersion = 1

var errForward = errors.New("cluster: malformed message for a singleton")

// appendForward encodes a message for a singleton: version, length of the name, name, payload.
func appendForward(dst []byte, name string, payload []byte) []byte {
	dst = append(dst, forwardVersion, byte(len(name))) //nolint:gosec // at most 255, which the proxy has checked
	dst = append(dst, name...)
	return append(dst, payload...)
}

// decodeForward decodes the format of appendForward. The payload shares the memory of b.
func decodeForward(b []byte) (name string, payload []byte, err error) {
	if len(b) < 2 || b[0] != forwardVersion || len(b) < 2+int(b[1]) {
		return "", nil, errForward
	}
	return string(b[2 : 2+int(b[1])]), b[2+int(b[1]):], nil
}

// take puts a message into the inbox of the instance. It does not block, because a blocked handler
// would delay other messages of the sender.
func (h *instanceHost) take(m transport.Message, r *transport.Request) {
	d := inbox.NewDelivery(m.From, nil, r)
	name, payload, err := decodeForward(m.Payload)
	if err != nil {
		h.node.dropped(DroppedMalformed, m.From, "")
		_ = d.Refuse(err.Error())
		return
	}
	d.Payload = payload
	status := inbox.NotHosted
	if b := h.inbox(name); b != nil {
		status = b.Put(d)
	}
	switch status {
	case inbox.NotHosted:
		h.node.dropped(DroppedNotHosted, m.From, name)
	case inbox.Busy:
		h.node.dropped(DroppedBusy, m.From, name)
	default:
		return
	}
	d.Answer(status)
}

func result(from identity.Node, b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("on %v: %w", from, errForward)
	}
	switch b[0] {
	case inbox.Answered:
		return b[1:], nil
	case inbox.NotHosted:
		return nil, fmt.Errorf("on %v: %w", from, ErrNotHosted)
	case inbox.Busy:
		return nil, fmt.Errorf("on %v: %w", from, ErrBusy)
	}
	return nil, fmt.Errorf("on %v: %w: %s", from, ErrRefused, b[1:])
}
