// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/node"
)

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
