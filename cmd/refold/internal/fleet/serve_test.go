// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

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
	"github.com/refold-io/refold/plugins/nats"
)

// maxLine bounds a line between parent and child, in bytes.
const maxLine = 1 << 20

// Extension adds behavior to a child. Its functions receive Node.Extra.
type Extension struct {
	// Prepare changes the configuration before the node starts.
	Prepare func(ctx context.Context, extra json.RawMessage, cfg *cluster.Config) error
	// Start is called after the node has started. Its parameter report sends a Report with a value.
	// It returns a function that handles the values of Fleet.Send, and a function that is called
	// after the node has ended. Both may be nil.
	Start func(ctx context.Context, extra json.RawMessage, n *cluster.Node, report func(v any)) (handle func(line []byte), stop func(), err error)
}

// Serve runs a child. It reads its configuration from in, joins the cluster, and writes reports to
// out until the node is no longer a member or in ends. The node logs to log. After the node has
// ended, Serve returns nil, whatever the reason.
func Serve(ctx context.Context, in io.Reader, out io.Writer, log *slog.Logger, x Extension) (err error) {
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
	config := cluster.Config{
		Cluster: cfg.Cluster, Seeds: cfg.Seeds, Downing: cfg.Downing, Logger: log, Settings: cluster.Settings{AcceptablePause: cfg.AcceptablePause},
	}
	if x.Prepare != nil {
		if err = x.Prepare(ctx, cfg.Extra, &config); err != nil {
			return err
		}
	}
	if config.Carrier, err = nats.Connect(nats.Config{Access: cfg.Access, Cluster: cfg.Cluster, Self: self, Logger: log}); err != nil { //nolint:contextcheck // the carrier lives as long as the node
		return err
	}
	n, err := cluster.Start(config) //nolint:contextcheck // the node has its own shutdown
	if err != nil {
		return err
	}
	var handle func([]byte)
	if x.Start != nil {
		var stop func()
		handle, stop, err = x.Start(ctx, cfg.Extra, n, c.reportExtra)
		if stop != nil {
			defer stop()
		}
		if err != nil {
			n.Stop()
			<-n.Done()
			return err
		}
	}
	var tasks sync.WaitGroup
	tasks.Go(func() { c.watch(ctx, n) })
	go func() { // runs until the process ends, because a read cannot be interrupted
		for lines.Scan() {
			if handle != nil {
				handle(lines.Bytes())
			}
		}
		n.Stop()
	}()
	select {
	case <-n.Done():
	case <-ctx.Done():
		err = n.Shutdown(context.WithoutCancel(ctx))
	}
	tasks.Wait()
	c.report(Report{Ended: n.Err().Error()})
	return err
}

// child is one node with its output.
type child struct {
	self identity.Node
	mu   sync.Mutex
	out  *json.Encoder
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

// report writes a report. It ignores write errors: if the parent has ended, the input also ends,
// and the child stops.
func (c *child) report(r Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Node, r.At = c.self, time.Now()
	_ = c.out.Encode(r)
}

func (c *child) reportExtra(v any) {
	extra, err := json.Marshal(v)
	if err != nil {
		extra, _ = json.Marshal(err.Error())
	}
	c.report(Report{Extra: extra})
}
