// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/link"
)

// MaxAdminRequest is the largest request of an operator, in bytes.
const MaxAdminRequest = 64 << 10

const (
	maxAdmins        = 4           // that run at a time
	maxAdminsWaiting = 64          // for one of those to end
	adminTimeout     = time.Minute // of one
)

// AdminHandler answers requests of operators. Its context ends when the
// transport is closed, and after a minute. At most four run at a time.
type AdminHandler func(ctx context.Context, operator string, request []byte) []byte

// admin is what there is to do for operators.
type admin struct {
	begin sync.Mutex // held while the carrier is told to begin
	begun bool

	// Transport.mu guards the rest.

	handler AdminHandler
	running int
	waiting []AdminRequest
	// asked counts the requests, refused those for which there was no room, or that
	// are too large.
	asked, refused uint64
}

// HandleAdmin sets who answers operators, in place of an earlier handler. From the
// first one on the node is one that operators find. The error matches
// errors.ErrUnsupported if the carrier has no way for operators.
func (t *Transport) HandleAdmin(h AdminHandler) error {
	carrier, ok := t.carrier.(Operable)
	if !ok {
		return fmt.Errorf("transport: operators can't reach %v: the carrier: %w", t.self, errors.ErrUnsupported)
	}
	t.mu.Lock()
	t.admin.handler = h
	t.mu.Unlock()
	t.admin.begin.Lock()
	defer t.admin.begin.Unlock()
	if t.admin.begun || h == nil {
		return nil
	}
	if err := carrier.Operate(t.admit); err != nil {
		return fmt.Errorf("transport: let operators reach %v: %w", t.self, err)
	}
	t.admin.begun = true
	return nil
}

// admit takes a request from the carrier.
func (t *Transport) admit(r AdminRequest) {
	if err := t.queueAdmin(r); err != nil {
		r.Reply(nil, err)
	}
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

// runAdmin answers a request, and then those that wait.
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
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		answer, err = nil, ErrHandlerFailed
		t.loose.dropped[link.Panicked].Add(1)
		t.log.ErrorContext(t.base, "handler of an operator's request panicked", slog.String("operator", r.Operator),
			slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
	}()
	t.mu.Lock()
	h := t.admin.handler
	t.mu.Unlock()
	switch {
	case t.base.Err() != nil:
		return nil, ErrClosed
	case h == nil:
		return nil, ErrNoHandler
	}
	if answer = h(ctx, r.Operator, r.Payload); len(answer) > t.carrier.MaxFrame() {
		return nil, ErrTooLarge
	}
	return answer, nil
}
