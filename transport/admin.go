// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/panics"
)

// MaxAdminRequest is the size of the largest request of an operator, in bytes.
const MaxAdminRequest = 64 << 10

const (
	// Limits of requests by operators.
	maxAdmins        = 4           // handled concurrently
	maxAdminsWaiting = 64          // queued
	adminTimeout     = time.Minute // for each request
)

// AdminHandler answers requests of operators. Its context ends after one minute, or when the
// transport is closed. At most four calls run concurrently.
type AdminHandler func(ctx context.Context, operator string, request []byte) []byte

type admin struct {
	serveMu sync.Mutex // held while the carrier starts to serve requests
	serving bool

	// Transport.mu guards the rest.

	handler AdminHandler
	running int
	waiting []AdminRequest
	// asked counts all requests. refused counts the requests that were rejected because of their
	// size or a full queue.
	asked, refused uint64
}

// HandleAdmin sets the handler of requests by operators and replaces an earlier one. Operators can
// find the node from the first call on. The error matches errors.ErrUnsupported if the carrier does
// not support operators.
func (t *Transport) HandleAdmin(h AdminHandler) error {
	carrier, ok := t.carrier.(AdminCarrier)
	if !ok {
		return fmt.Errorf("transport: serve operators at %v: carrier: %w", t.self, errors.ErrUnsupported)
	}
	t.mu.Lock()
	t.admin.handler = h
	t.mu.Unlock()
	t.admin.serveMu.Lock()
	defer t.admin.serveMu.Unlock()
	if t.admin.serving || h == nil {
		return nil
	}
	serve := func(r AdminRequest) {
		if err := t.queueAdmin(r); err != nil {
			r.Reply(nil, err)
		}
	}
	if err := carrier.ServeAdmin(serve); err != nil {
		return fmt.Errorf("transport: serve operators at %v: %w", t.self, err)
	}
	t.admin.serving = true
	return nil
}

func (t *Transport) queueAdmin(r AdminRequest) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := &t.admin
	a.asked++
	switch {
	case t.closed:
		return ErrClosed
	case len(r.Payload) > MaxAdminRequest:
		a.refused++
		return ErrTooLarge
	case a.running < maxAdmins:
		a.running++
		t.pool.run(func() { t.runAdmin(r) })
	case len(a.waiting) < maxAdminsWaiting:
		a.waiting = append(a.waiting, r)
	default:
		a.refused++
		return ErrBackpressure
	}
	return nil
}

// runAdmin answers a request, and then the queued requests.
func (t *Transport) runAdmin(r AdminRequest) {
	for {
		r.Reply(t.answerAdmin(r))
		t.mu.Lock()
		if len(t.admin.waiting) == 0 {
			t.admin.running--
			t.mu.Unlock()
			return
		}
		r = t.admin.waiting[0]
		t.admin.waiting = t.admin.waiting[1:]
		t.mu.Unlock()
	}
}

func (t *Transport) answerAdmin(r AdminRequest) (answer []byte, err error) {
	ctx, cancel := context.WithTimeout(t.base, adminTimeout)
	defer cancel()
	t.mu.Lock()
	h := t.admin.handler
	t.mu.Unlock()
	switch {
	case t.base.Err() != nil:
		return nil, ErrClosed
	case h == nil:
		return nil, ErrNoHandler
	}
	switch p := panics.Call(func() { answer = h(ctx, r.Operator, r.Payload) }); {
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
