// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/panics"
)

// MaxAdminRequest is the size of the largest request of an operator, in bytes.
const MaxAdminRequest = 64 << 10

const (
	// Limits of requests by operators, for each right. The limits for one operator are lower, so
	// that other operators can send requests while one operator uses all of its slots.
	maxAdmins            = 8           // handled concurrently
	maxAdminsWaiting     = 64          // queued
	operatorAdmins       = 4           // handled concurrently for one operator
	operatorAdminsQueued = 16          // queued for one operator
	adminTimeout         = time.Minute // for each request, including the time in the queue
)

// AdminHandler answers requests of operators for a service. Its context ends one minute after the
// arrival of the request, or when the transport is closed. For each right, at most eight calls run
// concurrently, and at most four of the same operator. The slots of reads and actions are separate.
type AdminHandler func(ctx context.Context, operator, service string, right AdminRight, request []byte) []byte

type admin struct {
	serveMu   sync.Mutex // held while the carrier starts to serve requests
	serves    bool       // requests to the name of the node
	servesAny bool       // also requests to any node

	// Transport.mu guards the rest.

	handler AdminHandler
	slots   [adminRights]adminSlots
	// asked counts all requests. refused counts the requests that were rejected because of their
	// size or a full queue, or that waited too long.
	asked, refused uint64
}

// adminSlots are the requests that use the same right.
type adminSlots struct {
	running map[string]int // by operator
	total   int            // sum of running
	waiting []adminRequest
}

// adminRequest is a request with its deadline.
type adminRequest struct {
	AdminRequest

	until time.Time
}

// free reports whether a request of an operator can start.
func (s *adminSlots) free(operator string) bool {
	return s.total < maxAdmins && s.running[operator] < operatorAdmins
}

// full reports whether no request of an operator can be queued.
func (s *adminSlots) full(operator string) bool {
	own := 0
	for i := range s.waiting {
		if s.waiting[i].Operator == operator {
			own++
		}
	}
	return len(s.waiting) == maxAdminsWaiting || own == operatorAdminsQueued
}

func (s *adminSlots) start(operator string) {
	if s.running == nil {
		s.running = map[string]int{}
	}
	s.running[operator]++
	s.total++
}

// end ends a request and returns the queued request that can start in its place.
func (s *adminSlots) end(operator string) (next adminRequest, ok bool) {
	if s.total--; s.running[operator] > 1 {
		s.running[operator]--
	} else {
		delete(s.running, operator)
	}
	i := slices.IndexFunc(s.waiting, func(r adminRequest) bool { return s.free(r.Operator) })
	if i < 0 {
		return adminRequest{}, false
	}
	next = s.waiting[i]
	s.waiting = slices.Delete(s.waiting, i, i+1)
	s.start(next.Operator)
	return next, true
}

// HandleAdmin sets the handler of requests by operators and replaces an earlier one. Operators can
// find the node from the first call on. The error matches errors.ErrUnsupported if the carrier does
// not support operators.
func (t *Transport) HandleAdmin(h AdminHandler) error { return t.handleAdmin(h, true) }

// HandleNamedAdmin is like HandleAdmin for a node that cannot answer for its cluster yet: the node
// receives no requests that are addressed to any node. HandleAdmin may be called later.
func (t *Transport) HandleNamedAdmin(h AdminHandler) error { return t.handleAdmin(h, false) }

func (t *Transport) handleAdmin(h AdminHandler, servesAny bool) error {
	carrier, ok := t.carrier.(AdminCarrier)
	if !ok {
		return fmt.Errorf("transport: serve operators at %v: carrier: %w", t.self, errors.ErrUnsupported)
	}
	t.mu.Lock()
	t.admin.handler = h
	t.mu.Unlock()
	a := &t.admin
	a.serveMu.Lock()
	defer a.serveMu.Unlock()
	if h == nil || a.servesAny || a.serves && !servesAny {
		return nil
	}
	begin := carrier.ServeNamedAdmin
	if servesAny {
		begin = carrier.ServeAdmin
	}
	err := begin(func(r AdminRequest) {
		if err := t.queueAdmin(r); err != nil {
			r.Reply(nil, err)
		}
	})
	if err != nil {
		return fmt.Errorf("transport: serve operators at %v: %w", t.self, err)
	}
	a.serves, a.servesAny = true, servesAny
	return nil
}

func (t *Transport) queueAdmin(r AdminRequest) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := &t.admin
	a.asked++
	slots, queued := &a.slots[min(r.Right, AdminAct)], adminRequest{r, time.Now().Add(adminTimeout)}
	switch {
	case t.closed:
		return ErrClosed
	case len(r.Payload) > MaxAdminRequest:
		a.refused++
		return ErrTooLarge
	case slots.free(r.Operator):
		slots.start(r.Operator)
		t.pool.run(func() { t.runAdmin(slots, queued) })
	case slots.full(r.Operator):
		a.refused++
		return ErrBackpressure
	default:
		slots.waiting = append(slots.waiting, queued)
	}
	return nil
}

// runAdmin answers a request and starts a queued one.
func (t *Transport) runAdmin(slots *adminSlots, r adminRequest) {
	var answer []byte
	err := ErrHandlerFailed
	defer func() { // also if the handler ends its goroutine
		r.Reply(answer, err)
		t.mu.Lock()
		next, ok := slots.end(r.Operator)
		t.mu.Unlock()
		if ok {
			t.pool.run(func() { t.runAdmin(slots, next) })
		}
	}()
	answer, err = t.answerAdmin(&r)
}

func (t *Transport) answerAdmin(r *adminRequest) (answer []byte, err error) {
	ctx, cancel := context.WithDeadline(t.base, r.until)
	defer cancel()
	t.mu.Lock()
	h := t.admin.handler
	expired := ctx.Err() != nil && t.base.Err() == nil // the operator no longer waits
	if expired {
		t.admin.refused++
	}
	t.mu.Unlock()
	switch {
	case expired:
		return nil, ErrBackpressure
	case t.base.Err() != nil:
		return nil, ErrClosed
	case h == nil:
		return nil, ErrNoHandler
	}
	switch p := panics.Call(func() { answer = h(ctx, r.Operator, r.Service, r.Right, r.Payload) }); {
	case p != nil:
		t.counters.dropped[link.Panicked].Add(1)
		t.log.ErrorContext(t.base, "admin handler panicked", slog.String("operator", r.Operator),
			slog.String("panic", fmt.Sprint(p.Value)), slog.String("stack", string(p.Stack)))
		return nil, ErrHandlerFailed
	case len(answer) > t.carrier.MaxFrame():
		return nil, ErrTooLarge
	}
	return answer, nil
}
