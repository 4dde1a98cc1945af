// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package groupcommit_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/refold-io/refold/internal/groupcommit"
	"github.com/refold-io/refold/journal"
)

func discard(context.Context, []journal.Write) []error { return nil }

// BenchmarkWriterLoop measures a write on the goroutine of the Writer: each owner submits again
// when it receives the outcome.
func BenchmarkWriterLoop(b *testing.B) {
	for _, owners := range []int{1, 1_000, 100_000} {
		b.Run(fmt.Sprintf("owners=%d", owners), func(b *testing.B) {
			w, err := groupcommit.New(&fake{append: discard}, journal.WriterConfig{MaxQueuedWrites: 1 << 20})
			if err != nil {
				b.Fatal(err)
			}
			l := &loop{w: w, done: make(chan struct{})}
			l.left.Store(int64(b.N))
			b.ReportAllocs()
			for i := range owners {
				w.Submit(&groupcommit.Request{Write: benchWrite(i), Stream: new(groupcommit.Stream), Owner: l})
			}
			<-l.done
			b.StopTimer()
			if err := w.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func benchWrite(i int) journal.Write {
	return journal.Write{
		ID: fmt.Sprint("account|", i), Writer: "4f77462f627e223c",
		Events: []journal.Event{{SequenceNr: 1, Manifest: "deposited", Payload: make([]byte, 32)}},
	}
}

type loop struct {
	w    *groupcommit.Writer
	left atomic.Int64
	done chan struct{}
}

func (l *loop) Written(r *groupcommit.Request, _ error) {
	switch left := l.left.Add(-1); {
	case left > 0:
		l.w.Submit(r)
	case left == 0:
		close(l.done)
	}
}

func (l *loop) Room() {}

// BenchmarkWriterSubmit measures a write of other goroutines, each of which submits up to 512
// requests ahead.
func BenchmarkWriterSubmit(b *testing.B) {
	for _, calls := range []int{1, 4} {
		b.Run(fmt.Sprintf("calls=%d", calls), func(b *testing.B) {
			w, err := groupcommit.New(&parallel{max: calls, fake: fake{append: discard}}, journal.WriterConfig{})
			if err != nil {
				b.Fatal(err)
			}
			var ids atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				s := &submitter{}
				s.wake.L = &s.mu
				for range 512 {
					s.free = append(s.free, &groupcommit.Request{Write: benchWrite(int(ids.Add(1))), Stream: new(groupcommit.Stream), Owner: s})
				}
				for pb.Next() {
					w.Submit(s.take())
				}
				for range 512 {
					s.take()
				}
			})
			b.StopTimer()
			if err := w.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

type submitter struct {
	mu   sync.Mutex
	wake sync.Cond
	free []*groupcommit.Request
}

func (s *submitter) take() *groupcommit.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.free) == 0 {
		s.wake.Wait()
	}
	r := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return r
}

func (s *submitter) Written(r *groupcommit.Request, _ error) {
	s.mu.Lock()
	s.free = append(s.free, r)
	s.mu.Unlock()
	s.wake.Signal()
}

func (s *submitter) Room() {}
