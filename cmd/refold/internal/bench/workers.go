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

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
)

// workers are child processes with a node each, and the NATS server that connects them.
type workers struct {
	command []string
	procs   int // GOMAXPROCS of processes that start from now on, 0 for the default
	stderr  io.Writer
	server  *embedded.Server
	all     []*worker
}

type worker struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *json.Encoder
	in    *json.Decoder
}

// withWorkers calls f with an empty set of workers, and ends all processes that f has started.
func (b *run) withWorkers(ctx context.Context, f func(ctx context.Context, w *workers) error) error {
	return withWorkers(ctx, b.settings.Worker, nil, f)
}

// withWorkers is run.withWorkers for a given command. All processes write to stderr, which may be
// nil.
func withWorkers(ctx context.Context, command []string, stderr io.Writer, f func(ctx context.Context, w *workers) error) (err error) {
	if len(command) == 0 {
		return errors.New("no command for the processes is configured")
	}
	server, err := embedded.Start(embedded.Config{}) //nolint:contextcheck // the server lives until Close
	if err != nil {
		return err
	}
	w := &workers{command: command, server: server, stderr: stderr}
	defer func() {
		for _, one := range w.all { // each process ends with its input
			err = errors.Join(err, one.stdin.Close())
		}
		for _, one := range w.all {
			one.wait()
		}
		err = errors.Join(err, server.Close())
	}()
	return f(ctx, w)
}

func (w *worker) wait() {
	patience := time.AfterFunc(nodePatience, func() { _ = w.cmd.Process.Kill() })
	defer patience.Stop()
	_ = w.cmd.Wait() // a result has already reported its error
}

// start starts a process without a node.
func (w *workers) start(ctx context.Context, name string) (*worker, error) {
	cmd := exec.CommandContext(ctx, w.command[0], w.command[1:]...) //nolint:gosec // the command is the caller's
	cmd.Stderr = w.stderr
	if w.procs > 0 {
		cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(w.procs))
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
	one := &worker{name: name, cmd: cmd, stdin: stdin, out: json.NewEncoder(stdin), in: json.NewDecoder(stdout)}
	w.all = append(w.all, one)
	return one, nil
}

// join starts a process whose node joins the nodes of the earlier processes. It waits until the
// node is Up.
func (w *workers) join(ctx context.Context, name string, s setup) (*worker, result, error) {
	one, err := w.start(ctx, name)
	if err != nil {
		return nil, result{}, err
	}
	r, err := one.do(w.joining(one, s, w.all[0].name))
	return one, r, err
}

func (w *workers) joining(one *worker, s setup, seeds ...string) order {
	s.Seeds, s.Access = seeds, w.server.Access()
	return order{Do: orderJoin, Name: one.name, Setup: &s}
}

// joinAll starts processes one after the other, so that the first is the oldest, and waits until
// each node has all others as peers.
func (w *workers) joinAll(ctx context.Context, s setup, names ...string) error {
	for _, name := range names {
		if _, _, err := w.join(ctx, name, s); err != nil {
			return err
		}
	}
	_, err := each(w.all, order{Do: orderAwait, Count: len(names)})
	return err
}

// stop ends a process. With kill it does not wait for the node.
func (w *workers) stop(one *worker, kill bool) (err error) {
	w.all = slices.DeleteFunc(w.all, func(o *worker) bool { return o == one })
	if kill {
		err = one.cmd.Process.Kill()
	}
	err = errors.Join(err, one.stdin.Close())
	one.wait()
	return err
}

func (w *worker) do(o order) (r result, err error) {
	err = w.out.Encode(o)
	if err == nil {
		err = w.in.Decode(&r)
	}
	if err == nil && r.Err != "" {
		err = errors.New(r.Err)
	}
	if err != nil {
		err = fmt.Errorf("%s of node %s: %w", o.Do, w.name, err)
	}
	return r, err
}

func each(all []*worker, o order) ([]result, error) {
	return eachOwn(all, func(int) order { return o })
}

func eachOwn(all []*worker, order func(i int) order) ([]result, error) {
	results := make([]result, len(all))
	err := inParallel(len(all), len(all), func(i int) (err error) {
		results[i], err = all[i].do(order(i))
		return err
	})
	return results, err
}

// equal waits until all processes hold the same replicated data and returns its digest.
func (w *workers) equal(ctx context.Context) (digest string, err error) {
	err = until(ctx, 20*time.Millisecond, func(context.Context) (_ bool, err error) {
		results, err := each(w.all, order{Do: orderStats})
		digest = results[0].Digest
		return !slices.ContainsFunc(results, func(r result) bool { return r.Digest != digest }), err
	})
	return digest, err
}

// The orders of the parent process.
const (
	orderJoin    = "join"    // the cluster, and start the replicator or the region
	orderAwait   = "await"   // wait until there are Count nodes, replicas or regions
	orderDown    = "down"    // wait until the node with the name is Down
	orderSeen    = "seen"    // return the node's observations about others
	orderView    = "view"    // return the node's view of the cluster
	orderCPU     = "cpu"     // return the processor time of the process
	orderPrepare = "prepare" // prepare for the end of all nodes
	orderLeave   = "leave"   // the cluster
	orderAnswer  = "answer"  // raw requests of the plain client
	orderRaw     = "raw"     // send raw requests, for a time

	// Orders for replicated data.
	orderFill   = "fill"   // create Count keys, starting with From
	orderUpdate = "update" // keys, for a time
	orderStats  = "stats"  // return the figures
	orderSync   = "sync"   // wait until the data of the other nodes has arrived; with Digest, until the data has this digest
	orderCheck  = "check"  // verify the keys
	orderDecode = "decode" // decode values on one core

	// Orders for sharded entities.
	orderWhere = "where" // ask the entities up to Count for their nodes
	orderEcho  = "echo"  // let callers ask entities for a time, as Way selects
	orderWake  = "wake"  // start the entities of a part
	orderLoad  = "load"  // start a load at a fixed rate
	orderHalt  = "halt"  // end the load and wait for the replies
	orderTimes = "times" // return the durations of asks that were due between Since and Until
	orderLost  = "lost"  // check that no acknowledged command is lost
	orderHomes = "homes" // return the number of shards per node
	orderProbe = "probe" // ask an entity of each shard until it replies
	orderRuns  = "runs"  // return the number of running entities
)

type setup struct {
	// Seeds and Access are those of the cluster.
	Seeds  []string
	Access nats.Access
	// Cluster is the name of the cluster, "bench" by default.
	Cluster string `json:",omitempty"`
	Downing downing.Settings
	// NoWait joins without waiting until the node is Up.
	NoWait bool `json:",omitempty"`
	// Data starts a replicator.
	Data bool `json:",omitempty"`
	// Regions is the minimum number of nodes that host shards. If it is 0, the process starts no
	// region. Shards is the number of shards.
	Regions, Shards int
	// DSN and Schema locate the journal in PostgreSQL. Without them the journal is in memory and
	// the coordinator's state in replicated data. DSN is secret.
	DSN, Schema string `json:",omitempty"`
	// Remember is empty if no entity is remembered. Without a journal for the coordinator's state,
	// it is the directory that stores the remembered entities.
	Remember string `json:",omitempty"`
	// Replicated keeps the coordinator's state in replicated data even with a journal.
	Replicated bool `json:",omitempty"`
}

// order is an order to a process. A process executes one order at a time.
type order struct {
	Do    string
	Setup *setup `json:",omitempty"` // for orderJoin
	Name  string `json:",omitempty"` // of a node
	// Set, Kind (kindCounter or kindSet), From and Count select keys. Count is also a number of
	// nodes, entities, or peers of a raw request.
	Set   string `json:",omitempty"`
	Kind  string `json:",omitempty"`
	From  int    `json:",omitempty"`
	Count int    `json:",omitempty"`
	// Size is the number of elements of each set, or the size of a raw request in bytes. Reply is
	// the size of the reply to a raw request.
	Size  int    `json:",omitempty"`
	Reply int    `json:",omitempty"`
	Way   string `json:",omitempty"`
	// Callers is the number of concurrent callers, dataCallers by default. Each works for Length,
	// and pauses for Pause after each update.
	Callers int           `json:",omitempty"`
	Length  time.Duration `json:",omitempty"`
	Pause   time.Duration `json:",omitempty"`
	// Digest is the digest of other nodes.
	Digest string `json:",omitempty"`
	// Rate is the number of asks per second.
	Rate int `json:",omitempty"`
	// Part selects the entities of this process: those whose number modulo Parts is Part.
	Part, Parts  int
	Since, Until time.Time `json:",omitzero"`
}

const (
	kindCounter = "GCounter"
	kindSet     = "ORSet"
)

// The transports of raw requests, and the targets of the callers of orderEcho.
const (
	wayBare      = "nats.go"   // the plain client
	wayTransport = "transport" // the transport of the nodes
	wayHere      = "here"      // entities on the same node, through the region
	wayThere     = "there"     // entities on other nodes, through the region
	wayHost      = "host"      // entities of a local host
)

type result struct {
	Err string `json:",omitempty"`
	// At is the time of the result: the wall time, which all processes of a machine share.
	At      time.Time     `json:",omitzero"`
	Ops     int           `json:",omitempty"`
	Took    time.Duration `json:",omitempty"`
	Bytes   int           `json:",omitempty"`
	Sum     uint64        `json:",omitempty"`
	Samples []sample      `json:",omitempty"`
	Digest  string        `json:",omitempty"`
	Stats   *ddata.ProtocolStats
	// Failed and Open are the numbers of failed and of open asks. Errors contains the texts of some
	// errors. Lost is the number of acknowledged commands that are missing.
	Failed, Open, Lost int             `json:",omitempty"`
	Errors             []string        `json:",omitempty"`
	Times              []time.Duration `json:",omitempty"`
	// Answered is the time at which all shards had replied.
	Answered time.Time     `json:",omitzero"`
	Seen     []observation `json:",omitempty"`
	View     *view         `json:",omitempty"`
	// Homes is the number of shards per node.
	Homes map[string]int `json:",omitempty"`
}

func (r *result) rate() float64 { return float64(r.Ops) / max(1e-9, r.Took.Seconds()) }

// sample is the duration of one operation and the time at which it ended or was due.
type sample struct {
	At   time.Time
	Took time.Duration
}
