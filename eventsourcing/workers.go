// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/internal/engine"
)

// slowTurn is the duration of a turn after which another worker is started in addition.
const slowTurn = 10 * time.Millisecond

// workers takes the turns of entities on a fixed number of goroutines. A turn never waits for the journal
// or for another entity. If a turn takes long because a handler blocks, an additional worker is started.
type workers struct {
	effects    *sync.Pool
	mu         sync.Mutex
	cond       sync.Cond
	head, tail *entity // entities that need a turn
	idle       int
	running    []*worker // all workers
	want       int       // number of workers while none is slow
	waking     bool      // an idle worker was signalled and has not run yet
	watching   bool      // watch is scheduled
	closed     bool
	done       sync.WaitGroup
}

type worker struct {
	turn atomic.Uint64 // incremented at the begin and the end of a turn: odd during a turn
	seen uint64        // turn at the last watch
	slow bool          // the worker was in the same turn at the last two watches
}

func newWorkers(n int, effects *sync.Pool) *workers {
	w := &workers{want: n, effects: effects}
	w.cond.L = &w.mu
	w.mu.Lock()
	defer w.mu.Unlock()
	for range n {
		w.start()
	}
	return w
}

// start starts a worker. mu is locked.
func (w *workers) start() {
	one := &worker{}
	w.running = append(w.running, one)
	w.done.Add(1)
	go w.run(one)
}

func (w *workers) push(e *entity) {
	w.mu.Lock()
	e.next = nil
	if w.tail == nil {
		w.head = e
	} else {
		w.tail.next = e
	}
	w.tail = e
	if !w.watching && w.idle == 0 && len(w.running) > 0 {
		w.watching = true
		time.AfterFunc(slowTurn, w.watch)
	}
	wake := w.wakeOne()
	w.mu.Unlock()
	if wake {
		w.cond.Signal()
	}
}

// wakeOne reports whether the caller must signal an idle worker. mu is locked. Workers are woken one
// at a time: each wakes the next one if more entities wait.
func (w *workers) wakeOne() bool {
	if w.idle == 0 || w.waking || w.head == nil {
		return false
	}
	w.waking = true
	return true
}

func (w *workers) run(one *worker) {
	defer w.done.Done()
	var e *entity // in a turn
	defer func() {
		if e != nil { // user code called runtime.Goexit: another worker takes over
			w.mu.Lock()
			w.leave(one)
			w.start()
			w.mu.Unlock()
			w.push(e)
		}
	}()
	out := w.effects.Get().(*engine.Effects) //nolint:errcheck,forcetypeassert // it holds nothing else
	defer w.effects.Put(out)
	w.mu.Lock()
	for {
		for w.head == nil && !w.closed && len(w.running) <= w.want {
			w.idle++
			w.cond.Wait()
			w.idle--
			w.waking = false
		}
		if w.head == nil || len(w.running)-w.slow() > w.want {
			w.leave(one)
			w.mu.Unlock()
			return
		}
		e = w.head
		w.head = e.next
		if w.head == nil {
			w.tail = nil
		}
		wake := w.wakeOne()
		w.mu.Unlock()
		if wake {
			w.cond.Signal()
		}
		one.turn.Add(1)
		again := e.takeTurn(out)
		one.turn.Add(1)
		if again {
			w.push(e)
		}
		e = nil
		w.mu.Lock()
	}
}

// slow returns the number of workers whose turn takes too long. mu is locked.
func (w *workers) slow() int {
	if len(w.running) == w.want && !w.watching {
		return 0
	}
	n := 0
	for _, one := range w.running {
		if one.slow && one.turn.Load() == one.seen {
			n++
		}
	}
	return n
}

// leave removes an ending worker. mu is locked.
func (w *workers) leave(one *worker) {
	i := slices.Index(w.running, one)
	w.running = slices.Delete(w.running, i, i+1)
}

// watch starts additional workers for slow ones while entities wait.
func (w *workers) watch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.head == nil || len(w.running) == 0 { // after close, no worker runs
		w.watching = false
		return
	}
	for _, one := range w.running {
		turn := one.turn.Load()
		one.slow = turn%2 == 1 && turn == one.seen
		one.seen = turn
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

// pool runs jobs that wait for a store, in order, on a limited number of goroutines. The goroutines
// exist only while there are jobs.
type pool struct {
	mu      sync.Mutex
	jobs    []func()
	limit   int
	running int
	done    sync.WaitGroup
}

func (p *pool) do(job func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == p.limit {
		p.jobs = append(p.jobs, job)
		return
	}
	p.running++
	p.done.Add(1)
	go p.run(job)
}

func (p *pool) run(job func()) {
	defer p.done.Done()
	for job != nil {
		job()
		job = p.next()
	}
}

// next returns the next job, or nil if the goroutine must end.
func (p *pool) next() func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.jobs) == 0 {
		p.running--
		p.jobs = nil
		return nil
	}
	job := p.jobs[0]
	p.jobs[0] = nil
	p.jobs = p.jobs[1:]
	return job
}

func (p *pool) wait() { p.done.Wait() }
