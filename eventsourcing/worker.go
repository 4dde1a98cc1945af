// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/eventsourcing/engine"
)

// slowTurn is how long a turn may take before the worker gets a substitute.
const slowTurn = 10 * time.Millisecond

// task is an entity that has something to do.
type task struct {
	next *task
	// turn takes one turn and reports whether another one is needed.
	turn turner
}

type turner interface {
	takeTurn(out *engine.Effects) (again bool)
}

// workers runs tasks on a few long-lived goroutines. A turn never waits for the
// journal or for another entity; for one that takes long all the same, because
// a handler does, a substitute is started.
type workers struct {
	mu         sync.Mutex
	cond       sync.Cond
	head, tail *task
	idle       int
	running    []*worker // all goroutines
	want       int       // how many there are to be while none is slow
	watching   bool
	closed     bool
	done       sync.WaitGroup
	sinceStart time.Time
}

type worker struct {
	began atomic.Int64 // of the present turn since sinceStart, 0 while there is none
}

func newWorkers(n int) *workers {
	w := &workers{want: n, sinceStart: time.Now()}
	w.cond.L = &w.mu
	w.mu.Lock()
	defer w.mu.Unlock()
	for range n {
		w.start()
	}
	return w
}

// start starts a worker; the mutex is held.
func (w *workers) start() {
	one := &worker{}
	w.running = append(w.running, one)
	w.done.Add(1)
	go w.run(one)
}

// push puts a task at the end of the queue.
func (w *workers) push(t *task) {
	w.mu.Lock()
	t.next = nil
	if w.tail == nil {
		w.head = t
	} else {
		w.tail.next = t
	}
	w.tail = t
	wake := w.idle > 0
	if !wake && !w.watching && !w.closed {
		w.watching = true
		time.AfterFunc(slowTurn, w.watch)
	}
	w.mu.Unlock()
	if wake {
		w.cond.Signal()
	}
}

func (w *workers) run(one *worker) {
	defer w.done.Done()
	out := &engine.Effects{}
	w.mu.Lock()
	for {
		for w.head == nil && !w.closed && len(w.running) <= w.want {
			w.idle++
			w.cond.Wait()
			w.idle--
		}
		if w.head == nil || len(w.running) > w.want && w.retire(one) {
			w.leave(one)
			w.mu.Unlock()
			return
		}
		t := w.head
		w.head = t.next
		if w.head == nil {
			w.tail = nil
		}
		w.mu.Unlock()
		one.began.Store(int64(time.Since(w.sinceStart)) + 1)
		again := t.turn.takeTurn(out)
		one.began.Store(0)
		if again {
			w.push(t)
		}
		w.mu.Lock()
	}
}

// retire reports whether a worker is one too many: none of the others is slow
// any more.
func (w *workers) retire(*worker) bool { return len(w.running)-w.slow() > w.want }

// slow counts the workers whose turn takes too long; the mutex is held.
func (w *workers) slow() int {
	limit := int64(time.Since(w.sinceStart) - slowTurn)
	n := 0
	for _, one := range w.running {
		if began := one.began.Load(); began != 0 && began < limit {
			n++
		}
	}
	return n
}

func (w *workers) leave(one *worker) {
	for i, r := range w.running {
		if r == one {
			last := len(w.running) - 1
			w.running[i], w.running[last] = w.running[last], nil
			w.running = w.running[:last]
			return
		}
	}
}

// watch starts substitutes for slow workers while there is work to do.
func (w *workers) watch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.head == nil {
		w.watching = false
		return
	}
	for n := w.slow() - (len(w.running) - w.want); n > 0; n-- {
		w.start()
	}
	time.AfterFunc(slowTurn, w.watch)
}

// close waits until the queue is empty and all turns have ended.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.cond.Broadcast()
	w.done.Wait()
}
