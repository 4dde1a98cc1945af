// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/transport"
)

const (
	// askTimeout limits an Ask whose context has no deadline. attemptTimeout limits the attempt
	// with one node if any node may answer.
	askTimeout     = 10 * time.Second
	attemptTimeout = 2 * time.Second
)

// OperatorConfig is the configuration of an Operator.
type OperatorConfig struct {
	// Access holds the addresses of the servers and the credentials.
	Access

	// Cluster is the name of the cluster. Required.
	Cluster string
	// Name identifies the operator to the nodes. It has the alphabet of a node's name. Required.
	Name string
}

func (c OperatorConfig) validate() error {
	var errs fielderror.Errors
	errs.Add("OperatorConfig.Cluster", identity.CheckCluster(c.Cluster))
	errs.Add("OperatorConfig.Name", identity.CheckName(c.Name))
	return errs.Err(ErrInvalid)
}

// Operator sends requests to the nodes of a cluster. It implements transport.AdminClient.
type Operator struct {
	cfg OperatorConfig
	nc  *nats.Conn

	mu   sync.Mutex
	asks map[string]*loop.Calls // by asks: the prefix of the subjects
}

var _ transport.AdminClient = (*Operator)(nil)

// ConnectOperator connects an operator. It returns an error if no server answers or accepts the
// operator, after at most Access.ConnectTimeout per server. OperatorPermissions returns the
// permissions that the operator needs.
func ConnectOperator(cfg OperatorConfig) (*Operator, error) {
	opts, err := cfg.options()
	if err = errors.Join(err, cfg.validate()); err != nil {
		return nil, err
	}
	o := &Operator{cfg: cfg}
	opts = append(opts,
		nats.RetryOnFailedConnect(false),
		nats.Name("refold operator "+cfg.Name),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				o.refused(err)
			}
		}),
	)
	if o.nc, err = nats.Connect(strings.Join(cfg.URLs, ","), opts...); err != nil {
		return nil, fmt.Errorf("nats: connect: %w", cfg.explain(err))
	}
	return o, nil
}

// refused ends the requests that cannot succeed because the server refused a subject.
func (o *Operator) refused(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// The text names the subject. If it is the subject of another right or service, requests that use
	// this one can succeed.
	requests := strings.Contains(why.Error(), root+token(o.cfg.Cluster)+".admin.")
	for prefix, calls := range o.asks {
		if !requests || strings.Contains(why.Error(), prefix) {
			calls.Fail(fmt.Errorf("%w: %w", transport.ErrDenied, why))
		}
	}
}

// callsOf returns the calls that use a right to a service.
func (o *Operator) callsOf(right transport.AdminRight, service string) *loop.Calls {
	prefix := asks(o.cfg.Cluster, right, service)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.asks == nil {
		o.asks = map[string]*loop.Calls{}
	}
	if o.asks[prefix] == nil {
		o.asks[prefix] = &loop.Calls{}
	}
	return o.asks[prefix]
}

// Ask implements transport.AdminClient. It waits at most 10 s if ctx has no deadline. A request to
// any node waits 2 s for one node and then tries another one. In addition to the errors of the
// interface it returns transport.ErrDisconnected while no server is connected, errors of NATS, and
// the cause of ctx.
func (o *Operator) Ask(ctx context.Context, service string, right transport.AdminRight, node string, request []byte) ([]byte, error) {
	if len(request) > transport.MaxAdminRequest {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", transport.ErrTooLarge, len(request), transport.MaxAdminRequest)
	}
	if err := identity.CheckName(service); err != nil {
		return nil, fmt.Errorf("%w: service: %w", ErrInvalid, err)
	}
	target := "any node"
	if node != "" {
		if err := identity.CheckName(node); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		target = fmt.Sprintf("node %q", node)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, askTimeout)
		defer cancel()
	}
	right = min(right, transport.AdminAct)
	ctx, end := o.callsOf(right, service).Begin(ctx) // a context that also ends when the server refuses a subject
	defer end()
	answer, err := o.request(ctx, service, right, node, request)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("%w: %s of cluster %q is not connected to these servers", transport.ErrNoNode, target, o.cfg.Cluster)
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrDisconnected):
		// The client's error describes its reconnect buffer, which is disabled.
		return nil, fmt.Errorf("nats: ask %s of cluster %q: the operator is not connected to %s: %w", target, o.cfg.Cluster, o.cfg.servers(), transport.ErrDisconnected)
	case errors.Is(context.Cause(ctx), transport.ErrDenied):
		return nil, fmt.Errorf("nats: ask the service %s of %s of cluster %q to %v: %w", service, target, o.cfg.Cluster, right, context.Cause(ctx))
	case ctx.Err() != nil && !o.nc.IsConnected():
		return nil, fmt.Errorf("nats: ask %s of cluster %q: the operator is not connected to %s: %w: %w",
			target, o.cfg.Cluster, o.cfg.servers(), transport.ErrDisconnected, context.Cause(ctx))
	case ctx.Err() != nil:
		return nil, fmt.Errorf("nats: ask %s of cluster %q: no answer: %w", target, o.cfg.Cluster, context.Cause(ctx))
	case err != nil:
		return nil, fmt.Errorf("nats: ask %s of cluster %q: %w", target, o.cfg.Cluster, err)
	}
	return answer, nil
}

func (o *Operator) request(ctx context.Context, service string, right transport.AdminRight, node string, request []byte) ([]byte, error) {
	// All nodes may publish to the operator's inbox, so the reply subject is random.
	subject, reply := ask(o.cfg.Cluster, right, service, node, o.cfg.Name), inbox(o.cfg.Cluster, inboxOperator, o.cfg.Name)+"."+rand.Text()
	replies, err := o.nc.SubscribeSync(reply)
	if err != nil {
		return nil, err
	}
	defer func() { _ = replies.Unsubscribe() }() // the error only reports a closed connection
	for {
		attempt, cancel := ctx, context.CancelFunc(func() {})
		if node == "" {
			attempt, cancel = context.WithTimeout(ctx, attemptTimeout)
		}
		var m *nats.Msg
		if err = o.nc.PublishRequest(subject, reply, request); err == nil {
			m, err = replies.NextMsgWithContext(attempt)
		}
		cancel()
		switch {
		case err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			continue // the node may be paused; another one may reply
		case err != nil:
			return nil, err
		}
		if code := m.Header.Get(failureHeader); code != "" {
			return nil, failure(code)
		}
		return m.Data, nil
	}
}

// Close implements transport.AdminClient.
func (o *Operator) Close() error {
	o.nc.Close()
	return nil
}

// Limits of the requests that wait for the receiver. The receiver takes requests at once.
const (
	maxPendingAdmins     = 1024
	maxPendingAdminBytes = 4 << 20
)

// failureHeader is the header of a reply with an error.
const failureHeader = "Refold-Failure"

// failures returns the errors of replies by their codes in failureHeader.
func failures() map[string]error {
	return map[string]error{
		"no_handler": transport.ErrNoHandler, "backpressure": transport.ErrBackpressure, "too_large": transport.ErrTooLarge,
		"handler_failed": transport.ErrHandlerFailed, "closed": transport.ErrClosed,
	}
}

func failureCode(err error) string {
	for code, known := range failures() {
		if errors.Is(err, known) {
			return code
		}
	}
	return "unknown"
}

func failure(code string) error {
	if err, known := failures()[code]; known {
		return err
	}
	return fmt.Errorf("%w: %.40q", transport.ErrHandlerFailed, code)
}

// ServeNamedAdmin implements transport.AdminCarrier. It uses the data connection, so that operators
// cannot delay heartbeats.
func (c *Carrier) ServeNamedAdmin(take func(transport.AdminRequest)) error {
	if err := c.once(func() bool { return c.handleAdmin != nil }, func() { c.handleAdmin = take }); err != nil {
		return err
	}
	named, _ := c.subjects.admin()
	return c.subscribeAdmin(named)
}

// ServeAdmin implements transport.AdminCarrier. It uses the data connection, so that operators
// cannot delay heartbeats.
func (c *Carrier) ServeAdmin(take func(transport.AdminRequest)) error {
	named, any := c.subjects.admin()
	subjects := []string{named, any}
	set := func() {
		if c.handleAdmin != nil { // ServeNamedAdmin has subscribed to the first subject
			subjects = subjects[1:]
		}
		c.handleAdmin, c.servesAny = take, true
	}
	if err := c.once(func() bool { return c.servesAny }, set); err != nil {
		return err
	}
	return c.subscribeAdmin(subjects...)
}

func (c *Carrier) subscribeAdmin(subjects ...string) error {
	conn := c.conns[1]
	for _, subject := range subjects {
		sub, err := conn.nc.QueueSubscribe(subject, adminQueue, c.admit)
		if err != nil {
			return fmt.Errorf("nats: subscribe to %s: %w", subject, err)
		}
		if err := sub.SetPendingLimits(maxPendingAdmins, maxPendingAdminBytes); err != nil {
			return fmt.Errorf("nats: limit pending messages of %s: %w", subject, err)
		}
	}
	if conn.nc.IsConnected() {
		return conn.flush(context.Background()) // operators find the node from here on
	}
	return nil
}

func (c *Carrier) admit(m *nats.Msg) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	operator := sender(m.Subject)
	right, service, known := rightOf(c.cfg.Cluster, m.Subject)
	switch {
	case c.closed:
		return
	case !known, !strings.HasPrefix(m.Reply, inbox(c.cfg.Cluster, inboxOperator, operator)+"."):
		c.stats.misdirected.Add(1)
		return
	}
	c.handleAdmin(transport.AdminRequest{
		Operator: operator, Service: service, Right: right, Payload: m.Data,
		Reply: func(answer []byte, err error) { c.answer(m.Reply, answer, err) },
	})
}

func (c *Carrier) answer(to string, payload []byte, err error) {
	msg := &nats.Msg{Subject: to, Data: payload}
	if err != nil {
		msg.Data, msg.Header = nil, nats.Header{failureHeader: {failureCode(err)}}
	}
	_ = c.conns[1].nc.PublishMsg(msg) // a reply may be lost
}
