// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/transport"
)

const (
	// askTimeout is how long Ask waits if its context has no end, attemptTimeout how
	// long for one of any nodes.
	askTimeout     = 10 * time.Second
	attemptTimeout = 2 * time.Second
)

// OperatorConfig says who asks.
type OperatorConfig struct {
	// Access is how to get to the servers.
	Access

	// Cluster is the name of the cluster. Required.
	Cluster string
	// Name is what nodes know the operator by: it has the alphabet of a node's name.
	// Required.
	Name string
}

func (c OperatorConfig) validate() error {
	var errs []error
	if err := identity.CheckCluster(c.Cluster); err != nil {
		errs = append(errs, fmt.Errorf("%w: OperatorConfig.Cluster: %w", ErrInvalid, err))
	}
	if err := identity.CheckName(c.Name); err != nil {
		errs = append(errs, fmt.Errorf("%w: OperatorConfig.Name: %w", ErrInvalid, err))
	}
	return errors.Join(errs...)
}

// Operator asks the nodes of a cluster. It implements transport.AdminClient.
type Operator struct {
	cfg OperatorConfig
	nc  *nats.Conn

	mu   sync.Mutex
	last int
	open map[int]context.CancelCauseFunc
}

var _ transport.AdminClient = (*Operator)(nil)

// ConnectOperator connects an operator. That no server answers, or lets the
// operator in, is an error. It takes at most Access.ConnectTimeout for each server. What
// rights the operator needs OperatorPermissions tells.
func ConnectOperator(cfg OperatorConfig) (*Operator, error) {
	opts, err := cfg.options()
	if err = errors.Join(err, cfg.validate()); err != nil {
		return nil, err
	}
	o := &Operator{cfg: cfg, open: make(map[int]context.CancelCauseFunc)}
	opts = append(opts,
		nats.RetryOnFailedConnect(false),
		nats.Name("refold operator "+cfg.Name),
		nats.CustomInboxPrefix(inbox(cfg.Cluster, inboxOperator, cfg.Name)),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { o.failed(err) }),
	)
	if o.nc, err = nats.Connect(strings.Join(cfg.URLs, ","), opts...); err != nil {
		return nil, fmt.Errorf("nats: connect: %w", cfg.explain(err))
	}
	return o, nil
}

// Ask implements transport.AdminClient. It waits for 10 s at most if ctx has no end. Who is
// asked as any node has 2 s to answer, then it may be another. Errors besides those of the
// interface: transport.ErrDisconnected while the servers are away, what NATS says, such as missing permissions,
// and the end of ctx.
func (o *Operator) Ask(ctx context.Context, node string, request []byte) ([]byte, error) {
	if len(request) > transport.MaxAdminRequest {
		return nil, fmt.Errorf("%w: %d bytes, %d are allowed", transport.ErrTooLarge, len(request), transport.MaxAdminRequest)
	}
	whom := "any node"
	if node != "" {
		if err := identity.CheckName(node); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		whom = fmt.Sprintf("node %q", node)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, askTimeout)
		defer cancel()
	}
	ctx, end := o.begin(ctx)
	defer end()
	answer, err := o.request(ctx, node, request)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("%w: %s of cluster %q is not connected to these servers", transport.ErrNoNode, whom, o.cfg.Cluster)
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrDisconnected):
		// The client names the size of its buffer, which is none.
		return nil, fmt.Errorf("nats: ask %s of cluster %q: the operator is not connected to %s: %w", whom, o.cfg.Cluster, o.cfg.servers(), transport.ErrDisconnected)
	case ctx.Err() != nil && !o.nc.IsConnected():
		return nil, fmt.Errorf("nats: ask %s of cluster %q: the operator is not connected to %s: %w: %w",
			whom, o.cfg.Cluster, o.cfg.servers(), transport.ErrDisconnected, context.Cause(ctx))
	case ctx.Err() != nil:
		return nil, fmt.Errorf("nats: ask %s of cluster %q: no answer: %w", whom, o.cfg.Cluster, context.Cause(ctx))
	case err != nil:
		return nil, fmt.Errorf("nats: ask %s of cluster %q: %w", whom, o.cfg.Cluster, err)
	}
	return answer, nil
}

// request returns the first answer.
func (o *Operator) request(ctx context.Context, node string, request []byte) ([]byte, error) {
	subject := ask(o.cfg.Cluster, node, o.cfg.Name)
	for {
		attempt, cancel := ctx, context.CancelFunc(func() {})
		if node == "" {
			attempt, cancel = context.WithTimeout(ctx, attemptTimeout)
		}
		m, err := o.nc.RequestWithContext(attempt, subject, request)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			continue // it may be paused, and another one not
		case err != nil:
			return nil, err
		}
		if code := m.Header.Get(failureHeader); code != "" {
			return nil, failure(code)
		}
		return m.Data, nil
	}
}

// begin returns a context that ends, too, when the server refuses something.
func (o *Operator) begin(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last++
	id := o.last
	o.open[id] = cancel
	return ctx, func() {
		o.mu.Lock()
		delete(o.open, id)
		o.mu.Unlock()
		cancel(nil)
	}
}

// failed ends what waits for an answer that a server has made impossible.
func (o *Operator) failed(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, cancel := range o.open {
		cancel(err)
	}
}

// Close implements transport.AdminClient.
func (o *Operator) Close() error {
	o.nc.Close()
	return nil
}

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

// ServeAdmin implements transport.AdminCarrier. It uses the connection for data, so that
// operators can't hold up heartbeats.
func (c *Carrier) ServeAdmin(take func(transport.AdminRequest)) error {
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
