// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/lease"
	"github.com/refold-io/refold/plugins/nats"
)

// maxLine bounds a line between parent and child, in bytes.
const maxLine = 1 << 20

// Serve runs a child: it reads its configuration from in, joins the cluster, and writes reports to
// out until the node is no longer a member or in ends. The node logs to log. Serve returns nil
// after the node has ended, for any reason.
func Serve(ctx context.Context, in io.Reader, out io.Writer, log *slog.Logger) (err error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	if !lines.Scan() {
		return errors.Join(errors.New("fleet: the input contains no configuration"), lines.Err())
	}
	var cfg Node
	if err = json.Unmarshal(lines.Bytes(), &cfg); err != nil {
		return fmt.Errorf("fleet: read the configuration: %w", err)
	}
	self, err := identity.New(cfg.Name)
	if err != nil {
		return err
	}
	c := &child{self: self, out: json.NewEncoder(out)}
	leases, err := openLeases(ctx, cfg, log)
	if err != nil {
		return err
	}
	if leases != nil {
		defer func() { err = errors.Join(err, leases.Close()) }()
	}
	n, err := c.start(cfg, leases, log) //nolint:contextcheck // the node has its own shutdown
	if err != nil {
		return err
	}
	var data *replica
	if cfg.Data != nil {
		if data, err = startReplica(ctx, n, *cfg.Data); err != nil {
			n.Stop()
			<-n.Done()
			return err
		}
	}
	var tasks sync.WaitGroup
	tasks.Go(func() { c.watch(ctx, n) })
	go c.obey(ctx, n, data, lines) // ends with the process, because a read cannot be interrupted
	select {
	case <-n.Done():
	case <-ctx.Done():
		err = n.Shutdown(context.WithoutCancel(ctx))
	}
	tasks.Wait()
	if data != nil {
		data.close()
	}
	c.report(Report{Ended: n.Err().Error()})
	return err
}

// child is one node with its output.
type child struct {
	self identity.Node
	mu   sync.Mutex
	out  *json.Encoder
}

// leaseTimeout is the time-out of leases without renewal.
const leaseTimeout = 5 * time.Second

func openLeases(ctx context.Context, cfg Node, log *slog.Logger) (lease.Store, error) {
	if len(cfg.Leases.URLs) == 0 {
		return nil, nil //nolint:nilnil // no lease store is configured
	}
	return nats.OpenLeases(ctx, nats.LeasesConfig{Access: cfg.Leases, Cluster: cfg.Cluster, Name: cfg.Name, Timeout: leaseTimeout, Logger: log})
}

// start starts the node. It does not wait until the node has joined.
func (c *child) start(cfg Node, leases lease.Store, log *slog.Logger) (*cluster.Node, error) {
	carrier, err := nats.Connect(nats.Config{Access: cfg.Access, Cluster: cfg.Cluster, Self: c.self, Logger: log})
	if err != nil {
		return nil, err
	}
	n, err := cluster.Start(cluster.Config{
		Cluster: cfg.Cluster, Carrier: carrier, Seeds: cfg.Seeds, Downing: cfg.Downing, Leases: leases, Logger: log,
		Settings: cluster.Settings{AcceptablePause: cfg.AcceptablePause},
	})
	if err != nil || !cfg.Singleton {
		return n, err
	}
	return n, n.Singleton(context.Background(), cluster.Singleton{Run: func(ctx context.Context, _ *cluster.Inbox) error {
		yes, no := true, false
		c.report(Report{Hosts: &yes})
		<-ctx.Done()
		c.report(Report{Hosts: &no})
		return nil
	}})
}

// watch reports changes of the view.
func (c *child) watch(ctx context.Context, n *cluster.Node) {
	var last *View
	for range n.Events(ctx) {
		if v := viewOf(n.State()); !reflect.DeepEqual(v, last) {
			last = v
			c.report(Report{View: v})
		}
	}
}

// obey executes the requests of the parent, and stops the node when the input ends.
func (c *child) obey(ctx context.Context, n *cluster.Node, data *replica, lines *bufio.Scanner) {
	for lines.Scan() {
		if data != nil {
			data.serve(ctx, lines.Bytes(), c.report)
		}
	}
	n.Stop()
}

// report writes a report. It ignores errors: without a parent, the input ends, too.
func (c *child) report(r Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Node, r.At = c.self, time.Now()
	_ = c.out.Encode(r)
}
