// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/inbox"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/singleton"
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
	inboxes map[string]*inbox.Inbox // of instances that run and are not stopping
	busy    loop.InFlight
}

type instance struct {
	node.Instance

	begun time.Time
	inbox *inbox.Inbox
	stop  context.CancelCauseFunc
	ended chan struct{}
}

func (h *instanceHost) start(base context.Context, n *Node, id node.Instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.known[id.Singleton]
	ctx, stop := context.WithCancelCause(base)
	b := inbox.New(loop.BudgetOf(n.transport).Account("singleton "+id.Singleton), s.MaxInbox, false)
	i := &instance{Instance: id, begun: time.Now(), inbox: b, stop: stop, ended: make(chan struct{})}
	h.running[id], h.inboxes[id.Singleton] = i, b
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
	i.inbox.Close()
}

func (h *instanceHost) run(ctx context.Context, n *Node, i *instance, f func(context.Context, *Inbox) error) {
	err := errGoexit
	defer func() { h.ended(ctx, n, i, err) }()
	err = panics.Catch(func() error { return f(ctx, &Inbox{i.inbox}) })
}

func (h *instanceHost) ended(ctx context.Context, n *Node, i *instance, err error) {
	asked := ctx.Err() != nil
	h.mu.Lock()
	h.close(i)
	delete(h.running, i.Instance)
	h.mu.Unlock()
	i.inbox.End()
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

func (h *instanceHost) inbox(name string) *inbox.Inbox {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inboxes[name]
}

// forget releases the requests of a node that is gone.
func (h *instanceHost) forget(asker identity.Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range h.inboxes { // the order does not matter
		b.Forget(asker)
	}
}

// reportedSingleton is a singleton as its node reports it to operators.
type reportedSingleton struct {
	Name    string    `json:"name"`
	Role    string    `json:"role,omitempty"`
	State   string    `json:"state"`
	Running bool      `json:"running,omitempty"`
	Since   time.Time `json:"since,omitzero"` // start of the running instance
}

// reportSingletons returns a page of the singletons of this node, sorted by name. It begins with the
// first name that sorts after the argument after.
func (n *Node) reportSingletons(ctx context.Context, after string) (page []reportedSingleton, more bool, err error) {
	err = n.call(ctx, func() {
		size := 0
		for _, s := range n.machine.Singletons() {
			if s.Name <= after {
				continue
			}
			r := reportedSingleton{Name: s.Name, Role: n.instances.known[s.Name].Role, State: s.State.String()}
			r.Since, r.Running = n.instances.began(node.Instance{Singleton: s.Name, Nr: s.Instance})
			if size += 160 + 6*(len(r.Name)+len(r.Role)); len(page) > 0 && size > adminBytes { // a byte takes at most six bytes of JSON
				more = true
				return
			}
			page = append(page, r)
		}
	})
	return page, more, err
}

// began returns the time of the start of an instance that has not ended.
func (h *instanceHost) began(id node.Instance) (at time.Time, runs bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.running[id]; i != nil {
		return i.begun, true
	}
	return at, false
}

// Inbox holds the messages that proxies have sent to an instance. Messages of one sender arrive in
// order. Its methods are safe for concurrent use.
type Inbox struct{ messages *inbox.Inbox }

// Delivery is a message from a proxy. The instance must answer a request with Reply or Refuse, at
// any time while it runs. An unanswered request counts towards Singleton.MaxInbox.
type Delivery struct {
	// From is the node of the proxy.
	From    identity.Node
	Payload []byte

	message *inbox.Delivery
}

// Asked reports whether the sender waits for a reply.
func (d *Delivery) Asked() bool { return d.message.Asked() }

// Reply answers a request. It does nothing for other messages and for answered requests. The error
// is one of the transport's Send.
func (d *Delivery) Reply(payload []byte) error { return d.message.Reply(payload) }

// Refuse answers a request with an error that matches ErrRefused and has this text.
func (d *Delivery) Refuse(text string) error { return d.message.Refuse(text) }

// Receive returns the next message. The error is the cause of ctx, which should be the context of
// Singleton.Run or derived from it.
func (b *Inbox) Receive(ctx context.Context) (*Delivery, error) {
	m, err := b.messages.Receive(ctx)
	if err != nil {
		return nil, err
	}
	return &Delivery{m.From, m.Payload, m}, nil
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
