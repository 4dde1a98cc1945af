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

// crew is a set of processes with a replicator or a region each, and the NATS server in this
// process that connects them.
type crew struct {
	command []string
	procs   int // GOMAXPROCS of processes that start from now on, 0 for the default
	server  *embedded.Server
	hands   []*hand
}

// hand is one of these processes.
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
		return nil, errors.New("no command for the processes is configured")
	}
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		return nil, err
	}
	return &crew{command: command, server: server}, nil
}

// close ends all processes: they end with their input.
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
	_ = h.cmd.Wait() // its error was part of a reply
}

// start starts a process without a node.
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

// join starts a process whose node joins the earlier ones, and waits until it is Up.
func (c *crew) join(ctx context.Context, name string) (*hand, dataAnswer, error) {
	h, err := c.start(ctx, name)
	if err != nil {
		return nil, dataAnswer{}, err
	}
	a, err := h.order(c.joining(h))
	return h, a, err
}

// joining returns the order to join.
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

// joinAll starts n processes and waits until each has all others as replicas.
func (c *crew) joinAll(ctx context.Context, n int) error {
	for i := range n {
		if _, err := c.start(ctx, fmt.Sprintf("n%d", i+1)); err != nil {
			return err
		}
	}
	if _, err := c.hands[0].order(c.joining(c.hands[0])); err != nil { // the others join it
		return err
	}
	if _, err := eachOwn(c.hands[1:], func(i int) dataOrder { return c.joining(c.hands[1+i]) }); err != nil {
		return err
	}
	_, err := each(c.hands, dataOrder{Do: orderAwait, Count: n})
	return err
}

// order sends an order to a process and waits for the result.
func (h *hand) order(o dataOrder) (dataAnswer, error) { return say[dataAnswer](h, o.Do, o) }

// each sends the same order to all processes at once.
func each(hands []*hand, o dataOrder) ([]dataAnswer, error) {
	return eachOwn(hands, func(int) dataOrder { return o })
}

// eachOwn sends each process its own order at once.
func eachOwn(hands []*hand, order func(i int) dataOrder) ([]dataAnswer, error) {
	return atOnce(hands, (*hand).order, order)
}

// equal waits until all processes hold the same data and returns its digest.
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

// pause waits for a duration.
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

// The orders of the parent process.
const (
	orderJoin   = "join"   // the cluster, and start the replicator
	orderAwait  = "await"  // until there are Count replicas
	orderFill   = "fill"   // create Count keys, starting with From
	orderUpdate = "update" // keys, for a time
	orderAnswer = "answer" // raw requests of the plain client
	orderRaw    = "raw"    // send requests of the same size, for a time
	orderStats  = "stats"  // return the figures
	orderSync   = "sync"   // wait until the data has the Digest
	orderSynced = "synced" // wait until the data of the other nodes has arrived
	orderCheck  = "check"  // verify the keys
	orderDecode = "decode" // decode values on one core
	orderLeave  = "leave"  // the cluster
)

// dataOrder is an order to a process with a replicator. A process executes one order at a time.
type dataOrder struct {
	Do string
	// Name, Seeds and Access are for orderJoin.
	Name   string       `json:",omitempty"`
	Seeds  []string     `json:",omitempty"`
	Access *nats.Access `json:",omitempty"`
	Set    string       `json:",omitempty"` // of keys
	Kind   string       `json:",omitempty"` // kindCounter or kindSet
	From   int          `json:",omitempty"`
	Count  int          `json:",omitempty"` // of keys, of replicas, or of the peers of a raw request
	Size   int          `json:",omitempty"` // of each set; of a raw request, in bytes
	Answer int          `json:",omitempty"` // to a raw request, in bytes
	Way    string       `json:",omitempty"` // of raw requests
	// Callers is the number of concurrent updates, dataCallers by default.
	Callers int           `json:",omitempty"`
	Length  time.Duration `json:",omitempty"`
	Pause   time.Duration `json:",omitempty"` // of each caller after each update
	// Digest is the digest of other nodes.
	Digest string
}

// The kinds of values.
const (
	kindCounter = "GCounter"
	kindSet     = "ORSet"
)

// dataAnswer is the result of an order.
type dataAnswer struct {
	Node identity.Node `json:",omitzero"`
	// At is the time at which the node was Up or held all data: the wall time, which all processes
	// of a machine share.
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

// dataSample is the duration of one update and the time at which it ended.
type dataSample struct {
	At   time.Time
	Took time.Duration
}
