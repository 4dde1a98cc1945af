// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
)

// reply is what a process says to its parent about an order.
type reply[A any] struct {
	Err    string `json:",omitempty"`
	Answer A
}

// obey reads orders from in, one JSON object each, and replies to each of them on out, until in ends.
func obey[O, A any](in io.Reader, out io.Writer, do func(*O) (A, error)) error {
	orders, replies := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var o O
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read an order: %w", err)
		}
		var r reply[A]
		var err error
		if r.Answer, err = do(&o); err != nil {
			r.Err = err.Error()
		}
		if err = replies.Encode(r); err != nil {
			return fmt.Errorf("answer an order: %w", err)
		}
	}
}

// say has a process do something, and waits for the reply.
func say[A any](h *hand, do string, order any) (A, error) {
	var r reply[A]
	err := h.out.Encode(order)
	if err == nil {
		err = h.in.Decode(&r)
	}
	if err == nil && r.Err != "" {
		err = errors.New(r.Err)
	}
	if err != nil {
		err = fmt.Errorf("%s of node %s: %w", do, h.name, err)
	}
	return r.Answer, err
}

// atOnce has processes do something at a time, each its own.
func atOnce[O, A any](hands []*hand, do func(*hand, O) (A, error), order func(i int) O) ([]A, error) {
	answers := make([]A, len(hands))
	errs := make(chan error, len(hands))
	for i, h := range hands {
		go func() {
			var err error
			answers[i], err = do(h, order(i))
			errs <- err
		}()
	}
	var all []error
	for range hands {
		all = append(all, <-errs)
	}
	return answers, errors.Join(all...)
}

// startNode starts the node of such a process, which ends with Stop.
func startNode(self identity.Node, access nats.Access, cfg cluster.Config) (*cluster.Node, error) {
	carrier, err := nats.Connect(nats.Config{Access: access, Cluster: "bench", Self: self, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	cfg.Cluster, cfg.Carrier = "bench", carrier
	return cluster.Start(cfg)
}
