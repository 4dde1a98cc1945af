// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/transport"
)

// Config is the configuration of a Carrier.
type Config struct {
	// Access holds the addresses of the servers and the credentials.
	Access

	// Cluster is the name of the cluster, in the form of a node's name without dots. Clusters on
	// the same servers are isolated from each other. Required.
	Cluster string
	// Self is the incarnation of the node. Required.
	Self identity.Node
	// MaxFrame is the maximum size of a frame in bytes: at least 1 KiB, and at most the servers'
	// max_payload. Defaults to 1 MiB, the default of servers.
	MaxFrame int
	// Logger receives a record when a connection is lost or made, when a server refuses an
	// operation, and when frames arrive faster than the node takes them. Defaults to a logger that
	// discards.
	Logger *slog.Logger
}

func (c Config) validate() error {
	var errs fielderror.Errors
	errs.Add("Config.Cluster", identity.CheckCluster(c.Cluster))
	if err := identity.CheckName(c.Self.Name); err != nil || c.Self.UID == 0 {
		errs.Addf("Config.Self", "is %v, which is not an incarnation", c.Self)
	}
	if c.MaxFrame < transport.MinFrame || c.MaxFrame > 64<<20 {
		errs.Addf("Config.MaxFrame", "is %d, the range is %d to %d", c.MaxFrame, transport.MinFrame, 64<<20)
	}
	return errs.Err(ErrInvalid)
}

// Carrier carries frames over NATS. It implements transport.Carrier, transport.Flusher and
// transport.AdminCarrier.
type Carrier struct {
	cfg      Config
	log      *slog.Logger
	subjects subjects
	conns    [2]*connection // one for the control lane, one for the other lanes
	stats    counters

	// mu is held for reading during calls of the receiver.
	mu          sync.RWMutex
	receiver    transport.Receiver
	handleAdmin func(transport.AdminRequest) // nil until ServeNamedAdmin or ServeAdmin
	servesAny   bool                         // ServeAdmin was called
	settled     bool                         // the initial state of the connections is established
	closed      bool
	done        chan struct{}
	running     sync.WaitGroup

	reportMu sync.Mutex // serialises the calls of Connection
	reported error
}

var (
	_ transport.Carrier      = (*Carrier)(nil)
	_ transport.Flusher      = (*Carrier)(nil)
	_ transport.AdminCarrier = (*Carrier)(nil)
	_ transport.Clustered    = (*Carrier)(nil)
)

// Connect returns a carrier and checks the configuration and its files. An unreachable server is
// not an error: the carrier is then disconnected and retries until it is closed. Connect takes at
// most Access.ConnectTimeout per server.
func Connect(cfg Config) (*Carrier, error) {
	cfg.MaxFrame = cmp.Or(cfg.MaxFrame, 1<<20)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	opts, err := cfg.options()
	if err = errors.Join(err, cfg.validate()); err != nil {
		return nil, err
	}
	if file := cfg.exposed(); file != "" {
		cfg.Logger.Warn("nats: every user of this machine can read the secret: restrict the mode of the file to 600", slog.String("file", file))
	}
	c := &Carrier{
		cfg:      cfg,
		log:      cfg.Logger.With(slog.String("node", cfg.Self.String())),
		subjects: newSubjects(cfg.Cluster, cfg.Self),
		done:     make(chan struct{}),
	}
	errs := make([]error, len(c.conns))
	var wg sync.WaitGroup
	for i, name := range []string{"control", "data"} {
		c.conns[i] = &connection{c: c, name: name, problem: errConnecting}
		wg.Go(func() { errs[i] = c.conns[i].open(opts) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		c.disconnect()
		return nil, err
	}
	return c, nil
}

// Self implements transport.Carrier.
func (c *Carrier) Self() identity.Node { return c.cfg.Self }

// Cluster implements transport.Clustered.
func (c *Carrier) Cluster() string { return c.cfg.Cluster }

// MaxFrame implements transport.Carrier.
func (c *Carrier) MaxFrame() int { return c.cfg.MaxFrame }

func (c *Carrier) conn(lane transport.Lane) *connection {
	if lane == transport.Control {
		return c.conns[0]
	}
	return c.conns[1]
}

// Start implements transport.Carrier.
func (c *Carrier) Start(r transport.Receiver) error {
	if err := c.once(func() bool { return c.receiver != nil }, func() { c.receiver = r }); err != nil {
		return err
	}
	subscribe := func(lane transport.Lane, subject string) error {
		conn := c.conn(lane)
		sub, err := conn.nc.Subscribe(subject, func(m *nats.Msg) { c.receive(lane, m) })
		if err != nil {
			return fmt.Errorf("nats: subscribe to %s: %w", subject, err)
		}
		conn.mu.Lock()
		conn.subs = append(conn.subs, sub)
		conn.mu.Unlock()
		return sub.SetPendingLimits(maxPending, maxPendingBytes)
	}
	errs := []error{subscribe(transport.Control, c.subjects.join())}
	for lane := range transport.Lane(transport.Lanes) {
		errs = append(errs, subscribe(lane, c.subjects.lane(lane)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, conn := range c.conns {
		// A frame that is sent after Start returns must find the subscriptions.
		if conn.nc.IsConnected() {
			if err := conn.reached(conn.nc); err != nil {
				c.log.WarnContext(context.Background(), "nats: no reply from the server", slog.String("connection", conn.name), slog.Any("error", err))
			}
		}
		conn.sync()
	}
	c.mu.Lock()
	c.settled = true
	c.mu.Unlock()
	c.report()
	return nil
}

// once calls set unless the carrier is closed or set was called before.
func (c *Carrier) once(isSet func() bool, set func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrClosed
	case isSet():
		return errStarted
	}
	set()
	return nil
}

// Limits of frames that wait for the receiver on one lane. The receiver takes frames at once, so
// frames wait only while the process lacks processor time.
const (
	maxPending      = 1 << 18
	maxPendingBytes = 64 << 20
)

func (c *Carrier) receive(lane transport.Lane, m *nats.Msg) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return
	}
	c.receiver.Receive(lane, sender(m.Subject), m.Data)
}

// Send implements transport.Carrier.
func (c *Carrier) Send(lane transport.Lane, to identity.Node, frame []byte) error {
	if len(frame) > c.cfg.MaxFrame {
		return fmt.Errorf("nats: a frame has %d bytes, the limit is %d", len(frame), c.cfg.MaxFrame)
	}
	select {
	case <-c.done:
		return ErrClosed
	default:
	}
	if err := c.conn(lane).nc.Publish(c.subjects.to(lane, to), frame); err != nil {
		return fmt.Errorf("nats: send to %v on lane %v: %w", to, lane, err)
	}
	return nil
}

// Flush implements transport.Flusher. It returns when the servers have received all sent frames.
func (c *Carrier) Flush(ctx context.Context) error {
	for _, conn := range c.conns {
		if err := conn.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close implements transport.Carrier.
func (c *Carrier) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.mu.Unlock()
	if first {
		close(c.done)
		c.disconnect()
	}
	c.running.Wait()
	return nil
}

func (c *Carrier) disconnect() {
	for _, conn := range c.conns {
		if conn.nc != nil {
			conn.nc.Close()
		}
	}
}

func (c *Carrier) report() {
	c.reportMu.Lock()
	defer c.reportMu.Unlock()
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed || !c.settled {
		return
	}
	problem := cmp.Or(c.conns[0].trouble(), c.conns[1].trouble())
	if (problem == nil) != (c.reported == nil) {
		c.reported = problem
		c.receiver.Connection(problem)
	}
}

// Stats are counters since the carrier was connected.
type Stats struct {
	// Reconnects is the number of reconnects.
	Reconnects uint64
	// SlowConsumer is the number of times that frames started to arrive faster than the node takes
	// them. Lost is the number of frames lost for that reason.
	SlowConsumer, Lost uint64
	// Refused is the number of subscriptions and messages that a server refused for missing
	// permissions.
	Refused uint64
	// Misdirected is the number of operators' requests whose reply subject is not in the operator's
	// inbox, or whose subject names no right. The node ignores them.
	Misdirected uint64
}

type counters struct{ reconnects, slow, refused, misdirected atomic.Uint64 }

// Stats returns the counters.
func (c *Carrier) Stats() Stats {
	s := Stats{Reconnects: c.stats.reconnects.Load(), SlowConsumer: c.stats.slow.Load(), Refused: c.stats.refused.Load(), Misdirected: c.stats.misdirected.Load()}
	for _, conn := range c.conns {
		s.Lost += conn.lost()
	}
	return s
}
