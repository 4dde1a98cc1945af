// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
)

// crew are processes that have a replicator or a region each, and the server of NATS in this process through which they talk.
type crew struct {
	command []string
	procs   int // GOMAXPROCS of those that are started from now on, 0 for the default
	server  *embedded.Server
	hands   []*hand
}

// hand is one of those processes.
type hand struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *json.Encoder
	in    *json.Decoder
}

func (b *run) newCrew() (*crew, error) { return newCrew(b.settings.DataNode) }

func newCrew(command []string) (*crew, error) {
	if len(command) == 0 {
		return nil, errors.New("there is no command for processes")
	}
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		return nil, err
	}
	return &crew{command: command, server: server}, nil
}

// close ends all processes: they end when nobody orders anything any more.
func (c *crew) close() error {
	for _, h := range c.hands {
		_ = h.stdin.Close()
	}
	for _, h := range c.hands {
		h.wait()
	}
	return c.server.Close()
}

func (h *hand) wait() {
	patience := time.AfterFunc(nodePatience, func() { _ = h.cmd.Process.Kill() })
	defer patience.Stop()
	_ = h.cmd.Wait() // what went wrong was answered
}

// start starts a process, without a node yet.
func (c *crew) start(ctx context.Context, name string) (*hand, error) {
	cmd := exec.CommandContext(ctx, c.command[0], c.command[1:]...) //nolint:gosec // that is what it is for
	if c.procs > 0 {
		cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(c.procs))
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start process %s: %w", name, err)
	}
	h := &hand{name: name, cmd: cmd, stdin: stdin, out: json.NewEncoder(stdin), in: json.NewDecoder(stdout)}
	c.hands = append(c.hands, h)
	return h, nil
}

// join starts a process whose node joins those that were started before, and waits until it is up.
func (c *crew) join(ctx context.Context, name string) (*hand, dataAnswer, error) {
	h, err := c.start(ctx, name)
	if err != nil {
		return nil, dataAnswer{}, err
	}
	a, err := h.order(c.joining(h))
	return h, a, err
}

// joining tells a process to join.
func (c *crew) joining(h *hand) dataOrder {
	access := c.server.Access()
	return dataOrder{Do: orderJoin, Name: h.name, Seeds: []string{c.hands[0].name}, Access: &access}
}

// dismiss ends a process.
func (c *crew) dismiss(h *hand) error {
	c.hands = slices.DeleteFunc(c.hands, func(o *hand) bool { return o == h })
	err := h.stdin.Close()
	h.wait()
	return err
}

// joinAll starts as many, which see each other when it returns.
func (c *crew) joinAll(ctx context.Context, n int) error {
	for i := range n {
		if _, err := c.start(ctx, fmt.Sprintf("n%d", i+1)); err != nil {
			return err
		}
	}
	if _, err := c.hands[0].order(c.joining(c.hands[0])); err != nil { // the others find it
		return err
	}
	if _, err := eachOwn(c.hands[1:], func(i int) dataOrder { return c.joining(c.hands[1+i]) }); err != nil {
		return err
	}
	_, err := each(c.hands, dataOrder{Do: orderAwait, Count: n})
	return err
}

// order has a process do something, and waits for it.
func (h *hand) order(o dataOrder) (dataAnswer, error) { return say[dataAnswer](h, o.Do, o) }

// each has all processes do the same at a time.
func each(hands []*hand, o dataOrder) ([]dataAnswer, error) {
	return eachOwn(hands, func(int) dataOrder { return o })
}

// eachOwn has each process do its own.
func eachOwn(hands []*hand, order func(i int) dataOrder) ([]dataAnswer, error) {
	return atOnce(hands, (*hand).order, order)
}

// equal waits until all processes hold the same, and returns the digest of that.
func (c *crew) equal(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	for {
		answers, err := each(c.hands, dataOrder{Do: orderStats})
		if err != nil {
			return "", err
		}
		same := true
		for _, a := range answers {
			same = same && a.Digest == answers[0].Digest
		}
		if same {
			return answers[0].Digest, nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return "", fmt.Errorf("wait until all nodes hold the same: %w", err)
		}
	}
}

// pause waits for a time.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// What a parent can order.
const (
	orderJoin   = "join"   // the cluster, and start the replicator
	orderAwait  = "await"  // as many replicas as Count
	orderFill   = "fill"   // make Count keys from From on
	orderUpdate = "update" // keys, for a time
	orderAnswer = "answer" // raw requests of the bare client
	orderRaw    = "raw"    // requests that carry as much, for a time
	orderStats  = "stats"  // the figures
	orderSync   = "sync"   // wait until all is held that has the Digest
	orderSynced = "synced" // wait until all has come that others had
	orderCheck  = "check"  // what the keys hold
	orderDecode = "decode" // values that were encoded before, on one core
	orderLeave  = "leave"  // the cluster
)

// dataOrder is what a parent orders a process that has a replicator to do: one thing at a time.
type dataOrder struct {
	Do string
	// Name, Seeds and Access are for joining.
	Name   string       `json:",omitempty"`
	Seeds  []string     `json:",omitempty"`
	Access *nats.Access `json:",omitempty"`
	Set    string       `json:",omitempty"` // of keys
	Kind   string       `json:",omitempty"` // kindCounter or kindSet
	From   int          `json:",omitempty"`
	Count  int          `json:",omitempty"` // of keys, of replicas, or of peers that a raw request goes to
	Size   int          `json:",omitempty"` // of each set; of a raw request, in bytes
	Answer int          `json:",omitempty"` // to a raw request, in bytes
	Way    string       `json:",omitempty"` // of raw requests
	// Callers is how many update at a time; by default dataCallers.
	Callers int           `json:",omitempty"`
	Length  time.Duration `json:",omitempty"`
	Pause   time.Duration `json:",omitempty"` // of each caller after each update
	// Digest is what others hold.
	Digest string
}

// The kinds of values.
const (
	kindCounter = "GCounter"
	kindSet     = "ORSet"
)

// dataAnswer says what has come of an order.
type dataAnswer struct {
	Node identity.Node `json:",omitzero"`
	// At is when the node was up, or when it had all: the wall time, which all processes on a machine share.
	At      time.Time     `json:",omitzero"`
	Ops     int           `json:",omitempty"`
	Took    time.Duration `json:",omitempty"`
	Bytes   int           `json:",omitempty"`
	Sum     uint64        `json:",omitempty"`
	Samples []dataSample  `json:",omitempty"`
	Digest  string
	Synced  bool                 `json:",omitempty"`
	Count   *ddata.ProtocolStats `json:",omitempty"`
}

// dataSample is how long one update took, and when it ended.
type dataSample struct {
	At   time.Time
	Took time.Duration
}
