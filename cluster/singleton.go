// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/transport"
)

// Singleton is a function of which the cluster runs one instance. The instance runs on the oldest
// node of the cluster, or on the oldest node with a role. All nodes must have the same
// configuration, except for Run.
type Singleton struct {
	// Name identifies the singleton, at most 255 bytes. Defaults to "singleton".
	Name string
	// Role is the role of the nodes that can run it. Defaults to "", which means all nodes.
	Role string
	// Run is the instance. It is called when this node becomes the oldest, and must return when its
	// context ends, because other nodes wait for its end. If it returns earlier, it is not called
	// again on this node until another node has run the singleton. Its error is logged. Required.
	Run func(ctx context.Context, inbox *Inbox) error
	// Lease requires that a lease of Config.Leases is held while the instance runs.
	Lease bool
	// LeaseRetryInterval is the time between two attempts to acquire the lease. Defaults to 5 s.
	LeaseRetryInterval time.Duration
	// RetryInterval is the time between two requests for a hand-over. Defaults to 1 s.
	RetryInterval time.Duration
	// MinRetries is the minimum number of unanswered requests before the node restarts the
	// hand-over. With a long removal margin, the number is larger. Defaults to 15.
	MinRetries int
	// MaxInbox is how many messages may wait for the instance. Together they have at most 16 MiB.
	// For a new request, the requests that the instance has received and not answered count as
	// well. Defaults to 1,000.
	MaxInbox int
}

// Singleton lets this node take part in running a singleton. A node without the role runs no
// instance. The error matches ErrInvalid if the configuration is invalid or the name is in use. If
// the node has ended, the error is the reason.
func (n *Node) Singleton(ctx context.Context, s Singleton) error {
	s.Name, s.MaxInbox = cmp.Or(s.Name, "singleton"), cmp.Or(s.MaxInbox, 1000)
	switch {
	case s.Run == nil:
		return invalid("Singleton.Run is missing")
	case s.Lease && n.cfg.Leases == nil:
		return invalid("Config.Leases is missing, Singleton.Lease needs it")
	case s.MaxInbox < 1:
		return invalid("Singleton.MaxInbox is %d, it must be at least 1", s.MaxInbox)
	case strings.ContainsRune(s.Name, 0):
		return invalid("Singleton.Name is %q, it must not contain a NUL byte", s.Name)
	}
	err := n.try(ctx, func() error {
		if n.instances.known[s.Name] != nil {
			return invalid("a singleton with this name exists already")
		}
		effects, err := n.machine.Host(n.now(), singleton.Config{
			Name: s.Name, Role: s.Role, RetryInterval: s.RetryInterval, MinRetries: s.MinRetries, UseLease: s.Lease, LeaseRetryInterval: s.LeaseRetryInterval,
		})
		if err != nil {
			return fielderror.Rename(ErrInvalid, err, "Config.", "Singleton.")
		}
		n.instances.known[s.Name] = &s
		n.applyEffects(effects)
		return nil
	})
	if err != nil {
		return wrapError("singleton", s.Name, err)
	}
	return nil
}

var errHandOver = errors.New("cluster: the singleton's instance must stop on this node")

var errGoexit = errors.New("cluster: the singleton has called runtime.Goexit")

// instanceHost runs the singletons' instances of a node.
type instanceHost struct {
	node  *Node
	drops [dropReasons]atomic.Uint64
	known map[string]*Singleton // belongs to the loop

	mu      sync.Mutex
	running map[node.Instance]*instance
	inboxes map[string]*Inbox // of instances that run and are not stopping
	busy    loop.InFlight
}

type instance struct {
	node.Instance

	begun time.Time
	inbox *Inbox
	stop  context.CancelCauseFunc
	ended chan struct{}
}

func (h *instanceHost) start(base context.Context, n *Node, id node.Instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.known[id.Singleton]
	ctx, stop := context.WithCancelCause(base)
	inbox := &Inbox{account: loop.BudgetOf(n.transport).Account("singleton " + id.Singleton), limit: s.MaxInbox, ready: loop.NewSignal(), taken: map[*transport.Request]int{}}
	i := &instance{Instance: id, begun: time.Now(), inbox: inbox, stop: stop, ended: make(chan struct{})}
	h.running[id], h.inboxes[id.Singleton] = i, inbox
	n.out.Log(slog.LevelInfo, "singleton: instance started", slog.String("singleton", id.Singleton))
	h.notify(n, InstanceInfo{Singleton: id.Singleton, Nr: id.Nr})
	h.busy.Begin()
	go h.run(ctx, n, i, s.Run)
	go h.warnWhileStopping(ctx, n, i)
}

func (h *instanceHost) stop(id node.Instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.running[id]; i != nil {
		h.close(i)
		i.stop(errHandOver)
	}
}

func (h *instanceHost) stopAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range h.running { // the order is not observable
		h.close(i)
		i.stop(errHandOver)
	}
}

// close closes the inbox of an instance. The caller holds the lock.
func (h *instanceHost) close(i *instance) {
	if h.inboxes[i.Singleton] == i.inbox {
		delete(h.inboxes, i.Singleton)
	}
	i.inbox.close()
}

func (h *instanceHost) run(ctx context.Context, n *Node, i *instance, f func(context.Context, *Inbox) error) {
	err := errGoexit
	defer func() { h.ended(ctx, n, i, err) }()
	err = panics.Catch(func() error { return f(ctx, i.inbox) })
}

func (h *instanceHost) ended(ctx context.Context, n *Node, i *instance, err error) {
	asked := ctx.Err() != nil
	h.mu.Lock()
	h.close(i)
	delete(h.running, i.Instance)
	h.mu.Unlock()
	i.inbox.end()
	i.stop(nil)
	close(i.ended)
	ran := time.Since(i.begun)
	switch {
	case asked && (err == nil || errors.Is(err, context.Canceled) || errors.Is(err, errHandOver)):
		n.out.Log(slog.LevelInfo, "singleton: instance stopped", slog.String("singleton", i.Singleton))
	case err == nil:
		n.out.Log(slog.LevelInfo, "singleton: instance returned early and is not restarted on this node", slog.String("singleton", i.Singleton))
	default:
		attrs := []slog.Attr{slog.String("singleton", i.Singleton), slog.Any("error", err)}
		if panicked, ok := errors.AsType[*panics.Error](err); ok {
			attrs = append(attrs, slog.String("stack", string(panicked.Stack)))
		}
		n.out.Log(slog.LevelError, "singleton: instance failed", attrs...)
	}
	h.notify(n, InstanceInfo{Singleton: i.Singleton, Nr: i.Nr, Ended: true, Ran: ran, Err: err})
	n.inputs.Add(node.InstanceEnded{Instance: i.Instance})
	h.busy.End()
}

func (h *instanceHost) warnWhileStopping(ctx context.Context, n *Node, i *instance) {
	select {
	case <-i.ended:
		return
	case <-ctx.Done():
	}
	asked := time.Now()
	h.notify(n, InstanceInfo{Singleton: i.Singleton, Nr: i.Nr, Stopping: true, Ran: asked.Sub(i.begun)})
	ticker := time.NewTicker(n.cfg.StopWarning)
	defer ticker.Stop()
	for {
		select {
		case <-i.ended:
			return
		case <-ticker.C:
			n.out.Log(slog.LevelWarn, "singleton: instance does not stop, other nodes are waiting for it", slog.String("singleton", i.Singleton), slog.Duration("since", time.Since(asked)))
		}
	}
}

func (h *instanceHost) notify(n *Node, info InstanceInfo) {
	if f := n.cfg.Observer.Instance; f != nil {
		n.out.Do(func() { f(info) })
	}
}

func (h *instanceHost) inbox(name string) *Inbox {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inboxes[name]
}

// forget releases the requests of a node that is gone.
func (h *instanceHost) forget(asker identity.Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, inbox := range h.inboxes { // the order does not matter
		inbox.forget(asker)
	}
}

const (
	maxInboxBytes = 16 << 20
	// deliveryCost is the charge for a message in addition to its payload.
	deliveryCost = 256
)

// Inbox holds the messages that proxies have sent to an instance. Messages of one sender arrive in
// order. Its methods are safe for concurrent use.
type Inbox struct {
	limit   int
	account *loop.Account
	ready   loop.Signal

	mu      sync.Mutex
	queue   []*Delivery
	bytes   int                        // of the queue
	taken   map[*transport.Request]int // requests that were received and not answered, with their bytes
	open    int                        // bytes of the taken requests
	charged int                        // bytes of the account
	closed  bool
}

// charge charges the account for the queue and the requests that were not answered. The caller
// holds the lock.
func (b *Inbox) charge() {
	held := b.bytes + b.open + (len(b.queue)+len(b.taken))*deliveryCost
	b.account.Hold(held - b.charged)
	b.charged = held
}

// Delivery is a message from a proxy. The instance must answer a request with Reply or Refuse, at
// any time while it runs. An unanswered request counts towards Singleton.MaxInbox.
type Delivery struct {
	// From is the node of the proxy.
	From    identity.Node
	Payload []byte

	request *transport.Request
	inbox   *Inbox
}

// Asked reports whether the sender waits for a reply.
func (d *Delivery) Asked() bool { return d.request != nil }

// Reply answers a request. It does nothing for other messages and for answered requests. The error
// is one of the transport's Send.
func (d *Delivery) Reply(payload []byte) error { return d.answer(answered, payload) }

// Refuse answers a request with an error that matches ErrRefused and has this text.
func (d *Delivery) Refuse(text string) error { return d.answer(refused, []byte(text)) }

func (d *Delivery) answer(status byte, payload []byte) error {
	if d.request == nil {
		return nil
	}
	if d.inbox != nil {
		d.inbox.settle(d.request)
	}
	return d.request.Reply(append([]byte{status}, payload...))
}

// put adds a message to the queue and returns answered. If it cannot add the message, it returns
// the status for the reply.
func (b *Inbox) put(d *Delivery) byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting, bytes := len(b.queue), b.bytes+len(d.Payload)
	if d.request != nil {
		waiting, bytes = waiting+len(b.taken), bytes+b.open
	}
	switch {
	case b.closed:
		return notHosted
	case waiting >= b.limit, bytes > maxInboxBytes, !b.account.Take(len(d.Payload) + deliveryCost):
		return busy
	}
	b.charged += len(d.Payload) + deliveryCost
	d.inbox = b
	b.queue = append(b.queue, d)
	b.bytes += len(d.Payload)
	b.ready.Set()
	return answered
}

// Receive returns the next message. The error is the cause of ctx, which should be the context of
// Singleton.Run or derived from it.
func (b *Inbox) Receive(ctx context.Context) (*Delivery, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		b.mu.Lock()
		if len(b.queue) > 0 {
			d := b.queue[0]
			b.queue[0] = nil
			b.queue = b.queue[1:]
			b.bytes -= len(d.Payload)
			if d.request != nil {
				b.taken[d.request] = len(d.Payload)
				b.open += len(d.Payload)
			}
			b.charge()
			if len(b.queue) > 0 {
				b.ready.Set() // for another receiver
			}
			b.mu.Unlock()
			return d, nil
		}
		b.mu.Unlock()
		select {
		case <-b.ready:
		case <-ctx.Done():
		}
	}
}

// All yields the messages until ctx ends.
func (b *Inbox) All(ctx context.Context) iter.Seq[*Delivery] {
	return func(yield func(*Delivery) bool) {
		for {
			d, err := b.Receive(ctx)
			if err != nil || !yield(d) {
				return
			}
		}
	}
}

// close rejects further messages. It answers the waiting requests with an error: they are not
// handled.
func (b *Inbox) close() {
	b.mu.Lock()
	queue := b.queue
	b.queue, b.bytes, b.closed = nil, 0, true
	b.charge()
	b.mu.Unlock()
	for _, d := range queue {
		_ = d.answer(notHosted, nil) // the sender may be gone
	}
}

func (b *Inbox) settle(r *transport.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open -= b.taken[r]
	delete(b.taken, r)
	b.charge()
}

// forget removes the unanswered requests of a node that is gone. They no longer count towards the
// limits of the inbox.
func (b *Inbox) forget(asker identity.Node) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r, size := range b.taken { // the order does not matter
		if r.From == asker {
			b.open -= size
			delete(b.taken, r)
		}
	}
	b.charge()
}

// end refuses the requests that the ended instance received and did not answer.
func (b *Inbox) end() {
	b.mu.Lock()
	taken := slices.Collect(maps.Keys(b.taken)) // the order does not matter
	b.taken, b.open = nil, 0
	b.charge()
	b.mu.Unlock()
	for _, r := range taken {
		_ = r.Reply(append([]byte{refused}, "the instance has ended"...)) // the sender may be gone
	}
}
