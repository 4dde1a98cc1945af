// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package eventsourcing

import "sync"

// pool runs jobs that wait for a store, first in, first out, on a bounded number
// of goroutines which exist only while there are jobs.
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

// next returns the next job, or nil when the goroutine is to end.
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

// wait waits for the jobs that were given so far.
func (p *pool) wait() { p.done.Wait() }
