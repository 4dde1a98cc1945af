// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/transport"
)

// Singleton is something of which the cluster runs one instance: on the oldest of its nodes, or of those with a role. All nodes must
// have the same, but for Run.
type Singleton struct {
	// Name tells singletons apart, at most 255 bytes. Defaults to "singleton".
	Name string
	// Role is what a node must have to run it. Defaults to "": all do.
	Role string
	// Run is the instance. It is called when it is this node's turn, and stops when its context ends: others wait for that. If it returns before,
	// it is not called again, until another node has had its turn. An error is logged. Required.
	Run func(ctx context.Context, inbox *Inbox) error
	// Lease says that it runs only while a lease is held, which is in Config.Leases.
	Lease bool
	// LeaseRetryInterval is how often the lease is asked for. Defaults to 5 s.
	LeaseRetryInterval time.Duration
	// RetryInterval is how often a request for a hand-over is repeated. Defaults to 1 s.
	RetryInterval time.Duration
	// MinRetries is how often at least it is repeated before the node begins anew. Defaults to 15.
	MinRetries int
	// MaxInbox is how many messages may wait for the instance; together they hold at most 16 MiB. For further questions, those that
	// the instance has taken and not answered count as well. Defaults to 1,000.
	MaxInbox int
}

// Singleton begins to take part in running a singleton. On a node that can't run it, for want of the role, it does
// nothing. The error matches ErrInvalid, also if there is one with that name, or says why the node has ended.
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
		return invalid("Singleton.Name is %q", s.Name)
	}
	var failed error
	err := n.call(ctx, func() {
		if failed = n.hosts.register(&s); failed != nil {
			return
		}
		effects, err := n.machine.Host(n.now(), singleton.Config{
			Name: s.Name, Role: s.Role, RetryInterval: s.RetryInterval, MinRetries: s.MinRetries, UseLease: s.Lease, LeaseRetryInterval: s.LeaseRetryInterval,
		})
		if err != nil {
			n.hosts.unregister(s.Name)
			failed = fielderror.Rename(ErrInvalid, err, "Config.", "Singleton.")
			return
		}
		n.perform(effects)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return doing("singleton", s.Name, err)
	}
	return nil
}

// errHandOver is the cause of the context of an instance that has to stop.
var errHandOver = errors.New("cluster: the singleton is not to run here any more")

// errGoexit is what an instance ends with that ends its goroutine.
var errGoexit = errors.New("cluster: the singleton has called runtime.Goexit")

// hosts are the instances of singletons that run on a node.
type hosts struct {
	node  *Node
	drops [dropReasons]atomic.Uint64

	mu      sync.Mutex
	known   map[string]*Singleton
	running map[node.Instance]*instance
	inboxes map[string]*Inbox // of those that run and were not asked to stop
	busy    underway
}

// instance is a singleton that runs.
type instance struct {
	node.Instance

	begun time.Time
	inbox *Inbox
	stop  context.CancelCauseFunc
	ended chan struct{}
}

// register notes a singleton.
func (h *hosts) register(s *Singleton) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known[s.Name] != nil {
		return invalid("there is a singleton with that name already")
	}
	if h.known == nil {
		h.known, h.running, h.inboxes = map[string]*Singleton{}, map[node.Instance]*instance{}, map[string]*Inbox{}
	}
	h.known[s.Name] = s
	return nil
}

func (h *hosts) unregister(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.known, name)
}

// start starts an instance. It is called by the loop.
func (h *hosts) start(base context.Context, n *Node, id node.Instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.known[id.Singleton]
	ctx, stop := context.WithCancelCause(base)
	i := &instance{Instance: id, begun: time.Now(), inbox: newInbox(s.MaxInbox), stop: stop, ended: make(chan struct{})}
	h.running[id], h.inboxes[id.Singleton] = i, i.inbox
	n.outlet.write(slog.LevelInfo, "a singleton starts here", slog.String("singleton", id.Singleton))
	h.tell(n, InstanceInfo{Singleton: id.Singleton, Nr: id.Nr})
	h.busy.more()
	go h.run(ctx, n, i, s.Run)
	go h.watch(ctx, n, i)
}

// stop asks an instance to end. It is called by the loop.
func (h *hosts) stop(id node.Instance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.running[id]; i != nil {
		h.close(i)
		i.stop(errHandOver)
	}
}

// stopAll asks all to end.
func (h *hosts) stopAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range h.running { // the order does not show
		h.close(i)
		i.stop(errHandOver)
	}
}

// close lets no more messages get to an instance. The lock is held.
func (h *hosts) close(i *instance) {
	if h.inboxes[i.Singleton] == i.inbox {
		delete(h.inboxes, i.Singleton)
	}
	i.inbox.close()
}

// run is an instance.
func (h *hosts) run(ctx context.Context, n *Node, i *instance, f func(context.Context, *Inbox) error) {
	err := errGoexit
	defer func() { h.ended(ctx, n, i, err) }()
	err = guard(func() error { return f(ctx, i.inbox) })
}

// ended notes that an instance has ended.
func (h *hosts) ended(ctx context.Context, n *Node, i *instance, err error) {
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
		n.outlet.write(slog.LevelInfo, "a singleton has stopped here", slog.String("singleton", i.Singleton))
	case err == nil:
		n.outlet.write(slog.LevelInfo, "a singleton has ended, it is not started again here", slog.String("singleton", i.Singleton))
	default:
		n.outlet.write(slog.LevelError, "a singleton has failed", slog.String("singleton", i.Singleton), slog.Any("error", err))
	}
	h.tell(n, InstanceInfo{Singleton: i.Singleton, Nr: i.Nr, Ended: true, Ran: ran, Err: err})
	n.inputs.add(node.InstanceEnded{Instance: i.Instance})
	h.busy.less()
}

// watch complains about an instance that does not stop.
func (h *hosts) watch(ctx context.Context, n *Node, i *instance) {
	select {
	case <-i.ended:
		return
	case <-ctx.Done():
	}
	asked := time.Now()
	h.tell(n, InstanceInfo{Singleton: i.Singleton, Nr: i.Nr, Stopping: true, Ran: asked.Sub(i.begun)})
	ticker := time.NewTicker(n.cfg.StopWarning)
	defer ticker.Stop()
	for {
		select {
		case <-i.ended:
			return
		case <-ticker.C:
			n.outlet.write(slog.LevelWarn, "a singleton does not stop, the others wait for it", slog.String("singleton", i.Singleton), slog.Duration("since", time.Since(asked)))
		}
	}
}

func (h *hosts) tell(n *Node, info InstanceInfo) {
	if f := n.cfg.Observer.Instance; f != nil {
		n.outlet.add(func() { f(info) })
	}
}

// inbox returns that of the instance that runs here.
func (h *hosts) inbox(name string) *Inbox {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inboxes[name]
}

// forget gives up what a node has asked that is gone.
func (h *hosts) forget(asker identity.Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, inbox := range h.inboxes { // the order does not matter
		inbox.forget(asker)
	}
}

// guard calls what is the user's.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// maxInboxBytes is how many bytes may wait for an instance.
const maxInboxBytes = 16 << 20

// Inbox is what proxies have sent to an instance. Messages of one sender come in order. Its methods are safe for concurrent
// use.
type Inbox struct {
	limit int
	news  chan struct{}

	mu     sync.Mutex
	queue  []*Delivery
	bytes  int                        // of the queue
	taken  map[*transport.Request]int // questions that were not answered yet, and their bytes
	open   int                        // bytes of those
	closed bool
}

// Delivery is a message of a proxy. If it was asked it has to be answered, by Reply or Refuse, at any time while the instance runs:
// until then it takes up room that Singleton.MaxInbox has.
type Delivery struct {
	// From is the node of the proxy.
	From    identity.Node
	Payload []byte

	request *transport.Request
	inbox   *Inbox
}

// Asked reports whether somebody waits for an answer.
func (d *Delivery) Asked() bool { return d.request != nil }

// Reply answers a question. It does nothing if there was none, or it was answered. An error is one of the transport's
// Send.
func (d *Delivery) Reply(payload []byte) error { return d.answer(answered, payload) }

// Refuse answers a question with an error, which matches ErrRefused and has this text.
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

func newInbox(limit int) *Inbox {
	return &Inbox{limit: limit, news: make(chan struct{}, 1), taken: map[*transport.Request]int{}}
}

// put takes a message. It returns what became of it.
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
	case waiting >= b.limit || bytes > maxInboxBytes:
		return busy
	}
	d.inbox = b
	b.queue = append(b.queue, d)
	b.bytes += len(d.Payload)
	wake(b.news)
	return answered
}

// Receive returns the next message. The error is the cause of ctx, which should be that of Singleton.Run or one derived from it.
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
			if len(b.queue) > 0 {
				wake(b.news) // for another who waits
			}
			b.mu.Unlock()
			return d, nil
		}
		b.mu.Unlock()
		select {
		case <-b.news:
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

// close takes no more messages, and answers those that wait: they are not handled.
func (b *Inbox) close() {
	b.mu.Lock()
	queue := b.queue
	b.queue, b.bytes, b.closed = nil, 0, true
	b.mu.Unlock()
	for _, d := range queue {
		_ = d.answer(notHosted, nil) // the asker may be gone
	}
}

// settle gives back the room of a question.
func (b *Inbox) settle(r *transport.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open -= b.taken[r]
	delete(b.taken, r)
}

// forget gives back the room of what a node has asked that is gone.
func (b *Inbox) forget(asker identity.Node) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r, size := range b.taken { // the order does not matter
		if r.From == asker {
			b.open -= size
			delete(b.taken, r)
		}
	}
}

// end answers what the instance has taken and not answered, now that it has ended.
func (b *Inbox) end() {
	b.mu.Lock()
	taken := slices.Collect(maps.Keys(b.taken)) // the order does not matter
	b.taken, b.open = nil, 0
	b.mu.Unlock()
	for _, r := range taken {
		_ = r.Reply(append([]byte{refused}, "the instance has ended"...)) // the asker may be gone
	}
}
