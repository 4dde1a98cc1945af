// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/refold-io/refold/transport"
)

// What may wait for the receiver, which takes requests at once.
const (
	maxPendingAdmins     = 1024
	maxPendingAdminBytes = 4 << 20
)

// failureHeader is where an answer says why there is none.
const failureHeader = "Refold-Failure"

// failed is an error and what stands in failureHeader for it.
type failed struct {
	code string
	err  error
}

func failures() []failed {
	return []failed{
		{"no_handler", transport.ErrNoHandler},
		{"backpressure", transport.ErrBackpressure},
		{"too_large", transport.ErrTooLarge},
		{"handler_failed", transport.ErrHandlerFailed},
		{"closed", transport.ErrClosed},
	}
}

// failureCode returns how an error is written.
func failureCode(err error) string {
	for _, f := range failures() {
		if errors.Is(err, f.err) {
			return f.code
		}
	}
	return "unknown"
}

// failure returns the error that was written.
func failure(code string) error {
	for _, f := range failures() {
		if f.code == code {
			return f.err
		}
	}
	return fmt.Errorf("%w: %.40q", transport.ErrHandlerFailed, code)
}

// Operate implements transport.Operable. It uses the connection for data, so that
// operators can't hold up heartbeats.
func (c *Carrier) Operate(take func(transport.AdminRequest)) error {
	c.mu.Lock()
	if c.closed || c.take != nil {
		closed := c.closed
		c.mu.Unlock()
		if closed {
			return ErrClosed
		}
		return errStarted
	}
	c.take = take
	c.mu.Unlock()
	conn := c.conns[1]
	named, any := c.subjects.admin()
	for _, subject := range []string{named, any} {
		// In a queue group one gets each request.
		sub, err := conn.nc.QueueSubscribe(subject, "refold", c.admit)
		if err != nil {
			return fmt.Errorf("nats: subscribe to %s: %w", subject, err)
		}
		if err := sub.SetPendingLimits(maxPendingAdmins, maxPendingAdminBytes); err != nil {
			return fmt.Errorf("nats: limit what waits on %s: %w", subject, err)
		}
	}
	if conn.nc.IsConnected() {
		return conn.flush(context.Background()) // from here on operators find it
	}
	return nil
}

// admit hands a request on.
func (c *Carrier) admit(m *nats.Msg) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed || m.Reply == "" {
		return
	}
	c.take(transport.AdminRequest{
		Operator: sender(m.Subject), Payload: m.Data,
		Reply: func(answer []byte, err error) { c.answer(m.Reply, answer, err) },
	})
}

func (c *Carrier) answer(to string, payload []byte, err error) {
	msg := &nats.Msg{Subject: to, Data: payload}
	if err != nil {
		msg.Data, msg.Header = nil, nats.Header{failureHeader: {failureCode(err)}}
	}
	_ = c.conns[1].nc.PublishMsg(msg) // an answer may be lost
}
